/* Requests to pools, until they wait in the scheduler: the model that they name, what their
 * client's key may use, how many samples they have. */
#ifndef HP_COORDINATOR_POOLS_POOL_ADMISSION_H
#define HP_COORDINATOR_POOLS_POOL_ADMISSION_H

#include "coordinator/pools/pool_state.h"

/* HP_EBUSY and why where no plan serves the model of a spec now. */
int pool_model_check(const struct pool_service *s, const struct pool_spec *spec, int model,
                     struct err *e);

/* Takes a request up: it waits in the current plan's scheduler. As pool_requests.h says of infer.
 */
int pool_request_open(struct coord *c, const struct pool_call *call, uint64_t *id,
                      uint32_t *retry_after_s, struct err *e);
void pool_request_cancel(struct coord *c, uint64_t id);

#endif
