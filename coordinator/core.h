/* The coordinator's core: events in, actions out. It decides who is a member, where the stages of a
 * deployment go, which sequence runs, and what hpctl is answered. It owns no socket, file, thread
 * or clock: the shell (coordinator.c), or a test that steps a whole cluster under virtual time,
 * feeds it events and does what the actions say. docs/protocol.md says who tells whom what.
 *
 *     coord_create(&config, &core, e);
 *     coord_restore(core, kind, key, ...);       for every record of the store
 *     coord_start(core, boot_is_stored);
 *     coord_message(...), coord_worked(...), coord_tick(...), what coord_requests gives, and so on
 *                                                for everything that happens
 *     actions = coord_take(core, &n);            after each of these, until n is 0
 *
 * All COORD_STORE changes of one coord_take are one batch: written in one step, in the order of
 * their numbers, whenever the disk is ready; coord_stored tells. What depends on a batch (answers,
 * orders) comes out of coord_take when that batch is written, so that nothing is acknowledged that
 * a restart forgets; tokens pass. Where the store cannot be written the core refuses changes by
 * name and serves on.
 *
 * One thread. What an event points at is used during the call only. Time is env's, less the
 * coordinator's own pauses: where it did not run for longer than COORD_PAUSE_MS (stopped,
 * suspended, a slow disk) no deadline passed meanwhile and nobody was silent. Wall-clock seconds
 * are counted from `unix_s`. */
#ifndef HP_COORDINATOR_CORE_H
#define HP_COORDINATOR_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "coordinator/action.h"
#include "coordinator/config.h"
#include "coordinator/limits.h"
#include "coordinator/model_facts.h"
#include "coordinator/pools/pool_requests.h"
#include "coordinator/requests.h"
#include "coordinator/work.h"
#include "transport/keys.h"

struct coord;

/* `config` is copied. HP_ENOMEM. */
int coord_create(const struct coord_config *config, struct coord **out, struct err *e);
/* No work may run any more. */
void coord_destroy(struct coord **core);

/* A record that the store holds, before coord_start. One that cannot be read is named in the log;
 * of a cache (store_kind_is_cache) it is dropped, else kept as record "bad" KIND/KEY. HP_ENOMEM.
 * Kinds come in the order of coord_kinds, the records of one kind in any. */
int coord_restore(struct coord *core, const char *kind, const char *key, const void *bytes,
                  size_t size, struct err *e);
/* The names of the kinds, those that others refer to before them; NULL at the end. */
extern const char *const coord_kinds[];
/* `boot_is_stored`: the record meta/boot holds the number that coord_boot_next told, durably. Where
 * it cannot be stored (a full disk) another run might take the same number, unless the clock's is
 * above it by then: a run waits for that before it starts, where it is at most COORD_BOOT_AHEAD_S
 * away. Else its number is the time at which it was created, which is above every count of starts.
 */
enum { COORD_BOOT_AHEAD_S = 3 };
uint64_t coord_boot_next(const struct coord *core);
/* Seconds by which that number is above the clock's; UINT64_MAX: the clock says nothing. */
uint64_t coord_boot_ahead_s(const struct coord *core);
void coord_start(struct coord *core, bool boot_is_stored);

/* A message, still encoded; `key` is the sender's proven public key. */
void coord_message(struct coord *core, uint64_t peer, const char *key, const uint8_t *bytes,
                   size_t size);
/* Whether this key is an agent's or the admin's. */
bool coord_knows_key(struct coord *core, const char *key);
/* A peer's connection is gone, as far as one can tell (a COORD_SEND found nobody). What it asked
 * for is dropped; an agent is suspect. */
void coord_peer_gone(struct coord *core, uint64_t peer);
/* The answer to COORD_MODEL_OPEN: facts (copied), or NULL and why. */
void coord_model_opened(struct coord *core, const char *model_id, const struct model_facts *facts,
                        const struct err *why);
/* The answer to COORD_WORK: its `run` has ended, on whatever thread. */
void coord_worked(struct coord *core, struct coord_work *w);
/* The answer to COORD_STORE: all batches up to `number` are written, or that one could not be: why
 * (the shell tries again, and tells again). */
void coord_stored(struct coord *core, uint64_t number, const struct err *why);
/* The coordinator is about to stop: what is otherwise stored every now and then is stored now. */
void coord_stopping(struct coord *core);
/* Asks all work that is out to end early: before whoever owns the threads waits for them. */
void coord_works_cancel(struct coord *core);
/* Time has passed. Call every COORD_TICK_MS or sooner. */
void coord_tick(struct coord *core);
/* What the wall clock says. The core's own follows it forward (a box that slept, a clock that was
 * set) and never back: what has expired stays so. Deadlines are not concerned. */
void coord_wall_clock(struct coord *core, uint64_t unix_s);

/* ---- requests.h over this core: the shell hands this table to its gateway; coord_config.wake says
 * that there are actions to take ---- */

void coord_requests(struct coord *core, struct requests *out);

/* ---- pools (pools/pools.h) ---- */

void coord_pool_requests(struct coord *core, struct pool_requests *out);
/* Sends what is due, and gives the time of env's clock, in ns, at which it wants to be called again
 * (INT64_MAX: after the next event). Call after every event. */
int64_t coord_pools_run(struct coord *core);
/* A frame came to the coordinator's data endpoint. */
void coord_frame_in(struct coord *core, const struct frame_header *h, const uint8_t *payload);
/* A frame of COORD_FRAME did not leave, or its link broke before it had. */
void coord_frame_lost(struct coord *core, const struct frame_header *h);
/* The link to whoever has this data address broke: frames that had left may not have come. */
void coord_link_broken(struct coord *core, const uint8_t *address, size_t size);
/* The sessions that frames may come with, and the keys of those who may send them: up to `max`;
 * returns how many. */
int coord_pool_sessions(const struct coord *core, uint64_t *out, int max);
size_t coord_member_keys(const struct coord *core, uint8_t (*out)[KEY_BYTES], size_t max);

/* ---- actions ---- */

/* Hands over what is to be done, in order; valid until the next coord_take. Events may come in
 * while it is worked on. */
const struct coord_action *coord_take(struct coord *core, size_t *count);
/* Does the callback of a TOKENS, FINISHED or FAILED action, unless its request has been cancelled
 * meanwhile. */
void coord_action_call_back(const struct coord_action *a);

/* For tests and logs. */
struct coord_view {
    uint32_t members, members_ready, deployments, deployments_serving, sequences_active,
        sequences_waiting;
    uint64_t boot, refused, sequences_opened, sequences_finished, sequences_failed,
        sequences_adopted;
};
struct coord_view coord_view(const struct coord *core);

#endif
