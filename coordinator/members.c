#include "coordinator/members.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cluster.h"
#include "common/json.h"
#include "common/log.h"
#include "coordinator/core_int.h"
#include "coordinator/links.h"
#include "transport/data_address.h"

#define TO(s) MACHINE_TO(MEMBER_##s)
const struct machine_state member_states[MEMBER_STATE_COUNT] = {
    [MEMBER_JOINING] = {"joining", TO(JOINING) | TO(READY) | TO(DRAINING) | TO(LOST)},
    [MEMBER_READY] = {"ready", TO(JOINING) | TO(SUSPECT) | TO(DRAINING)},
    [MEMBER_SUSPECT] = {"suspect", TO(JOINING) | TO(READY) | TO(DRAINING) | TO(LOST)},
    [MEMBER_LOST] = {"lost", TO(JOINING)},
    [MEMBER_DRAINING] = {"draining", TO(JOINING) | TO(READY) | TO(LOST)},
};
#undef TO

struct member *member_find(struct core *c, const char *name)
{
    for (size_t i = 0; i < c->n_members; i++)
        if (strcmp(c->members[i]->name, name) == 0)
            return c->members[i];
    return NULL;
}

/* FNV-1a; keys are public, so no care is taken about how long a comparison lasts. */
static uint16_t *place_of_key(struct core *c, const char *key)
{
    uint32_t hash = 2166136261u;
    for (const char *p = key; *p; p++)
        hash = (hash ^ (uint8_t)*p) * 16777619u;
    return &c->member_places[hash % CORE_KEY_PLACES];
}

struct member *member_of_key(struct core *c, const char *key)
{
    uint16_t *place = place_of_key(c, key);
    if (*place < c->n_members && strcmp(c->members[*place]->key, key) == 0)
        return c->members[*place];
    for (size_t i = 0; i < c->n_members; i++)
        if (strcmp(c->members[i]->key, key) == 0) {
            *place = (uint16_t)i;
            return c->members[i];
        }
    return NULL;
}

void member_free(struct member *m)
{
    json_decref(m->node);
    free(m->address);
    free(m->held);
    free(m->models);
    free(m->links);
    free(m);
}

void member_move(struct member *m, int to)
{
    if (m->state == to)
        return;
    log_info("coordinator", "member", "agent=%s from=%s to=%s", m->name,
             member_states[m->state].word, member_states[to].word);
    machine_move(member_states, &m->state, to);
}

void member_keep(struct core *c, const struct member *m)
{
    json_t *record =
        json_pack("{s:s, s:s, s:s, s:b, s:O?}", "key", m->key, "machine", m->machine, "hostname",
                  m->hostname, "draining", m->draining && !m->drain_asked, "node", m->node);
    core_keep_json(c, "agent", m->name, record);
}

/* ---- what an agent tells of itself
 * ------------------------------------------------------------------------------- */

/* Takes the first device's kind and memory out of the node; a stage runs on it. */
static void member_node_set(struct member *m, json_t *node)
{
    json_decref(m->node);
    m->node = node;
    const json_t *device = json_array_get(json_object_get(node, "devices"), 0);
    core_text_set(m->kind, sizeof m->kind, json_string_value(json_object_get(device, "kind")));
    m->memory_bytes = json_number_value(json_object_get(device, "memory_bytes"));
}

/* The node that an agent told, checked by reading a cluster of it alone. NULL with the reason in
 * *e. */
static json_t *node_read(const char *text, struct err *e)
{
    json_error_t why = {0};
    json_t *node =
        strlen(text) <= MEMBER_NODE_BYTES ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (!json_is_object(node)) {
        json_decref(node);
        err_set(e, HP_EPARSE, "the node in \"join\" is not a JSON object of at most %d bytes: %s",
                MEMBER_NODE_BYTES, why.text);
        return NULL;
    }
    json_object_del(node, "count");
    if (!json_object_get(node, "name"))
        json_object_set_new(node, "name", json_string("node"));
    json_t *document = json_pack("{s:s, s:[O]}", "format", "hp-cluster/1", "nodes", node);
    struct json_at at = {.file = "node in \"join\"", .value = document};
    struct cluster cluster = {0};
    int rc = document ? cluster_from_json(&at, &cluster, e)
                      : err_set(e, HP_ENOMEM, "no memory for a node");
    if (rc == 0 && cluster.n_devices == 0)
        rc = err_set(e, HP_EPARSE, "the node in \"join\" has no device");
    cluster_free(&cluster); /* nothing, where it could not be read */
    json_decref(document);
    if (rc == 0)
        return node;
    json_decref(node);
    return NULL;
}

