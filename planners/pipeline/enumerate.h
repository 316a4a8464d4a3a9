/* The search where plans are few. */
#ifndef HP_PLANNERS_PIPELINE_ENUMERATE_H
#define HP_PLANNERS_PIPELINE_ENUMERATE_H

#include "planners/pipeline/evaluate.h"

/* All plans, where they are few enough: true, and the best in *best (value INFINITY: there is
 * none). False: too many, nothing was done. */
bool enumerate_all(struct exact *x, struct trial *best);

#endif
