/* The face of the core: what comes in goes to whom it concerns; models, profiles and keys that the
 * parts share. */
#include "coordinator/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/log.h"
#include "common/manifest.h"
#include "common/utf8.h"
#include "coordinator/admin.h"
#include "coordinator/core_int.h"
#include "coordinator/drain.h"
#include "coordinator/figures.h"
#include "coordinator/shares.h"
#include "coordinator/store/store_queue.h"
#include "coordinator/truth.h"
#include "transport/control.h"

const char *const core_kinds[] = {"meta",    "agent",  "token", "key",        "link",
                                  "profile", "layout", "model", "deployment", NULL};

const struct request_sampling request_sampling_greedy = {.top_p = 1, .repetition_penalty = 1};

/* ---- life
 * -----------------------------------------------------------------------------------------------------
 */

int core_create(const struct core_config *config, struct core **out, struct err *e)
{
    struct core *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, HP_ENOMEM, "no memory for the coordinator");
    c->config = *config;
    c->env = config->env;
    core_text_set(c->cluster, sizeof c->cluster, config->cluster);
    core_text_set(c->version, sizeof c->version, config->version);
    core_text_set(c->public_key, sizeof c->public_key, config->public_key);
    core_text_set(c->admin_key, sizeof c->admin_key, config->admin_key);
    core_text_set(c->http, sizeof c->http, config->http ? config->http : "");
    if (!c->config.max_sequences)
        c->config.max_sequences = 8;
    if (!c->config.profile_ms)
        c->config.profile_ms = CORE_PROFILE_MS;
    c->started_ns = c->woke_ns = c->now_ns = core_clock(c);
    c->next_deployment = c->next_request = 1;
    *out = c;
    return 0;
}

static void core_model_free(struct core_model_slot *m)
{
    arena_free(&m->arena);
    free(m->manifest);
    free(m);
}

void core_destroy(struct core **core)
{
    struct core *c = *core;
    if (!c)
        return;
    for (size_t i = 0; i < c->n_deployments; i++)
        deployment_free(c->deployments[i]);
    core_works_drop(c); /* nobody waits for it any more */
    for (size_t i = 0; i < c->n_members; i++)
        member_free(c->members[i]);
    for (size_t i = 0; i < c->n_models; i++)
        core_model_free(c->models[i]);
    for (int k = 0; k < 2; k++) {
        free(c->batches[k].actions);
        free(c->batches[k].at);
        sequences_free(&c->batches[k].ended);
        buffer_free(&c->batches[k].bytes);
        arena_free(&c->batches[k].arena);
    }
    free(c->deployments);
    free(c->members);
    free(c->models);
    profiles_free(c);
    free(c->invites);
    free(c->api_keys);
    for (size_t i = 0; i < c->n_profilings; i++)
        profiling_free(&c->profilings[i]);
    free(c->profilings);
    free(c->relays);
    free(c->links_asks);
    core_holding_free(c);
    arena_free(&c->decoded);
    buffer_free(&c->encoded);
    layouts_free(c);
    free(c);
    *core = NULL;
}

/* A gap that is no more than a busy moment is time that has passed; a longer one is a pause of ours
 * and counts for nobody. */
void core_woke(struct core *c)
{
    uint64_t now = core_clock(c), gap = now - c->woke_ns;
    if (gap > core_ms(CORE_PAUSE_MS)) {
        log_warn("coordinator", "paused", "seconds=%.1f", (double)gap * 1e-9);
        c->counts.pauses++;
        gap = core_ms(CORE_TICK_MS);
    }
    c->woke_ns = now;
    c->now_ns += gap;
}

void core_start(struct core *c)
{
    /* The boot number makes the sequence numbers of this run greater than any given before, and
     * tells agents to report what they hold. */
    c->boot++;
    core_keep_json(c, "meta", "boot", json_integer((json_int_t)c->boot));
    c->running = true;
    for (size_t i = 0; i < c->n_deployments; i++)
        c->deployments[i]->next_sequence = c->boot << 32 | 1;
    log_info("coordinator", "started", "cluster=%s boot=%llu agents=%zu deployments=%zu",
             c->cluster, (unsigned long long)c->boot, c->n_members, c->n_deployments);
}

