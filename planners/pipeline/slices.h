/* Slicings for given stages. */
#ifndef HP_PLANNERS_PIPELINE_SLICES_H
#define HP_PLANNERS_PIPELINE_SLICES_H

#include "planners/pipeline/evaluate.h"

/* About m slices, each `growth` times as long (in time) as the one before, on the stage that has
 * the most to do (t has stages) or on the first kind (it has none). A pipeline whose first stages
 * have little to do fills faster with slices that grow. */
void slices_shaped(const struct exact *x, struct trial *t, int m, double growth);
/* The slicing that HPipe's Algorithm 2 gives for the stages. HP_ENOMEM. */
int slices_published(struct exact *x, struct trial *t, struct err *e);
/* Moves cuts by `least` units and more, merges and splits slices while that helps; sets t->value.
 */
void slices_polish(struct exact *x, struct trial *t, int least);

#endif
