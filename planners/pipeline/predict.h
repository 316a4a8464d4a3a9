/* What a plan expects of one prompt, for those who do not plan: the paced device, which takes no
 * less than this, and whoever compares with what was measured. Pure functions, any thread, nothing
 * blocks. */
#ifndef HP_PLANNERS_PIPELINE_PREDICT_H
#define HP_PLANNERS_PIPELINE_PREDICT_H

#include "planners/pipeline/pipeline.h"

/* Seconds of layers [first, end) on a kind of the profile for `tokens` new tokens of each of
 * `batch` sequences (0: the profile's) after `prefix` cached ones (formats: hp-profile/1). NAN
 * where a class has no table for the kind. */
double predict_layers_seconds(const struct profile *p, int kind, int first, int end, double tokens,
                              double prefix, double batch);
/* Bytes that a hop moves after layer `end` - 1. */
double predict_hop_bytes(const struct profile *p, int end, double tokens, double batch);

/* When each piece of a prompt in these slices runs on the stages of a plan (its own slices are not
 * looked at), by the exact flow. `cached` tokens precede the prompt. The last stage's latency is
 * that of the way back to the first one, which its tokens take. In the arena. HP_EINVAL: a stage
 * over several devices, no slices; HP_ENOENT: a device that the cluster or the profile does not
 * know; HP_ENOMEM. */
int predict_schedule(const struct cluster *cluster, const struct profile *p,
                     const struct plan_pipeline *plan, const int *slices, int n_slices, int cached,
                     double batch, struct arena *arena, struct pipeline_schedule *out,
                     struct err *e);

#endif