uint64_t core_unix_s(const struct core *c)
{
    return c->config.unix_s + (core_clock(c) - c->started_ns) / 1000000000u;
}

/* ---- the store's records
 * -------------------------------------------------------------------------------------- */

static int restore_meta(struct core *c, const char *key, const json_t *value, struct err *e)
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

static int restore_api_key(struct core *c, const char *digest, const json_t *value, struct err *e)
{
    struct core_api_key *k = core_array_add(&c->api_keys, &c->n_api_keys, sizeof *k);
    if (!k)
        return err_set(e, HP_ENOMEM, "no memory for API keys");
    core_text_set(k->digest, sizeof k->digest, digest);
    core_text_set(k->name, sizeof k->name, json_string_value(json_object_get(value, "name")));
    k->created_s = (uint64_t)json_integer_value(json_object_get(value, "created_s"));
    return 0;
}

static int restore_json(struct core *c, const char *kind, const char *key, json_t *value,
                        struct err *e)
{
    if (strcmp(kind, "meta") == 0)
        return restore_meta(c, key, value, e);
    if (strcmp(kind, "agent") == 0)
        return members_restore_agent(c, key, value, e);
    if (strcmp(kind, "link") == 0)
        return links_restore(c, key, value, e);
    if (strcmp(kind, "layout") == 0)
        return layouts_restore(c, key, value, e);
    if (strcmp(kind, "token") == 0)
        return members_restore_invite(c, key, value, e);
    if (strcmp(kind, "key") == 0)
        return restore_api_key(c, key, value, e);
    if (strcmp(kind, "profile") == 0)
        return profiles_restore(c, key, value, e);
    if (strcmp(kind, "deployment") == 0)
        return deployments_restore(c, key, value, e);
    return 0; /* of a newer version: kept, not understood */
}

