/* What pools count, as Prometheus has it. */
#ifndef HP_COORDINATOR_POOLS_POOL_METRICS_H
#define HP_COORDINATOR_POOLS_POOL_METRICS_H

#include "coordinator/pools/pool_state.h"
#include "coordinator/requests.h"

/* Of each model that is served, or applied where none is, and of each share of the plan that
 * serves; nothing where there are none. */
void pool_metrics_rows(const struct coord *c, metrics_row_fn row, void *out);

#endif
