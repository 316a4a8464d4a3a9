/* A pipeline's schedule as lanes: one a stage and one a hop, a slice an interval. */
#ifndef HP_PLANNERS_PIPELINE_PICTURE_H
#define HP_PLANNERS_PIPELINE_PICTURE_H

#include "planners/pipeline/pipeline.h"
#include "planners/timeline.h"

/* Adds the lanes of a schedule under a group ("planned", "measured"), so that two schedules of one
 * plan stand above each other. With hops false only the stages. Failures stay in the timeline. */
void pipeline_picture_add(struct timeline *t, const struct plan_pipeline *plan,
                          const struct pipeline_schedule *s, const char *group, bool hops);

#endif