static int restore_record(struct core *c, const char *kind, const char *key, const void *bytes,
                          size_t size, struct err *e)
{
    if (strcmp(kind, "model") == 0) {
        struct core_model_slot *slot;
        return core_model_use(c, (struct pack_span){bytes, size}, &slot, e);
    }
    json_error_t why = {0};
    json_t *value = json_loadb(bytes, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    if (!value)
        return err_set(e, HP_EPARSE, "the store's record %s/%s is not JSON: %s", kind, key,
                       why.text);
    int rc = restore_json(c, kind, key, value, e);
    json_decref(value);
    return rc;
}

/* What cannot be read: of a cache it is dropped, of all else put aside, so that the coordinator
 * starts and nothing is lost that somebody could mend. */
static void record_put_aside(struct core *c, const char *kind, const char *key, const void *bytes,
                             size_t size, const struct err *why)
{
    bool cache = store_kind_is_cache(kind);
    char name[STORE_MAX_KEY_BYTES];
    log_warn("coordinator", cache ? "record_dropped" : "record_put_aside",
             "record=\"%s/%s\" why=\"%s\"", kind, key, why->text);
    snprintf(name, sizeof name, "%s/%s", kind, key);
    if (!cache)
        core_keep_bytes(c, "bad", name, bytes, size);
    core_forget(c, kind, key);
    /* No number of sequences may come back: the time is above every count of starts. */
    if (strcmp(name, "meta/boot") == 0)
        c->boot = c->config.unix_s;
}

int core_restore(struct core *c, const char *kind, const char *key, const void *bytes, size_t size,
                 struct err *e)
{
    struct err why = {0};
    int rc = restore_record(c, kind, key, bytes, size, &why);
    if (rc == HP_ENOMEM) {
        *e = why;
        return rc;
    }
    if (rc < 0)
        record_put_aside(c, kind, key, bytes, size, &why);
    return 0;
}

/* ---- models
 * ----------------------------------------------------------------------------------------------------
 */

struct core_model_slot *core_model_find(struct core *c, const char *id)
{
    for (size_t i = 0; i < c->n_models; i++)
        if (strcmp(c->models[i]->id, id) == 0)
            return c->models[i];
    return NULL;
}

static int core_model_add(struct core *c, const char *id, const char *name,
                          struct pack_span manifest, struct core_model_slot **out, struct err *e)
{
    struct core_model_slot *m = calloc(1, sizeof *m);
    uint8_t *copy = malloc(manifest.size);
    struct core_model_slot **place =
        m && copy ? core_array_add(&c->models, &c->n_models, sizeof *place) : NULL;
    if (!place) {
        free(m);
        free(copy);
        return err_set(e, HP_ENOMEM, "no memory for a manifest of %zu bytes", manifest.size);
    }
    memcpy(copy, manifest.data, manifest.size);
    m->manifest = copy;
    m->manifest_size = manifest.size;
    core_text_set(m->id, sizeof m->id, id);
    core_text_set(m->name, sizeof m->name, name);
    *out = *place = m;
    return 0;
}

static void core_model_open(struct core *c, struct core_model_slot *m)
{
    m->opening = true;
    m->failure.code = 0;
    struct core_action *a = core_action_add(c, CORE_MODEL_OPEN, m->manifest, m->manifest_size);
    if (a) {
        a->key = m->id;
        return;
    }
    m->opening = false;
    err_set(&m->failure, HP_ENOMEM, "no memory to open the model");
}

int core_model_use(struct core *c, struct pack_span manifest, struct core_model_slot **out,
                   struct err *e)
{
    struct digest digest = manifest_id(manifest.data, manifest.size);
    char id[DIGEST_HEX];
    digest_hex(&digest, id);
    *out = core_model_find(c, id);
    if (!*out) {
        struct arena arena = {0};
        struct manifest decoded;
        int rc = manifest_decode(manifest.data, manifest.size, &arena, &decoded, e);
        if (rc == 0)
            rc = core_model_add(c, id, decoded.name, manifest, out, e);
        arena_free(&arena);
        if (rc < 0)
            return rc;
        if (c->running)
            core_keep_bytes(c, "model", id, manifest.data, manifest.size);
    }
    if (!(*out)->open && !(*out)->opening)
        core_model_open(c, *out);
    return 0;
}

static int core_model_copy(struct core_model_slot *m, const struct core_model *facts)
{
    m->facts = *facts;
    struct core_layer *layers =
        arena_memdup(&m->arena, facts->layers, (size_t)facts->n_layers * sizeof *layers);
    m->facts.end_ids =
        arena_memdup(&m->arena, facts->end_ids, facts->n_end_ids * sizeof *facts->end_ids);
    m->facts.architecture = arena_strdup(&m->arena, facts->architecture);
    if (!layers || !m->facts.architecture || (facts->n_end_ids && !m->facts.end_ids))
        return HP_ENOMEM;
    for (int i = 0; i < facts->n_layers; i++) {
        layers[i].name = arena_strdup(&m->arena, facts->layers[i].name);
        layers[i].class_name = arena_strdup(&m->arena, facts->layers[i].class_name);
        if (!layers[i].name || !layers[i].class_name)
            return HP_ENOMEM;
    }
    m->facts.layers = layers;
    return 0;
}

void core_model_opened(struct core *c, const char *model_id, const struct core_model *facts,
                       const struct err *why)
{
    core_woke(c);
    struct core_model_slot *m = core_model_find(c, model_id);
    if (!m)
        return;
    m->opening = false;
    if (facts && core_model_copy(m, facts) == 0)
        m->open = true;
    else if (why)
        m->failure = *why;
    else
        err_set(&m->failure, HP_ENOMEM, "no memory for the model's layers");
    if (m->failure.code)
        log_warn("coordinator", "model_failed", "model=%.12s name=%s why=\"%s\"", m->id, m->name,
                 m->failure.text);
    deployments_advance(c);
    core_models_sweep(c);
}

void core_models_sweep(struct core *c)
{
    for (size_t i = c->n_models; i-- > 0;) {
        struct core_model_slot *m = c->models[i];
        bool used = m->opening || m->users;
        for (size_t k = 0; k < c->n_deployments; k++)
            used = used || c->deployments[k]->model == m;
        if (used)
            continue;
        char *id = arena_strdup(core_action_arena(c), m->id);
        struct core_action *a = id ? core_action_add(c, CORE_MODEL_CLOSE, NULL, 0) : NULL;
        if (!a)
            continue; /* the next sweep finds it */
        a->key = id;
        core_forget(c, "model", id);
        core_model_free(m);
        core_array_remove(c->models, &c->n_models, sizeof *c->models, i);
    }
}

/* ---- questions to agents
 * -------------------------------------------------------------------------------------- */

struct core_relay *core_relay_add(struct core *c, enum message_type type,
                                  const struct member *asked, uint64_t peer, uint64_t ask,
                                  uint64_t until_ns)
{
    if (c->n_relays >= CORE_MAX_ASKS)
        return NULL;
    struct core_relay *r = core_array_add(&c->relays, &c->n_relays, sizeof *r);
    if (!r)
        return NULL;
    *r = (struct core_relay){.id = env_random_u64(c->env) | 1,
                             .peer = peer,
                             .ask = ask,
                             .type = type,
                             .awaited = 1,
                             .until_ns = until_ns};
    core_text_set(r->asked, sizeof r->asked, asked ? asked->name : "");
    core_text_set(r->kind, sizeof r->kind, asked ? asked->kind : "");
    return r;
}

struct core_relay *core_relay_find(struct core *c, uint64_t id, enum message_type type)
{
    for (size_t i = 0; i < c->n_relays; i++)
        if (c->relays[i].id == id && c->relays[i].type == type)
            return &c->relays[i];
    return NULL;
}

struct core_relay *core_relay_answered(struct core *c, const struct member *by, uint64_t id,
                                       enum message_type type)
{
    struct core_relay *r = core_relay_find(c, id, type);
    return r && (!r->asked[0] || strcmp(r->asked, by->name) == 0) ? r : NULL;
}

void core_relay_end(struct core *c, struct core_relay *r)
{
    core_array_remove(c->relays, &c->n_relays, sizeof *r, (size_t)(r - c->relays));
}

/* ---- what comes in
 * --------------------------------------------------------------------------------------------- */

/* Whoever waits for a measurement goes on with an estimate. */
static void profiles_expect_none(struct core *c)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (c->deployments[i]->profile_until_ns)
            c->deployments[i]->profile_until_ns = core_now(c);
}

