/* Where the search begins. */
#ifndef HP_PLANNERS_PIPELINE_STARTS_H
#define HP_PLANNERS_PIPELINE_STARTS_H

#include "planners/pipeline/search_int.h"

/* Fills s->top with the best of all orders of devices, numbers of slices and shapes of slicing.
 * HP_ENOMEM. */
int starts_find(struct pipeline_search *s, const struct orders *orders, struct err *e);
/* Numbers of slices worth trying, and by how much each slice may be longer than the one before. */
enum { SLICE_COUNTS = 13, GROWTHS = 4 };
extern const int starts_slice_counts[SLICE_COUNTS];
extern const double starts_growths[GROWTHS];

#endif
