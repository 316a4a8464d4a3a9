/* The face of the core, and with dispatch.c the map of its room: which part keeps which records,
 * and who hears of a tick or of a peer that is gone. */
#include "coordinator/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/utf8.h"
#include "coordinator/admin.h"
#include "coordinator/admission.h"
#include "coordinator/api_keys.h"
#include "coordinator/asks.h"
#include "coordinator/dispatch.h"
#include "coordinator/drains.h"
#include "coordinator/effects.h"
#include "coordinator/holding.h"
#include "coordinator/invites.h"
#include "coordinator/layouts.h"
#include "coordinator/lifecycle.h"
#include "coordinator/lifecycle_ends.h"
#include "coordinator/lifecycle_members.h"
#include "coordinator/link_probes.h"
#include "coordinator/membership.h"
#include "coordinator/model_slots.h"
#include "coordinator/paces.h"
#include "coordinator/pools/pools.h"
#include "coordinator/profiles.h"
#include "coordinator/profiling.h"
#include "coordinator/rebalance.h"
#include "coordinator/rebalance_watch.h"
#include "coordinator/record.h"
#include "coordinator/sequence.h"
#include "coordinator/serving.h"
#include "coordinator/store/store_queue.h"
#include "coordinator/streams.h"
#include "coordinator/works.h"

static int restore_meta(struct coord *c, const char *key, json_t *value, struct err *e)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return err_set(e, HP_EPARSE, "the store's record meta/%s is not a number", key);
    uint64_t number = (uint64_t)json_integer_value(value);
    if (strcmp(key, "boot") == 0)
        c->boot = number;
    else if (strcmp(key, "next_deployment") == 0)
        c->next_deployment = number;
    return 0;
}

/* ---- the parts ---- */

static void members_tick(struct coord *c)
{
    char why[128];
    for (struct member *m; (m = membership_tick(c, why, sizeof why)) != NULL;) {
        lifecycle_member_lost(c, m, why);
        pools_member_lost(c, m);
    }
}

/* One row a part, in the order in which they hear of things; what is restored later may refer to
 * what is restored before. A row for each kind of record (store.h) but `model` and `stream`, whose
 * records are bytes (record_read). */
static const struct core_part {
    const char *kind; /* of its records, which are JSON; NULL: it keeps none */
    int (*restore)(struct coord *c, const char *key, json_t *value, struct err *e);
    void (*tick)(struct coord *c);
    void (*peer_gone)(struct coord *c, uint64_t peer);
    void (*free)(struct coord *c);
} parts[] = {
    {"meta", restore_meta, NULL, NULL, NULL},
    {"agent", member_restore, members_tick, NULL, NULL},
    {NULL, NULL, NULL, asks_peer_gone, asks_free},
    {NULL, NULL, profiling_tick, profiling_peer_gone, profiling_free},
    {NULL, NULL, admin_tick, NULL, NULL},
    {"token", invites_restore, NULL, NULL, invites_free},
    {"key", api_keys_restore, api_keys_tick, NULL, api_keys_free},
    {"key_use", api_keys_restore_use, NULL, NULL, NULL},
    {"link", links_restore, link_probes_tick, link_probes_peer_gone, link_probes_free},
    {"profile", profiles_restore, NULL, NULL, profiles_free},
    {"layout", layouts_restore, NULL, NULL, layouts_free},
    {"deployment", record_restore, NULL, admission_peer_gone, NULL},
    {NULL, NULL, NULL, lifecycle_peer_gone, NULL},
    {NULL, NULL, NULL, NULL, streams_free},
    {NULL, NULL, NULL, drains_peer_gone, NULL},
    {"network_profile", pools_profile_restore, NULL, NULL, NULL},
    {"pools", pools_restore, pools_tick, pools_peer_gone, pools_free},
    {NULL, NULL, paces_tick, NULL, NULL},
    {NULL, NULL, rebalances_tick, rebalances_peer_gone, NULL},
    {NULL, NULL, NULL, membership_peer_gone, members_free},
    {NULL, NULL, NULL, NULL, model_slots_free},
    {NULL, NULL, NULL, NULL, holding_free},
    {NULL, NULL, NULL, NULL, effects_free},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

const char *const coord_kinds[] = {"meta",   "agent",           "token",  "key",   "key_use",
                                   "link",   "profile",         "layout", "model", "deployment",
                                   "stream", "network_profile", "pools",  NULL};

/* ---- life ---- */

int coord_create(const struct coord_config *config, struct coord **out, struct err *e)
{
    struct coord *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, HP_ENOMEM, "no memory for the coordinator");
    c->config = *config;
    c->env = config->env;
    utf8_copy(c->cluster, sizeof c->cluster, config->cluster);
    utf8_copy(c->version, sizeof c->version, config->version);
    utf8_copy(c->public_key, sizeof c->public_key, config->public_key);
    utf8_copy(c->admin_key, sizeof c->admin_key, config->admin_key);
    utf8_copy(c->http, sizeof c->http, config->http ? config->http : "");
    if (!c->config.max_sequences)
        c->config.max_sequences = 8;
    if (!c->config.profile_ms)
        c->config.profile_ms = COORD_PROFILE_MS;
    c->started_ns = c->woke_ns = c->now_ns = coord_clock(c);
    c->next_deployment = c->next_request = 1;
    *out = c;
    return 0;
}

