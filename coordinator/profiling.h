/* `profile`: hpctl asks for the measured costs of a model on the cluster's devices; agents measure,
 * one of each kind or those named, and the answer is hp-profile/1. What they measured is kept too,
 * so that deployments of this model plan with it. */
#ifndef HP_COORDINATOR_PROFILING_H
#define HP_COORDINATOR_PROFILING_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "coordinator/members.h"

struct core;
struct member;

enum { PROFILING_MAX_AGENTS = 64, PROFILING_MAX_BUDGET_S = 3600, PROFILING_GRACE_MS = 120000 };

/* One measurement that hpctl waits for. */
struct profiling {
    uint64_t peer, ask; /* hpctl's */
    char model[DIGEST_HEX], name[128];
    bool f32;
    struct profiling_run {
        char agent[MEMBER_NAME], kind[64];
        uint64_t id; /* of the relay; 0: it has answered */
        json_t *tables;
    } * runs;
    size_t n_runs;
};

/* Arguments: "nodes" (list of names; missing: one agent of each kind), "budget_s", "compute".
 * Answers `{"phase": "profile", "agent", "kind", "what", "points", ..}` as it goes on, and the
 * profile at the end. */
int profiling_start(struct core *c, uint64_t peer, uint64_t ask, const json_t *arguments,
                    struct pack_span manifest, struct err *e);
/* True when the result was one that was asked for here. */
bool profiling_result(struct core *c, struct member *m, uint64_t id,
                      const struct message_profile_result *r);
void profiling_progress(struct core *c, struct member *m, uint64_t id,
                        const struct message_profile_progress *p);
/* Ends those whose agents were lost or do not answer, or whose hpctl went away (peer; 0: none did).
 */
void profiling_tick(struct core *c);
void profiling_peer_gone(struct core *c, uint64_t peer);
void profiling_free(struct profiling *p);

#endif