static void member_held_set(struct member *m, const struct pack_list *held)
{
    const struct message_held_stage *rows = held->items;
    free(m->held);
    m->held = held->count ? calloc(held->count, sizeof *m->held) : NULL;
    m->n_held = m->held ? held->count : 0;
    for (size_t i = 0; i < m->n_held; i++) {
        m->held[i] = (struct member_held){.deployment = rows[i].deployment,
                                          .generation = rows[i].generation,
                                          .stage = rows[i].stage,
                                          .sequences = rows[i].sequences,
                                          .queued_batches = rows[i].queued_batches,
                                          .kv_used_tokens = rows[i].kv_used_tokens,
                                          .kv_tokens = rows[i].kv_tokens,
                                          .batches_done = rows[i].batches_done,
                                          .busy_s = rows[i].busy_s,
                                          .planned_s = rows[i].planned_s,
                                          .hop_heard = rows[i].hop_heard,
                                          .running = rows[i].running};
        core_text_set(m->held[i].state, sizeof m->held[i].state, rows[i].state);
    }
}

void members_models_set(struct member *m, const struct pack_list *models)
{
    const struct message_model *rows = models->items;
    free(m->models);
    m->models = models->count ? calloc(models->count, sizeof *m->models) : NULL;
    m->n_models = 0;
    for (size_t i = 0; m->models && i < models->count; i++) {
        if (rows[i].model.size != DIGEST_BYTES)
            continue;
        struct member_model *out = &m->models[m->n_models++];
        digest_hex((const struct digest *)(const void *)rows[i].model.data, out->id);
        core_text_set(out->name, sizeof out->name, rows[i].name);
        out->bytes = rows[i].bytes;
    }
}

/* ---- joining
 * ------------------------------------------------------------------------------------------------------
 */

/* Those that were removed since the start, so that they can be told. */
static const char *removed_name(const struct core *c, const char *key)
{
    for (size_t i = 0; i < CORE_REMOVED; i++)
        if (c->removed[i].key[0] && key_equal(c->removed[i].key, key))
            return c->removed[i].name;
    return NULL;
}

static void removed_note(struct core *c, const struct member *m)
{
    struct core_removed *r = &c->removed[c->next_removed++ % CORE_REMOVED];
    core_text_set(r->key, sizeof r->key, m->key);
    core_text_set(r->name, sizeof r->name, m->name);
}

/* Whether the secret opens the door to this key, and which invitation it uses up. */
static int invite_check(struct core *c, const char *key, const char *secret,
                        struct member_invite **out, struct err *e)
{
    char digest[65];
    if (!secret[0]) {
        const char *removed = removed_name(c, key);
        if (removed)
            err_set(e, HP_EDENIED, "agent \"%s\" was removed from this cluster", removed);
        else
            err_set(e, HP_EDENIED,
                    "this agent's key is not known here and it brought no join token");
        return err_hint(
            e, "hpctl node token create makes one: hp-agent --join HOST:PORT --token TOKEN");
    }
    join_token_secret_digest(secret, digest);
    for (size_t i = 0; i < c->n_invites; i++) {
        struct member_invite *v = &c->invites[i];
        if (!key_equal(v->digest, digest))
            continue;
        if (v->used_by[0])
            return err_set(e, HP_EDENIED, "this join token was used already, by agent \"%s\"",
                           v->used_by);
        if (v->expires_s <= core_unix_s(c))
            return err_set(e, HP_EDENIED, "this join token has expired");
        *out = v;
        return 0;
    }
    return err_set(e, HP_EDENIED, "this join token is not one of this cluster");
}