static void profile_result(struct core *c, struct member *m, uint64_t id_of_run,
                           const struct message_profile_result *r)
{
    if (profiling_result(c, m, id_of_run, r))
        return;
    struct core_relay *relay = core_relay_answered(c, m, id_of_run, MESSAGE_PROFILE_RESULT);
    if (!relay)
        return;
    /* Of what was asked, whatever the answer says that it is of. */
    struct core_relay run = *relay;
    const char *compute = run.ask ? "f32" : "auto", *id = run.what;
    core_relay_end(c, relay);
    if (!core_model_find(c, id))
        return;
    if (r->code[0] && strcmp(r->code, "ok") != 0) {
        log_warn("coordinator", "profile_failed", "agent=%s model=%.12s why=\"%s\"", m->name, id,
                 r->text);
        profiles_expect_none(c);
        return;
    }
    json_error_t why = {0};
    struct err e = {0};
    struct core_model_slot *model = core_model_find(c, id);
    json_t *tables = json_loads(r->tables, JSON_REJECT_DUPLICATES, &why);
    int rc = tables ? profile_check(model->open ? &model->facts : NULL, run.ask != 0, tables, &e)
                    : err_set(&e, HP_EPARSE, "%s", why.text);
    if (rc < 0) {
        log_warn("coordinator", "profile_refused", "agent=%s model=%.12s why=\"%s\"", m->name, id,
                 e.text);
        json_decref(tables);
        profiles_expect_none(c);
    } else if (core_profile_set(c, id, run.kind, compute, tables, &e) < 0) {
        log_warn("coordinator", "profile_lost", "agent=%s why=\"%s\"", m->name, e.text);
    }
}

