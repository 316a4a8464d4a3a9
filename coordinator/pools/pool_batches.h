/* The data plane of pools (PPipe, USENIX ATC 2025, section 5.4): requests wait in the scheduler of
 * planners/dispatch, which reserves devices and links for a batch of them, and go as frames to the
 * first share on their way; results come back as frames, with what was really used, which corrects
 * the reservations. */
#ifndef HP_COORDINATOR_POOLS_POOL_BATCHES_H
#define HP_COORDINATOR_POOLS_POOL_BATCHES_H

#include "coordinator/pools/pool_state.h"
#include "transport/frame.h"

/* Decides what can be decided now for all models of a plan; calls back what is dropped. */
void pool_batches_run(struct coord *c, struct pool_plan *p);
/* A frame with results of a batch. */
void pool_batches_result(struct coord *c, struct pool_plan *p, const struct frame_header *h,
                         const uint8_t *payload);
/* A share of this agent could not do its part. */
void pool_batches_failed(struct coord *c, struct pool_plan *p, const struct member *m,
                         const struct message_share_failed *f);
/* Who was to have that batch behind this agent, which could not reach it, where others could have
 * it as well; else NULL. */
const struct member *pool_batches_beyond(struct pool_plan *p, const struct member *m,
                                         const struct message_share_failed *f);
/* What is on its way through shares of this agent is sent anew where its deadline allows, else
 * answered; its shares take nothing more. */
void pool_batches_agent_lost(struct coord *c, struct pool_plan *p, const struct member *m);
/* The link over which batches went to this agent broke: those that have time left are sent anew,
 * there or elsewhere. The others may have been computed: they wait for what becomes of the agent.
 */
void pool_batches_link_broken(struct coord *c, struct pool_plan *p, const struct member *m);
/* Answers what no result came of in time. */
void pool_batches_expire(struct coord *c, struct pool_plan *p);
/* Nothing comes of this plan any more: what is under way or waits goes to the current one where
 * its deadline allows, else it is answered with why. */
void pool_batches_give_up(struct coord *c, struct pool_plan *p, const struct err *why);
/* Whether anything of it is under way or waits. */
bool pool_batches_idle(const struct pool_plan *p);

#endif