static void invite_keep(struct core *c, const struct member_invite *v)
{
    core_keep_json(c, "token", v->digest,
                   json_pack("{s:I, s:I, s:s}", "expires_s", (json_int_t)v->expires_s, "created_s",
                             (json_int_t)v->created_s, "used_by", v->used_by));
}

/* The name asked for, reduced to what may stand in --layers and device ids; numbered where another
 * agent has it. */
static void name_choose(struct core *c, const char *asked, char out[MEMBER_NAME])
{
    char base[MEMBER_NAME - 8];
    size_t n = 0;
    for (const char *p = asked; *p && n < sizeof base - 1; p++)
        base[n++] = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", *p)
                        ? *p
                        : '-';
    base[n] = 0;
    if (n == 0)
        core_text_set(base, sizeof base, "agent");
    snprintf(out, MEMBER_NAME, "%s", base);
    for (unsigned k = 2; member_find(c, out); k++)
        snprintf(out, MEMBER_NAME, "%s-%u", base, k);
}

static int member_admit(struct core *c, const char *key, const struct message_join *j,
                        struct member_invite *invite, struct member **out, struct err *e)
{
    if (c->n_members >= CORE_MAX_MEMBERS)
        return err_set(e, HP_ELIMIT, "this cluster has %d agents already, its limit",
                       CORE_MAX_MEMBERS);
    if (core_may_change(c, e) < 0)
        return e->code;
    struct member *m = calloc(1, sizeof *m);
    struct member **place = m ? core_array_add(&c->members, &c->n_members, sizeof *place) : NULL;
    if (!place) {
        free(m);
        return err_set(e, HP_ENOMEM, "no memory for another agent");
    }
    char name[MEMBER_NAME];
    c->n_members--; /* not counted while a name is looked for: its own is still empty */
    name_choose(c, j->name, name);
    c->n_members++;
    *out = *place = m;
    core_text_set(m->name, sizeof m->name, name);
    core_text_set(m->key, sizeof m->key, key);
    m->state = MEMBER_LOST;
    core_text_set(invite->used_by, sizeof invite->used_by, name);
    invite_keep(c, invite);
    return 0;
}

static void member_welcome(struct core *c, struct member *m, uint64_t id)
{
    struct message w = {.type = MESSAGE_WELCOME, .id = id};
    w.u.welcome.name = m->name;
    w.u.welcome.heartbeat_ms = CORE_HEARTBEAT_MS;
    w.u.welcome.coordinator_boot = c->boot;
    w.u.welcome.data = c->config.data.mode;
    w.u.welcome.trust = c->config.data.trust;
    core_say(c, m->peer, &w);
}

/* ---- whose connections the agents' data endpoints may take
 * ----------------------------------------------------------- */

static void key_add(struct buffer *keys, const char *text)
{
    uint8_t key[KEY_BYTES];
    if (text[0] && key_decode(text, key, NULL) == 0)
        buffer_append(keys, key, sizeof key);
}

/* Tells one member, or all that are here. */
static void members_tell(struct core *c, const struct member *only)
{
    struct buffer keys = {0};
    key_add(&keys, c->admin_key);
    for (size_t i = 0; i < c->n_members; i++)
        key_add(&keys, c->members[i]->key);
    struct message m = {.type = MESSAGE_MEMBERS};
    m.u.members.keys = (struct pack_span){keys.data, keys.size};
    for (size_t i = 0; i < c->n_members && !keys.failed; i++)
        if (only ? c->members[i] == only : member_present(c->members[i]))
            core_say(c, c->members[i]->peer, &m);
    buffer_free(&keys);
}

/* ---- joining
 * ------------------------------------------------------------------------------------------------------
 */

static void join_refuse(struct core *c, uint64_t peer, uint64_t id, const struct message_join *j,
                        const struct err *e)
{
    log_warn_limited("coordinator", "join_refused", "name=%.64s host=%.64s why=\"%s\"", j->name,
                     j->hostname, e->text);
    core_refuse(c, peer, id, e);
}