/* Messages of an agent that has joined over this connection. */
static void from_member(struct core *c, struct member *m, const struct message *msg)
{
    switch (msg->type) {
    case MESSAGE_HEARTBEAT: members_heartbeat(c, m, &msg->u.heartbeat); break;
    case MESSAGE_STAGE_STATE: stages_state(c, m, &msg->u.stage_state); break;
    case MESSAGE_TOKENS: sequences_tokens(c, m, &msg->u.tokens); break;
    case MESSAGE_SEQUENCE_FAILED: sequences_failed(c, m, &msg->u.sequence_failed); break;
    case MESSAGE_LOGITS: sequences_logits(c, m, &msg->u.logits); break;
    case MESSAGE_PROFILE_RESULT: profile_result(c, m, msg->id, &msg->u.profile_result); break;
    case MESSAGE_STORE_STATE: admin_store_state(c, m, msg->id, &msg->u.store_state); break;
    case MESSAGE_PROFILE_PROGRESS:
        profiling_progress(c, m, msg->id, &msg->u.profile_progress);
        break;
    case MESSAGE_HOP_STATE: hops_told(c, m, &msg->u.hop_state); break;
    case MESSAGE_LINK_RESULT: links_result(c, m, msg->id, &msg->u.link_result); break;
    case MESSAGE_PREFILL: truth_prefill(c, m, &msg->u.prefill); break;
    case MESSAGE_LOG_TEXT: admin_log_text(c, m, msg->id, &msg->u.log_text); break;
    case MESSAGE_REFUSED:
        log_warn("coordinator", "agent_refuses", "agent=%s code=%s why=\"%s\"", m->name,
                 msg->u.refused.code, msg->u.refused.text);
        break;
    default: {
        struct err e;
        err_set(&e, HP_EPROTO, "an agent does not say \"%s\"", message_type_word(msg->type));
        core_refuse(c, m->peer, msg->id, &e);
    }
    }
}

static void dispatch(struct core *c, uint64_t peer, const char *key, const struct message *msg)
{
    if (msg->type == MESSAGE_JOIN) {
        members_join(c, peer, key, msg->id, &msg->u.join);
        return;
    }
    if (msg->type == MESSAGE_ASK && c->admin_key[0] && key_equal(key, c->admin_key)) {
        admin_ask(c, peer, msg->id, &msg->u.ask);
        return;
    }
    struct member *m = member_of_key(c, key);
    if (m && m->peer == peer && m->state != MEMBER_LOST) {
        from_member(c, m, msg);
        return;
    }
    if (m && m->peer == 0 && msg->type == MESSAGE_REFUSED)
        return;
    struct err e;
    if (m)
        err_set(&e, HP_ELINK, "agent \"%s\" has not joined over this connection: join first",
                m->name);
    else
        err_set(&e, HP_EDENIED, "the key of this sender is not known here: \"%s\" refused",
                message_type_word(msg->type));
    if (!m)
        log_warn_limited("coordinator", "refused", "type=%s key=%.8s peer=%llu",
                         message_type_word(msg->type), key, (unsigned long long)peer);
    core_refuse(c, peer, msg->id, &e);
}

static bool key_is_admin(const struct core *c, const char *key)
{
    return c->admin_key[0] && key_equal(key, c->admin_key);
}

bool core_knows_key(struct core *c, const char *key)
{
    return key_is_admin(c, key) || member_of_key(c, key);
}

