/* The ends of batches and of requests to pools: outputs dealt out to who waits for them, and what
 * is counted. */
#ifndef HP_COORDINATOR_POOLS_POOL_RESULTS_H
#define HP_COORDINATOR_POOLS_POOL_RESULTS_H

#include "coordinator/pools/pool_state.h"
#include "transport/frame_tensors.h"

/* Answers with why, and forgets it; NULL is nothing. */
void pool_request_fail(struct coord *c, struct pool_request *r, const struct err *why);
/* The same of one that the scheduler did not take, which is counted as dropped. */
void pool_request_drop(struct coord *c, struct pool_request *r, const struct err *why);
/* Deals a batch's outputs out, cut back to the requests' lengths where they are as long as `padded`
 * (0: none is); requests that have all are answered, with the batch's times, of
 * which those of a request are filled in. HP_EPROTO: they are not what the model says;
 * HP_ENOMEM. */
int pool_results_give(struct coord *c, struct pool_model *m, const struct pool_batch *b,
                      const struct frame_tensor *tensors, int n, int64_t padded, double compute_s,
                      struct infer_times *times, struct err *e);
/* The batch is over; `why` (NULL: it went well) is what its requests are answered with. */
void pool_batch_end(struct coord *c, struct pool_plan *p, struct pool_batch *b,
                    const struct err *why);

#endif