/* Frames go where the address says, to whoever has the key in it: that must be the joiner's own.
 * Addresses within a process have no key, and are shorter than any of a network, which knows none
 * of them. */
static int address_check(const char *key, struct pack_span address, struct err *e)
{
    struct data_address a;
    uint8_t own[KEY_BYTES];
    if (address.size <= MEMBER_INPROC_ADDRESS_BYTES)
        return 0;
    int rc = data_address_parse(address.data, address.size, &a, e);
    if (rc == 0 && (key_decode(key, own, e) < 0 || sodium_memcmp(own, a.key, sizeof own) != 0))
        rc = err_set(e, HP_EDENIED, "the key in the data address is not the agent's own");
    return rc;
}

/* Two processes with one key (a copied state folder) must not push each other out. A newcomer is
 * not answered before the one that is here had the time for a heartbeat: if that came, the newcomer
 * is refused, and both are named; if not, the agent was restarted. HP_PENDING: it asks again in a
 * second. */
static int rival_check(struct core *c, struct member *m, uint64_t peer,
                       const struct message_join *j, struct err *e)
{
    uint64_t now = core_now(c);
    bool alone = !j->process || !m->process || j->process == m->process || m->peer == peer ||
                 !member_present(m) || now - m->heard_ns >= core_ms(CORE_SUSPECT_MS);
    if (alone)
        return 0;
    if (m->rival != j->process) {
        m->rival = j->process;
        m->rival_ns = now;
    }
    if (m->heard_ns <= m->rival_ns)
        return now - m->rival_ns < core_ms(MEMBER_RIVAL_MS) ? HP_PENDING : 0;
    core_text_set(m->rival_host, sizeof m->rival_host, j->hostname);
    err_set(e, HP_EEXIST,
            "the key of agent \"%s\" is in use by another process, on host \"%s\"; this one is on "
            "\"%s\"",
            m->name, m->hostname, m->rival_host);
    return err_hint(
        e,
        "a copied state folder? give each agent its own (hp-agent --dir) and a token of its own");
}

/* All that has to be right before anything changes. Who it is comes first: a stranger's node is not
 * worth a look. */
static int join_check(struct core *c, struct member *m, uint64_t peer, const char *key,
                      const struct message_join *j, struct member_invite **invite, json_t **node,
                      struct err *e)
{
    int rc = m ? rival_check(c, m, peer, j, e) : invite_check(c, key, j->token, invite, e);
    if (rc != 0 || (rc = address_check(key, j->data_address, e)) < 0)
        return rc;
    *node = node_read(j->node, e);
    return *node ? 0 : e->code;
}

static int member_address_set(struct member *m, struct pack_span from, struct err *e)
{
    uint8_t *address = malloc(from.size + 1);
    if (!address)
        return err_set(e, HP_ENOMEM, "no memory for an agent's address");
    if (from.size)
        memcpy(address, from.data, from.size);
    free(m->address);
    m->address = address;
    m->address_size = from.size;
    return 0;
}

/* What an agent tells of itself with every join. */
static void member_joined(struct core *c, struct member *m, uint64_t peer,
                          const struct message_join *j, json_t *node)
{
    member_node_set(m, node);
    core_text_set(m->machine, sizeof m->machine, j->machine);
    core_text_set(m->hostname, sizeof m->hostname, j->hostname);
    core_text_set(m->program, sizeof m->program, j->program);
    member_held_set(m, &j->held);
    members_models_set(m, &j->models);
    m->peer = peer;
    m->heard_ns = core_now(c);
    m->process = j->process;
    m->rival = m->rival_ns = 0;
    m->rival_host[0] = 0;
}

