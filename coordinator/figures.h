/* Every figure that the coordinator keeps, for whoever shows them (requests.h, metrics). */
#ifndef HP_COORDINATOR_FIGURES_H
#define HP_COORDINATOR_FIGURES_H

struct core;

typedef void (*figures_row_fn)(void *out, const char *name, const char *type, const char *help,
                               const char *labels, double value);
void figures_rows(const struct core *c, figures_row_fn row, void *out);

#endif
