/* How a deployment loses its place, or ends: what runs on it, waits for it, follows it or keeps its
 * copies is told, passed on, or ends with it. */
#ifndef HP_COORDINATOR_LIFECYCLE_ENDS_H
#define HP_COORDINATOR_LIFECYCLE_ENDS_H

#include "coordinator/deployment.h"
#include "coordinator/verdict.h"

/* Acts on what a handler found. */
void lifecycle_judge(struct coord *c, const struct verdict *v);
/* The deployment cannot go on as it is: its sequences are lost where they are, and it is planned
 * anew. */
void lifecycle_break(struct coord *c, struct deployment *d, const struct err *why);
/* This attempt to prepare it failed: it is tried again later, or ends where nobody waits for that.
 */
void lifecycle_fail(struct coord *c, struct deployment *d, const struct err *why);
/* Answers go to (peer, ask) when its agents have unloaded. */
void lifecycle_undeploy(struct coord *c, struct deployment *d, uint64_t peer, uint64_t ask);

/* ---- for the steps (lifecycle.c) ---- */

/* Another state; nobody waits any more for a plan that was asked for in the one before. */
void lifecycle_move(struct coord *c, struct deployment *d, int to);
/* What it has fails, its agents unload, and it is STOPPING until they have. */
void lifecycle_stop(struct coord *c, struct deployment *d, const struct err *why);
/* What waits here goes to the heir, which counts what was lost here when that goes on. */
void lifecycle_queue_pass_on(struct coord *c, struct deployment *d, struct deployment *heir);
/* What runs here, or waits to, goes on where the heir is, or will be; `d` stops. */
void lifecycle_pass_on(struct coord *c, struct deployment *d, struct deployment *heir,
                       const struct err *why);
/* Copies take no room that a stage needs. `beside`: all that share an agent with its stages, since
 * one of these found less memory than was planned with. True: some have gone. */
bool keepers_yield(struct coord *c, const struct deployment *to, bool beside);
/* All parts let go of one that has stopped, and it is freed. */
void lifecycle_end(struct coord *c, struct deployment *d);
/* With the core: all of them. */
void lifecycle_free(struct coord *c);

#endif