void coord_destroy(struct coord **core)
{
    struct coord *c = *core;
    if (!c)
        return;
    lifecycle_free(c);
    works_drop(c);
    for (int k = 0; k < 2; k++)
        sequences_free(&c->batches[k].ended);
    for (int i = 0; i < N_PARTS; i++)
        if (parts[i].free)
            parts[i].free(c);
    free(c);
    *core = NULL;
}

/* The clock's number: seconds pass faster than coordinators start. Counted from a day after which
 * they leave sequence numbers 63 bits until 2092; where a number of all seconds was given
 * (record_put_aside), on from there. 0: the clock says nothing. */
static uint64_t boot_of_clock(const struct coord *c)
{
    const uint64_t begin_s = 1704067200; /* 2024-01-01 */
    uint64_t unix_s = c->config.unix_s, since = unix_s > begin_s ? unix_s - begin_s : 0;
    if (since == 0 || since > INT32_MAX)
        return 0;
    uint64_t number = c->boot < begin_s ? since : unix_s;
    return number <= INT32_MAX ? number : 0;
}

/* Above every number that was given before, also where the store has an older state than it had (a
 * backup was put back, or a full disk kept the last ones). */
uint64_t coord_boot_next(const struct coord *c)
{
    uint64_t of_clock = boot_of_clock(c);
    return of_clock > c->boot ? of_clock : c->boot + 1;
}

uint64_t coord_boot_ahead_s(const struct coord *c)
{
    uint64_t of_clock = boot_of_clock(c);
    return of_clock ? coord_boot_next(c) - of_clock : UINT64_MAX;
}

/* The boot number makes the sequence numbers of this run greater than any given before, and tells
 * agents to report what they hold. A count that is not stored would be the same once more. */
void coord_start(struct coord *c, bool boot_is_stored)
{
    bool comes_again = !boot_is_stored && coord_boot_ahead_s(c) > COORD_BOOT_AHEAD_S;
    c->boot = coord_boot_next(c);
    if (comes_again && c->boot < c->config.unix_s)
        c->boot = c->config.unix_s;
    effects_store_json(c, "meta", "boot", json_integer((json_int_t)c->boot));
    c->running = true;
    for (size_t i = 0; i < c->n_deployments; i++)
        c->deployments[i]->next_sequence = c->boot << 32 | 1;
    log_info("coordinator", "started", "cluster=%s boot=%llu agents=%zu deployments=%zu",
             c->cluster, (unsigned long long)c->boot, c->n_members, c->n_deployments);
}

/* Whatever has happened: everybody goes on as far as they can. */
static void coord_advance(struct coord *c)
{
    drains_advance(c);
    lifecycle_advance(c);
}

/* ---- pools ---- */

void coord_pool_requests(struct coord *c, struct pool_requests *out)
{
    pools_requests(c, out);
}

int64_t coord_pools_run(struct coord *c)
{
    return pools_run(c);
}

void coord_frame_in(struct coord *c, const struct frame_header *h, const uint8_t *payload)
{
    coord_woke(c);
    pools_frame(c, h, payload);
}

void coord_frame_lost(struct coord *c, const struct frame_header *h)
{
    coord_woke(c);
    pools_frame_lost(c, h);
}

void coord_link_broken(struct coord *c, const uint8_t *address, size_t size)
{
    coord_woke(c);
    pools_link_broken(c, address, size);
}

int coord_pool_sessions(const struct coord *c, uint64_t *out, int max)
{
    return pools_sessions(c, out, max);
}

size_t coord_member_keys(const struct coord *c, uint8_t (*out)[KEY_BYTES], size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_members && n < max; i++)
        n += key_decode(c->members[i]->key, out[n], NULL) == 0;
    return n;
}

/* ---- the store's records ---- */

