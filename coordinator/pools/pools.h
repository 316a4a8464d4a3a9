/* Pools of devices that serve models of fixed shape under deadlines: the face of the room. A
 * workload is applied, planned on the agents that are there, made ready share by share, and served;
 * whenever the agents or the workload change, the next plan is made ready beside the one that
 * serves, takes over, and the old one ends once what it had admitted is answered (PPipe, USENIX ATC
 * 2025, section 5). */
#ifndef HP_COORDINATOR_POOLS_POOLS_H
#define HP_COORDINATOR_POOLS_POOLS_H

#include "coordinator/pools/pool_requests.h"
#include "coordinator/requests.h"
#include "coordinator/state.h"
#include "transport/message.h"

struct member;

/* ---- what hpctl asks ---- */

/* Reads, keeps and begins; takes `document`. Who asked hears how it goes, and at the end what
 * pools_describe says. `dry`: only the plan is made, and answered beside the one that serves. What
 * has no profile is measured first, where that was not done before. */
int pools_apply(struct coord *c, uint64_t peer, uint64_t ask, json_t *document, bool dry,
                struct err *e);
/* The plan that the load of late would have, answered beside the one that serves. HP_ENOENT:
 * nothing is applied or asked. */
int pools_load_diff(struct coord *c, uint64_t peer, uint64_t ask, struct err *e);
/* Measures a network (pool_measuring.h); takes `document`. Who asked hears how it goes, and at the
 * end the profile. */
int pools_measure(struct coord *c, uint64_t peer, uint64_t ask, json_t *document, struct err *e);
/* What was measured of networks: rows as `profile ls` has them are appended; and forgets (as
 * profiles_remove): returns how many. */
void pools_profiles_describe(const struct coord *c, json_t *rows);
int pools_profiles_remove(struct coord *c, const char *model, const char *kind);
/* Ends it all. HP_ENOENT: nothing is applied. */
int pools_remove(struct coord *c, struct err *e);
/* {"state", "models": [..], "plan", ...}; {"state": "none"}. NULL: no memory. */
json_t *pools_describe(struct coord *c);
/* Every figure of models and shares, as metrics.h. */
void pools_metrics(const struct coord *c, metrics_row_fn row, void *out);

/* ---- what a gateway asks ---- */

void pools_requests(struct coord *c, struct pool_requests *out);

/* ---- what happens ---- */

int pools_restore(struct coord *c, const char *key, json_t *value, struct err *e);
int pools_profile_restore(struct coord *c, const char *key, json_t *value, struct err *e);
void pools_tick(struct coord *c);
/* Sends what is due; gives the time of env's clock at which it wants to be called again
 * (INT64_MAX: when something happens). */
int64_t pools_run(struct coord *c);
/* FRAME_TENSORS that came back. */
void pools_frame(struct coord *c, const struct frame_header *h, const uint8_t *payload);
/* One that was to go out did not. */
void pools_frame_lost(struct coord *c, const struct frame_header *h);
/* The link to whoever has this data address broke. */
void pools_link_broken(struct coord *c, const uint8_t *address, size_t size);
/* False: it is of no plan of pools. */
bool pools_stage_state(struct coord *c, const struct member *m,
                       const struct message_stage_state *s);
/* Of a network that is measured; false: it is not. */
bool pools_profile_result(struct coord *c, const struct member *m, uint64_t id,
                          const struct message_profile_result *r);
bool pools_profile_progress(struct coord *c, const struct member *m, uint64_t id,
                            const struct message_profile_progress *g);
void pools_share_failed(struct coord *c, const struct member *m,
                        const struct message_share_failed *f);
void pools_member_lost(struct coord *c, const struct member *m);
void pools_peer_gone(struct coord *c, uint64_t peer);
/* Whether a plan of pools has this number. */
bool pools_has(const struct coord *c, uint64_t deployment);
/* The sessions of frames that come to the coordinator, for its data endpoint: up to `max`. */
int pools_sessions(const struct coord *c, uint64_t *out, int max);
void pools_free(struct coord *c);

#endif
