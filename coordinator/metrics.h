/* Every figure that the coordinator keeps, for whoever shows them (requests.h, metrics). */
#ifndef HP_COORDINATOR_METRICS_H
#define HP_COORDINATOR_METRICS_H

#include "coordinator/requests.h"

struct coord;

/* Calls `row` once for every figure; the texts are valid during the call. */
void metrics_rows(const struct coord *c, metrics_row_fn row, void *out);

#endif
