/* What agents say of the stages that they prepare and hold: in a message of its own, with every
 * heartbeat, and when they join. */
#ifndef HP_COORDINATOR_STAGE_REPORTS_H
#define HP_COORDINATOR_STAGE_REPORTS_H

#include "coordinator/deployment.h"
#include "coordinator/verdict.h"
#include "transport/message.h"

/* An agent tells how its stage comes along. */
struct verdict stage_reports_state(struct coord *c, struct member *m,
                                   const struct message_stage_state *s);
/* One deployment against what a heartbeat of its stage's agent shows. */
struct verdict stage_reports_held(struct coord *c, struct deployment *d,
                                  struct deployment_stage *s);
/* Unloads stages that no plan has: of a deployment that is gone, or of an older generation of one
 * that serves. What does not serve has no sequences: the stages that have some still (of a
 * coordinator before this one, or of before their agent was lost) close them.
 * `is_other`: of what is no deployment (pools), which is left alone. */
void stage_reports_sweep(struct coord *c, struct member *m,
                         bool (*is_other)(const struct coord *c, uint64_t deployment));
/* The agent of some of its stages has joined (again). */
struct verdict stage_reports_joined(struct coord *c, struct deployment *d, const struct member *m);
/* Tells hpctl how the stages come along; `now`: even if it heard a moment ago. */
void stage_reports_tell(struct coord *c, struct deployment *d, bool now);

#endif