/* What a message may weigh follows from who sends it, and is looked at before a byte of it is read.
 */
static size_t message_limit(struct core *c, const char *key)
{
    if (key_is_admin(c, key))
        return CONTROL_MAX_MESSAGE_BYTES;
    return member_of_key(c, key) ? MESSAGE_AGENT_MAX_BYTES + MESSAGE_STRANGER_MAX_BYTES
                                 : MESSAGE_STRANGER_MAX_BYTES;
}

static int message_read(struct core *c, const char *key, const uint8_t *bytes, size_t size,
                        struct arena *arena, struct message *out, struct err *e)
{
    size_t limit = message_limit(c, key);
    if (size > limit)
        return err_set(e, HP_ELIMIT, "a message of %zu bytes; %zu are the limit for this sender",
                       size, limit);
    return message_decode(bytes, size, arena, out, e);
}

void core_message(struct core *c, uint64_t peer, const char *key, const uint8_t *bytes, size_t size)
{
    /* Texts and rows are no larger than what they were on the wire, but for rows of zeros. */
    struct arena *arena = &c->decoded;
    struct message msg = {0};
    struct err e = {0};
    core_woke(c);
    arena->limit_bytes = 2 * size + MESSAGE_STRANGER_MAX_BYTES;
    if (message_read(c, key, bytes, size, arena, &msg, &e) < 0) {
        log_warn_limited("coordinator", "message_refused", "key=%.8s bytes=%zu why=\"%s\"", key,
                         size, e.text);
        core_refuse(c, peer, msg.id, &e);
    } else {
        dispatch(c, peer, key, &msg);
        deployments_advance(c);
    }
    arena_reset(arena);
}

void core_peer_gone(struct core *c, uint64_t peer)
{
    core_woke(c);
    for (size_t i = 0; i < c->n_relays; i++)
        if (c->relays[i].peer == peer)
            c->relays[i].peer = 0;
    profiling_peer_gone(c, peer);
    links_peer_gone(c, peer);
    sequences_peer_gone(c, peer);
    deployments_peer_gone(c, peer);
    drains_peer_gone(c, peer);
    members_peer_gone(c, peer);
    deployments_advance(c);
}

void core_tick(struct core *c)
{
    core_woke(c);
    members_tick(c);
    profiling_tick(c);
    admin_tick(c);
    links_tick(c);
    deployments_advance(c);
}

/* ---- requests.h
 * --------------------------------------------------------------------------------------------------
 */

/* One that is broken is tried again at a time that is known; until others serve nobody knows. */
static uint32_t retry_after_s(const struct core *c, const struct deployment *d)
{
    if (d->state != DEPLOYMENT_BROKEN || d->until_ns <= core_now(c))
        return shares_retry_after_s(d);
    return (uint32_t)((d->until_ns - core_now(c)) / 1000000000u) + 1;
}

static void request_model_fill(const struct core *c, const struct deployment *d,
                               struct request_model *out)
{
    *out = (struct request_model){
        .name = d->name,
        .state = deployment_states[d->state].word,
        .state_text = d->why.text,
        .serving = d->state == DEPLOYMENT_SERVING &&
                   d->model->open, /* after a start its files are still being opened */
        .created_s = d->created_s,
        .context = d->context,
        .retry_after_s = retry_after_s(c, d),
        .vocabulary = d->model->open ? d->model->facts.vocabulary : 0,
        .model = d->model->open ? d->model->facts.handle : NULL,
    };
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct request_model *)a)->name, ((const struct request_model *)b)->name);
}

static int requests_models(void *ctx, struct request_model *out, int max)
{
    struct core *c = ctx;
    int n = 0;
    for (size_t i = 0; i < c->n_deployments && n < max; i++)
        if (c->deployments[i]->state < DEPLOYMENT_STOPPING)
            request_model_fill(c, c->deployments[i], &out[n++]);
    qsort(out, (size_t)n, sizeof *out, by_name);
    return n;
}

