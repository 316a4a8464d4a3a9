/* What prompts that were compared with their plan say of profiles and of single devices: a kind's
 * profile is corrected where the whole kind is off, a device's pace (paces.h) where it alone is. */
#ifndef HP_COORDINATOR_PLAN_LEARNING_H
#define HP_COORDINATOR_PLAN_LEARNING_H

#include "coordinator/deployment.h"
#include "coordinator/plan_drift.h"

enum { PLAN_LEARNING_STAGES = 64 }; /* of deployments with more nothing is learnt */

struct stage_seconds {        /* compute of one prompt */
    double planned, measured; /* of all batches that it was part of */
    double own;               /* its part of these, were all runs of a batch alike */
};

/* Whether a prompt that shared its batches, or was short, says something: by how its stages
 * compare, or where there is but one by what would be gross whoever took the batches' time. */
bool plan_learning_compares(uint32_t tokens);
/* One prompt; `stages` is [d->n_stages], at most PLAN_LEARNING_STAGES. `shared`: others were part
 * of its batches. How many profiles and paces were changed. */
uint64_t plan_learn(struct coord *c, struct deployment *d, struct plan_drift *drift,
                    const struct stage_seconds *stages, uint32_t tokens, bool shared);
/* A prompt that goes on, of what one stage has computed of it so far; `stages` is as before, of
 * others what they are known to have taken, 0 where that is nothing. A stage that is not far slower
 * than planned, or whose profile is but a guess, teaches nothing before the prompt is through. */
uint64_t plan_learn_part(struct coord *c, struct deployment *d, struct plan_drift *drift,
                         const struct stage_seconds *stages, int stage, bool shared);

#endif
