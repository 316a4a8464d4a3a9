/* Plans over the parts of a mixture's blocks: with its experts in groups, each of which is a layer
 * of its own. */
#ifndef HP_HPCTL_PLAN_EXPERTS_H
#define HP_HPCTL_PLAN_EXPERTS_H

#include "common/profile.h"
#include "planners/pipeline/pipeline.h"

/* The profile becomes that of the parts; `groups` 0 or 1: it stays. HP_EINVAL: it has no mixtures
 * with so many experts, or does not say. */
int plan_experts_divide(struct profile *p, unsigned groups, struct err *e);
/* Where there is no plan, experts in 2, 4, 8 and at most 16 groups are tried, as the coordinator
 * does; *p, which is rq's profile, is that of the plan's parts then, and *groups how many; else 0.
 */
int plan_experts_make(const struct pipeline_request *rq, struct profile *p, struct arena *arena,
                      struct pipeline_answer *out, unsigned *groups, struct err *e);

#endif
