/* The search where plans are too many to weigh them all. */
#ifndef HP_PLANNERS_PIPELINE_SEARCH_H
#define HP_PLANNERS_PIPELINE_SEARCH_H

#include "planners/pipeline/evaluate.h"

/* Good starts, local search from each, then random steps. The best plan found in *best; its value
 * is INFINITY where none was. HP_ENOMEM. */
int search_best(struct exact *x, struct trial *best, struct err *e);

#endif