static int record_read(struct coord *c, const char *kind, const char *key, const void *bytes,
                       size_t size, struct err *e)
{
    if (strcmp(kind, "model") == 0)
        return model_slots_restore(c, (struct pack_span){bytes, size}, e);
    if (strcmp(kind, "stream") == 0)
        return streams_restore(c, key, (struct pack_span){bytes, size}, e);
    json_error_t why = {0};
    json_t *value = json_loadb(bytes, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    if (!value)
        return err_set(e, HP_EPARSE, "the store's record %s/%s is not JSON: %s", kind, key,
                       why.text);
    int rc = 0; /* of a newer version: kept, not understood */
    for (int i = 0; i < N_PARTS; i++)
        if (parts[i].kind && strcmp(parts[i].kind, kind) == 0)
            rc = parts[i].restore(c, key, value, e);
    json_decref(value);
    return rc;
}

/* What cannot be read: of a cache it is dropped, of all else put aside, so that the coordinator
 * starts and nothing is lost that somebody could mend. */
static void record_put_aside(struct coord *c, const char *kind, const char *key, const void *bytes,
                             size_t size, const struct err *why)
{
    bool cache = store_kind_is_cache(kind);
    char name[STORE_MAX_KEY_BYTES];
    log_warn("coordinator", cache ? "record_dropped" : "record_put_aside",
             "record=\"%s/%s\" why=\"%s\"", kind, key, why->text);
    snprintf(name, sizeof name, "%s/%s", kind, key);
    if (!cache)
        effects_store_bytes(c, "bad", name, bytes, size);
    effects_forget(c, kind, key);
    /* No number of sequences may come back: the time is above every count of starts. */
    if (strcmp(name, "meta/boot") == 0)
        c->boot = c->config.unix_s;
}

int coord_restore(struct coord *c, const char *kind, const char *key, const void *bytes,
                  size_t size, struct err *e)
{
    struct err why = {0};
    int rc = record_read(c, kind, key, bytes, size, &why);
    if (rc == HP_ENOMEM) {
        *e = why;
        return rc;
    }
    if (rc < 0)
        record_put_aside(c, kind, key, bytes, size, &why);
    return 0;
}

/* ---- events ---- */

bool coord_knows_key(struct coord *c, const char *key)
{
    return dispatch_knows(c, key);
}

void coord_message(struct coord *c, uint64_t peer, const char *key, const uint8_t *bytes,
                   size_t size)
{
    /* Texts and rows are no larger than what they were on the wire, but for rows of zeros. */
    struct arena *arena = &c->decoded;
    struct message msg = {0};
    struct err e = {0};
    coord_woke(c);
    arena->limit_bytes = 2 * size + MESSAGE_STRANGER_MAX_BYTES;
    if (dispatch_read(c, key, bytes, size, arena, &msg, &e) < 0) {
        log_warn_limited("coordinator", "message_refused", "key=%.8s bytes=%zu why=\"%s\"", key,
                         size, e.text);
        effects_refuse(c, peer, msg.id, &e);
    } else {
        dispatch_message(c, peer, key, &msg);
        coord_advance(c);
    }
    arena_reset(arena);
}

void coord_peer_gone(struct coord *c, uint64_t peer)
{
    coord_woke(c);
    for (int i = 0; i < N_PARTS; i++)
        if (parts[i].peer_gone)
            parts[i].peer_gone(c, peer);
    coord_advance(c);
}

void coord_tick(struct coord *c)
{
    coord_woke(c);
    for (int i = 0; i < N_PARTS; i++)
        if (parts[i].tick)
            parts[i].tick(c);
    coord_advance(c);
}

void coord_model_opened(struct coord *c, const char *model_id, const struct model_facts *facts,
                        const struct err *why)
{
    coord_woke(c);
    if (!model_slots_opened(c, model_id, facts, why))
        return;
    coord_advance(c);
    model_slots_sweep(c);
}

void coord_worked(struct coord *c, struct coord_work *w)
{
    coord_woke(c);
    if (works_end(c, w))
        model_slots_sweep(c);
    coord_advance(c);
}

void coord_stored(struct coord *c, uint64_t number, const struct err *why)
{
    coord_woke(c);
    if (holding_stored(c, number, why))
        coord_advance(c);
}

void coord_stopping(struct coord *c)
{
    coord_woke(c);
    api_keys_store_use(c);
}

void coord_works_cancel(struct coord *c)
{
    works_cancel(c);
}

void coord_requests(struct coord *c, struct requests *out)
{
    serving_requests(c, out);
}

/* ---- what is to be done ---- */

const struct coord_action *coord_take(struct coord *c, size_t *count)
{
    struct sequence *ended;
    struct effects_batch *b = effects_turn(c, &ended);
    sequences_free(&ended);
    holding_take(c, b);
    return effects_hand_over(b, count);
}

void coord_action_call_back(const struct coord_action *a)
{
    effects_call_back(a);
}

struct coord_view coord_view(const struct coord *c)
{
    struct coord_view v = {
        .members = (uint32_t)c->n_members,
        .deployments = (uint32_t)c->n_deployments,
        .boot = c->boot,
        .refused = c->counts.refused,
        .sequences_opened = c->counts.opened,
        .sequences_finished = c->counts.finished,
        .sequences_failed = c->counts.failed,
        .sequences_adopted = c->counts.adopted,
    };
    for (size_t i = 0; i < c->n_members; i++)
        v.members_ready += c->members[i]->state == MEMBER_READY;
    for (size_t i = 0; i < c->n_deployments; i++) {
        v.deployments_serving += deployment_serves(c->deployments[i]);
        v.sequences_active += c->deployments[i]->n_active;
        v.sequences_waiting += c->deployments[i]->n_waiting;
    }
    return v;
}