void members_join(struct core *c, uint64_t peer, const char *key, uint64_t id,
                  const struct message_join *j)
{
    struct err e = {0};
    struct member *m = member_of_key(c, key);
    struct member_invite *invite = NULL;
    json_t *node = NULL;
    bool known = m != NULL;
    int rc = join_check(c, m, peer, key, j, &invite, &node, &e);
    if (rc == HP_PENDING)
        return;
    /* It missed our answers and asks again: over the same connection nothing is lost, so nothing
     * begins anew. */
    bool again =
        m && m->peer == peer && member_present(m) && m->address_size == j->data_address.size &&
        (!m->address_size || memcmp(m->address, j->data_address.data, m->address_size) == 0);
    if (rc == 0 && !known)
        rc = member_admit(c, key, j, invite, &m, &e);
    if (rc == 0 && json_object_set_new(node, "name", json_string(m->name)) < 0)
        rc = err_set(&e, HP_ENOMEM, "no memory for an agent's node");
    if (rc < 0 || (rc = member_address_set(m, j->data_address, &e)) < 0) {
        join_refuse(c, peer, id, j, &e);
        json_decref(node);
        return;
    }
    member_joined(c, m, peer, j, node);
    if (again) {
        member_welcome(c, m, id);
        members_tell(c, m);
        return;
    }
    m->joined_ns = core_now(c);
    m->joins++;
    member_move(m, MEMBER_JOINING);
    member_keep(c, m);
    member_welcome(c, m, id);
    members_tell(c, known ? m : NULL);
    links_member_joined(c, m);
    deployments_member_joined(c, m);
}

/* ---- staying
 * ------------------------------------------------------------------------------------------------------
 */

void members_heartbeat(struct core *c, struct member *m, const struct message_heartbeat *h)
{
    m->heard_ns = core_now(c);
    m->memory_free_bytes = h->memory_free_bytes;
    m->dropped_stale = h->dropped_stale;
    m->dropped_foreign = h->dropped_foreign;
    member_held_set(m, &h->held);
    struct message ack = {.type = MESSAGE_HEARTBEAT_ACK};
    ack.u.heartbeat_ack.number = h->number;
    core_say(c, m->peer, &ack);
    if (m->state == MEMBER_JOINING || m->state == MEMBER_SUSPECT) {
        member_move(m, m->draining ? MEMBER_DRAINING : MEMBER_READY);
        deployments_member_ready(c, m);
    }
    stages_held(c, m);
}

static void member_lose(struct core *c, struct member *m, uint64_t silent_ns)
{
    char why[128];
    snprintf(why, sizeof why, "agent \"%s\" was lost: no sign of it for %.1f s", m->name,
             (double)silent_ns * 1e-9);
    member_move(m, MEMBER_LOST);
    m->peer = 0;
    free(m->held);
    m->held = NULL;
    m->n_held = 0;
    deployments_member_lost(c, m, why);
}

void members_tick(struct core *c)
{
    uint64_t now = core_now(c);
    for (size_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];
        if (m->state == MEMBER_LOST)
            continue;
        uint64_t silent = now - m->heard_ns;
        if (m->state == MEMBER_READY && silent >= core_ms(CORE_SUSPECT_MS))
            member_move(m, MEMBER_SUSPECT);
        if (silent >= core_ms(CORE_LOST_MS))
            member_lose(c, m, silent);
    }
}

void members_peer_gone(struct core *c, uint64_t peer)
{
    for (size_t i = 0; i < c->n_members; i++)
        if (c->members[i]->peer == peer && c->members[i]->state == MEMBER_READY)
            member_move(c->members[i], MEMBER_SUSPECT);
}

/* ---- what hpctl wants of members
 * ------------------------------------------------------------------------------------ */

