/* Measuring a model on agents: because a deployment plans with it, and because hpctl asked
 * (`profile`: one device of each kind, or of those named; the answer is hp-profile/1). What was
 * measured is kept in both cases. */
#ifndef HP_COORDINATOR_PROFILING_H
#define HP_COORDINATOR_PROFILING_H

#include "common/digest.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"

enum { PROFILING_MAX_AGENTS = 64, PROFILING_MAX_BUDGET_S = 3600, PROFILING_GRACE_MS = 120000 };

/* One measurement that hpctl waits for. */
struct profiling_ask {
    uint64_t peer, ask; /* hpctl's */
    char model[DIGEST_HEX], name[128];
    bool f32;
    struct profiling_run {
        char agent[MEMBER_NAME], kind[DEVICE_KIND];
        int device;  /* of the agent's */
        uint64_t id; /* of the question to the agent; 0: it has answered */
        json_t *tables;
    } * runs;
    size_t n_runs, room_runs;
};

/* Arguments: "nodes" (list of names; missing: one device of each kind), "budget_s", "compute".
 * Answers `{"phase": "profile", "agent", "kind", "what", "points", ..}` as it goes on, and the
 * profile at the end. */
int profiling_start(struct coord *c, uint64_t peer, uint64_t ask, const json_t *arguments,
                    struct pack_span manifest, struct err *e);
/* Asks for the measurements that a deployment plans with, once; true while they are awaited. */
bool profiling_awaited(struct coord *c, struct deployment *d);
void profiling_result(struct coord *c, struct member *m, uint64_t id,
                      const struct message_profile_result *r);
void profiling_progress(struct coord *c, struct member *m, uint64_t id,
                        const struct message_profile_progress *p);
/* Ends those whose agents were lost or do not answer, or whose hpctl went away. */
void profiling_tick(struct coord *c);
void profiling_peer_gone(struct coord *c, uint64_t peer);
void profiling_free(struct coord *c);

#endif
