/* Measurements of networks on agents: every kind of device that is there, or the agents that are
 * named, gets the network and measures it beside no other work. Whoever asked hears how it goes,
 * and may leave, which ends it; what was measured is kept (pool_profiles.h). */
#ifndef HP_COORDINATOR_POOLS_POOL_MEASURING_H
#define HP_COORDINATOR_POOLS_POOL_MEASURING_H

#include "coordinator/pools/pool_state.h"

enum { POOL_MEASURE_BUDGET_S = 20, POOL_MEASURE_MAX_BUDGET_S = 3600 };

/* What is to be measured, of a document: {"network": {"name", "manifest" (hex), "source_path",
 * "dims"}, "source_machine", "upload_only", "agents": [..] (missing: all), "every": each device of
 * them and not one of each kind, "any": those of "agents" that do
 * something else are left out, "known": kinds that need not be measured, "batches": [],
 * "shares": [], "budget_s", "blocks", "bounds": [0, ..] of blocks that it is to have}. */
struct pool_measuring_ask {
    uint64_t peer, ask; /* hpctl's */
    json_t *document;   /* taken, also on failure */
    /* The end, once: hp-profile/1 of blocks with "failed" ([{"agent", "kind", "code", "message"}])
     * of what could not be measured, the callee's to release; NULL: nothing could, and why. `then`
     * becomes the callee's; it is released where the end is not told. */
    void (*done)(struct coord *c, const struct pool_measuring_ask *ask, json_t *profile,
                 const struct err *why);
    json_t *then;
    bool dry;
};

/* HP_EPARSE, HP_ENOENT (an agent), HP_EBUSY: who could measure serves, or measures already;
 * HP_ENOMEM. On failure `done` is not told. */
int pool_measuring_begin(struct coord *c, const struct pool_measuring_ask *ask, struct err *e);

/* False: it is about none of them. */
bool pool_measuring_state(struct coord *c, const struct member *m,
                          const struct message_stage_state *t);
bool pool_measuring_result(struct coord *c, const struct member *m, uint64_t id,
                           const struct message_profile_result *r);
bool pool_measuring_progress(struct coord *c, const struct member *m, uint64_t id,
                             const struct message_profile_progress *g);
bool pool_measuring_has(const struct coord *c, uint64_t deployment);
void pool_measuring_member_lost(struct coord *c, const struct member *m);
void pool_measuring_peer_gone(struct coord *c, uint64_t peer);
void pool_measuring_tick(struct coord *c);
void pool_measuring_free(struct coord *c);

#endif