int members_invite(struct core *c, uint64_t ttl_s, char token[TOKEN_TEXT], struct err *e)
{
    uint8_t chance[16];
    c->env->random_bytes(c->env->ctx, chance, sizeof chance);
    struct join_token t;
    core_text_set(t.server_key, sizeof t.server_key, c->public_key);
    for (size_t i = 0; i < sizeof chance; i++)
        snprintf(t.secret + 2 * i, 3, "%02x", chance[i]);
    /* Those that have expired unused are of no interest to anybody. */
    for (size_t i = c->n_invites; i-- > 0;)
        if (!c->invites[i].used_by[0] && c->invites[i].expires_s <= core_unix_s(c)) {
            core_forget(c, "token", c->invites[i].digest);
            core_array_remove(c->invites, &c->n_invites, sizeof *c->invites, i);
        }
    struct member_invite *v = core_array_add(&c->invites, &c->n_invites, sizeof *v);
    if (!v)
        return err_set(e, HP_ENOMEM, "no memory for a join token");
    join_token_secret_digest(t.secret, v->digest);
    v->created_s = core_unix_s(c);
    v->expires_s = v->created_s + ttl_s;
    invite_keep(c, v);
    join_token_text(&t, token);
    return 0;
}

int members_remove(struct core *c, struct member *m, struct err *e)
{
    if (deployments_use_member(c, m)) {
        err_set(e, HP_EBUSY, "agent \"%s\" holds stages of a deployment", m->name);
        return err_hint(e, "hpctl node drain %s moves them away", m->name);
    }
    if (m->state != MEMBER_LOST && m->state != MEMBER_DRAINING) {
        err_set(e, HP_EBUSY, "agent \"%s\" is %s", m->name, member_states[m->state].word);
        return err_hint(e, "stop it, or drain it first: hpctl node drain %s", m->name);
    }
    struct err told = {0};
    err_set(&told, HP_EDENIED, "agent \"%s\" was removed from this cluster", m->name);
    core_refuse(c, m->peer, 0, &told);
    log_info("coordinator", "member_removed", "agent=%s", m->name);
    removed_note(c, m);
    core_forget(c, "agent", m->name);
    for (size_t i = 0; i < c->n_members; i++)
        if (c->members[i] == m) {
            core_array_remove(c->members, &c->n_members, sizeof *c->members, i);
            break;
        }
    links_member_removed(c, m);
    member_free(m);
    members_tell(c, NULL);
    return 0;
}

/* ---- from the store
 * ----------------------------------------------------------------------------------------------------
 */

int members_restore_agent(struct core *c, const char *name, const json_t *record, struct err *e)
{
    const char *key = json_string_value(json_object_get(record, "key"));
    if (!key || strlen(key) != KEY_TEXT - 1)
        return err_set(e, HP_EPARSE, "the store's record agent/%s has no key", name);
    struct member *m = calloc(1, sizeof *m);
    struct member **place = m ? core_array_add(&c->members, &c->n_members, sizeof *place) : NULL;
    if (!place) {
        free(m);
        return err_set(e, HP_ENOMEM, "no memory for agents");
    }
    *place = m;
    core_text_set(m->name, sizeof m->name, name);
    core_text_set(m->key, sizeof m->key, key);
    core_text_set(m->machine, sizeof m->machine,
                  json_string_value(json_object_get(record, "machine")));
    core_text_set(m->hostname, sizeof m->hostname,
                  json_string_value(json_object_get(record, "hostname")));
    m->draining = json_is_true(json_object_get(record, "draining"));
    m->state = MEMBER_LOST;
    json_t *node = json_object_get(record, "node"),
           *copy = json_is_object(node) ? json_deep_copy(node) : NULL;
    if (copy && json_object_set_new(copy, "name", json_string(m->name)) == 0)
        member_node_set(m, copy);
    else
        json_decref(copy); /* it tells its node when it joins */
    return 0;
}

int members_restore_invite(struct core *c, const char *digest, const json_t *record, struct err *e)
{
    struct member_invite *v = core_array_add(&c->invites, &c->n_invites, sizeof *v);
    if (!v)
        return err_set(e, HP_ENOMEM, "no memory for join tokens");
    core_text_set(v->digest, sizeof v->digest, digest);
    v->expires_s = (uint64_t)json_integer_value(json_object_get(record, "expires_s"));
    v->created_s = (uint64_t)json_integer_value(json_object_get(record, "created_s"));
    core_text_set(v->used_by, sizeof v->used_by,
                  json_string_value(json_object_get(record, "used_by")));
    return 0;
}
