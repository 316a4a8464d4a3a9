/* Every figure that the coordinator keeps, for whoever shows them (requests.h, metrics). */
#ifndef HP_COORDINATOR_METRICS_H
#define HP_COORDINATOR_METRICS_H

struct coord;

typedef void (*metrics_row_fn)(void *out, const char *name, const char *type, const char *help,
                               const char *labels, double value);
/* Calls `row` once for every figure; the texts are valid during the call. */
void metrics_rows(const struct coord *c, metrics_row_fn row, void *out);

#endif
