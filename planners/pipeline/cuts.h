/* Layers over a given order of devices, for the slicing that the pieces hold. */
#ifndef HP_PLANNERS_PIPELINE_CUTS_H
#define HP_PLANNERS_PIPELINE_CUTS_H

#include "planners/pipeline/evaluate.h"

/* Shares out layers so that the busiest of the devices is as little busy as can be. Devices that
 * get none are left out of *t, unless they must be used. False: it does not fit. The value is not
 * set. */
bool cuts_balance(struct exact *x, const int *order, int n, struct trial *t);
/* Moves the ends of stages while that helps. t->value must be right and becomes better or stays. */
void cuts_polish(struct exact *x, struct trial *t);

#endif
