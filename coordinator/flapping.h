/* Agents that come and go: one that is lost again and again is held off for a while, and each time
 * longer. What is planned or brought back goes without it where that is possible; a
 * deployment that cannot do without it takes it at once. */
#ifndef HP_COORDINATOR_FLAPPING_H
#define HP_COORDINATOR_FLAPPING_H

#include "coordinator/deployment.h"
#include "coordinator/member.h"

enum {
    FLAPPING_TRIES = 3,          /* lost so often, it is held off */
    FLAPPING_MS = 30000,         /* held off so long; doubles six times */
    FLAPPING_FORGET_MS = 600000, /* so long after its last loss the next one counts as the first */
};

/* The agent was lost, or has lost its stages and is here again. */
void flapping_note(const struct coord *c, struct member *m);
/* Some stage of the layout lies on an agent that is held off; none is where nobody is left who
 * could be taken instead. */
bool flapping_in(struct coord *c, const struct stage_layout *layout);
/* Whether a plan for the deployment, which has served before, gives nothing to this agent. By
 * turns, as with broken links (broken_links_avoided): one that flaps is better than none. */
bool flapping_leaves_out(const struct coord *c, const struct deployment *d, const struct member *m);
/* Whether the plan that was just made went without any agent for that. */
bool flapping_left_out(const struct coord *c, const struct deployment *d);

#endif
