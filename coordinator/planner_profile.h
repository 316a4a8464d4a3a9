/* What a deployment's model costs on every kind of device that a member has: as measured, else
 * guessed. */
#ifndef HP_COORDINATOR_PLANNER_PROFILE_H
#define HP_COORDINATOR_PLANNER_PROFILE_H

#include "common/profile.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"

/* Its texts and tables are copies. HP_ENOMEM. */
int planner_profile_make(const struct coord *c, const struct deployment *d, struct profile *out,
                         struct err *e);
/* Bytes that a layer's weights take once loaded: as a backend measured, or else by the number
 * format that it computes in. */
double planner_resident_bytes(const struct coord *c, const struct deployment *d, int layer);
/* What the kernels of a member's device take for a batch, beyond the model's
 * workspace_bytes_per_token of its tokens, as its backend told; 0 where nobody did. */
double planner_scratch_bytes(const struct coord *c, const struct deployment *d,
                             const struct member *m, int device, double tokens);
/* KV cache of one token of one of the deployment's sequences. */
double planner_state_bytes_per_token(const struct coord *c, const struct deployment *d, int layer);
/* Sequences of the profile that one of the deployment's stands for: 1, but for paced agents, whose
 * profile is of another model at some batch. */
double planner_stands_for(const struct coord *c, const struct deployment *d);
/* Multiplies the times of the model on the kind of device that a stage is on, guesses included, and
 * keeps them as if they had been measured so. HP_ENOMEM. */
int planner_profile_correct(struct coord *c, const struct deployment *d,
                            const struct deployment_stage *s, double factor, struct err *e);

#endif