static int requests_find(void *ctx, const char *name, struct request_model *out, struct err *e)
{
    struct core *c = ctx;
    struct deployment *d = deployment_find(c, name);
    if (d) {
        request_model_fill(c, d, out);
        return 0;
    }
    char names[300] = "";
    size_t used = 0;
    for (size_t i = 0; i < c->n_deployments && used < sizeof names - 1; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s\"%s\"", i ? ", " : "",
                                 c->deployments[i]->name);
    return err_set(e, HP_ENOENT, "no model \"%.100s\" is deployed here; there %s%s", name,
                   c->n_deployments ? "is " : "is none", names);
}

static int requests_open(void *ctx, const struct request *r, uint64_t *id, struct err *e)
{
    core_woke(ctx);
    return sequences_request_open(ctx, r, id, e);
}

static void requests_cancel(void *ctx, uint64_t id, bool satisfied, struct request_usage *usage)
{
    core_woke(ctx);
    sequences_request_cancel(ctx, id, satisfied, usage);
}

static int requests_api_keys(void *ctx)
{
    return (int)((struct core *)ctx)->n_api_keys;
}

static bool requests_api_key_allowed(void *ctx, const char *key, char name[REQUEST_KEY_NAME_BYTES])
{
    struct core *c = ctx;
    char digest[65];
    join_token_secret_digest(key, digest);
    bool allowed = false;
    for (size_t i = 0; i < c->n_api_keys; i++)
        if (key_equal(c->api_keys[i].digest, digest)) {
            allowed = true;
            if (name)
                snprintf(name, REQUEST_KEY_NAME_BYTES, "%s", c->api_keys[i].name);
        }
    return allowed;
}

static void requests_metrics(void *ctx,
                             void (*row)(void *, const char *, const char *, const char *,
                                         const char *, double),
                             void *out)
{
    figures_rows(ctx, row, out);
}

void core_requests(struct core *core, struct requests *out)
{
    *out = (struct requests){core,
                             requests_models,
                             requests_find,
                             requests_open,
                             requests_cancel,
                             requests_api_keys,
                             requests_api_key_allowed,
                             requests_metrics,
                             core_requests_work};
}

struct core_view core_view(const struct core *c)
{
    struct core_view v = {
        .members = (uint32_t)c->n_members,
        .deployments = (uint32_t)c->n_deployments,
        .boot = c->boot,
        .refused = c->counts.refused,
        .sequences_opened = c->counts.opened,
        .sequences_finished = c->counts.finished,
        .sequences_failed = c->counts.failed,
    };
    for (size_t i = 0; i < c->n_members; i++)
        v.members_ready += c->members[i]->state == MEMBER_READY;
    for (size_t i = 0; i < c->n_deployments; i++) {
        v.deployments_serving += c->deployments[i]->state == DEPLOYMENT_SERVING;
        v.sequences_active += c->deployments[i]->n_active;
        v.sequences_waiting += c->deployments[i]->n_waiting;
    }
    return v;
}

/* ---- arrays
 * -------------------------------------------------------------------------------------------------------
 */

void *core_array_add(void *array, size_t *count, size_t item_size)
{
    void *items;
    memcpy(&items, array, sizeof items);
    /* Tables here have tens of rows: one reallocation a row is nothing. */
    void *grown = realloc(items, (*count + 1) * item_size);
    if (!grown)
        return NULL;
    memcpy(array, &grown, sizeof grown);
    void *item = (char *)grown + *count * item_size;
    memset(item, 0, item_size);
    (*count)++;
    return item;
}

void core_array_remove(void *items, size_t *count, size_t item_size, size_t at)
{
    char *base = items;
    memmove(base + at * item_size, base + (at + 1) * item_size, (*count - at - 1) * item_size);
    (*count)--;
}

void core_text_set(char *out, size_t size, const char *text)
{
    utf8_copy(out, size, text);
}
