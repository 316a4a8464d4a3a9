#include "coordinator/member.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/suggestion.h"
#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/effects.h"

#define TO(s) MACHINE_TO(MEMBER_##s)
const struct machine_state member_states[MEMBER_STATE_COUNT] = {
    [MEMBER_JOINING] = {"joining", TO(JOINING) | TO(READY) | TO(DRAINING) | TO(LOST)},
    [MEMBER_READY] = {"ready", TO(JOINING) | TO(SUSPECT) | TO(DRAINING)},
    [MEMBER_SUSPECT] = {"suspect", TO(JOINING) | TO(READY) | TO(DRAINING) | TO(LOST)},
    [MEMBER_LOST] = {"lost", TO(JOINING)},
    [MEMBER_DRAINING] = {"draining", TO(JOINING) | TO(READY) | TO(LOST)},
};

#undef TO

struct member *member_find(struct coord *c, const char *name)
{
    struct member *m;
    HASH_FIND(by_name, c->members_by_name, name, strlen(name), m);
    return m;
}

int member_missing(const struct coord *c, const char *name, struct err *e)
{
    struct suggestion near = {0};
    for (size_t i = 0; i < c->n_members; i++)
        suggestion_try(&near, name, c->members[i]->name);
    err_set(e, HP_ENOENT, "there is no agent \"%.100s\" in this cluster", name);
    return near.best ? err_hint(e, "did you mean \"%s\"? `hpctl node ls` lists them", near.best)
                     : HP_ENOENT;
}

struct member *member_of_key(struct coord *c, const char *key)
{
    struct member *m;
    HASH_FIND(by_key, c->members_by_key, key, strlen(key), m);
    return m;
}

static bool member_map(struct coord *c, struct member *m)
{
    HASH_ADD(by_name, c->members_by_name, name[0], strlen(m->name), m);
    if (!m->by_name.tbl)
        return false;
    HASH_ADD(by_key, c->members_by_key, key[0], strlen(m->key), m);
    if (!m->by_key.tbl)
        HASH_DELETE(by_name, c->members_by_name, m);
    return m->by_key.tbl != NULL;
}

static void member_unmap(struct coord *c, struct member *m)
{
    HASH_DELETE(by_name, c->members_by_name, m);
    HASH_DELETE(by_key, c->members_by_key, m);
}

struct member *member_add(struct coord *c, const char *name, const char *key)
{
    struct member *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    utf8_copy(m->name, sizeof m->name, name);
    utf8_copy(m->key, sizeof m->key, key);
    m->state = MEMBER_LOST;
    if (!member_map(c, m) || !vector_push(c->members, c->n_members, c->room_members, m)) {
        if (m->by_key.tbl)
            member_unmap(c, m);
        free(m);
        return NULL;
    }
    return m;
}

static void member_free(struct member *m)
{
    member_node_free(&m->node);
    free(m->address);
    free(m->held);
    member_devices_find(m);
    free(m->models);
    free(m->links);
    free(m);
}

void members_free(struct coord *c)
{
    HASH_CLEAR(by_name, c->members_by_name);
    HASH_CLEAR(by_key, c->members_by_key);
    for (size_t i = 0; i < c->n_members; i++)
        member_free(c->members[i]);
    free(c->members);
}

/* ---- devices ---- */

int member_device_find(const struct member *m, const char *name)
{
    for (int i = 0; i < member_device_count(m); i++)
        if (strcmp(m->node->cluster.devices[i].name, name) == 0)
            return i;
    return -1;
}

void member_device_text(const struct member *m, int device, char out[DEVICE_TEXT])
{
    const struct cluster_device *own = member_device(m, device);
    if (own && member_device_count(m) > 1)
        snprintf(out, DEVICE_TEXT, "%s/%s", m->name, own->name);
    else
        snprintf(out, DEVICE_TEXT, "%s", m->name);
}

/* ---- setters ---- */

void member_move(struct member *m, int to)
{
    if (m->state == to)
        return;
    log_info("coordinator", "member", "agent=%s from=%s to=%s", m->name,
             member_states[m->state].word, member_states[to].word);
    machine_move(member_states, &m->state, to);
}

void member_device_lose(struct member *m, int device, const char *why)
{
    char text[DEVICE_TEXT];
    if (device < 0 || device >= MESSAGE_MAX_DEVICES || m->device_lost[device])
        return;
    member_device_text(m, device, text);
    log_warn("coordinator", "device_lost", "device=%s why=\"%s\"", text, why);
    m->device_lost[device] = strdup(why);
}

void member_device_shorten(struct member *m, int device)
{
    const struct cluster_device *own = member_device(m, device);
    if (!own || device >= MESSAGE_MAX_DEVICES)
        return;
    double least = own->memory_bytes / MEMBER_SHORT_LEAST, twice = 2 * m->short_bytes[device];
    m->short_bytes[device] = fmin(fmax(least, twice), own->memory_bytes / MEMBER_SHORT_MOST);
}

void member_devices_find(struct member *m)
{
    memset(m->short_bytes, 0, sizeof m->short_bytes);
    for (int i = 0; i < MESSAGE_MAX_DEVICES; i++) {
        free(m->device_lost[i]);
        m->device_lost[i] = NULL;
    }
}

void member_node_set(struct member *m, struct member_node *node)
{
    member_node_free(&m->node);
    m->node = node;
}

int member_address_set(struct member *m, struct pack_span from, struct err *e)
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

void member_held_set(struct member *m, const struct pack_list *held)
{
    enum { STATE_BYTES = 16 };
    const struct message_held_stage *rows = held ? held->items : NULL;
    free(m->held);
    m->held = held && held->count ? calloc(held->count, sizeof *m->held + STATE_BYTES) : NULL;
    m->n_held = m->held ? held->count : 0;
    for (size_t i = 0; i < m->n_held; i++) { /* the words of their states lie behind them */
        char *state = (char *)(m->held + m->n_held) + i * STATE_BYTES;
        utf8_copy(state, STATE_BYTES, rows[i].state);
        m->held[i] = rows[i];
        m->held[i].state = state;
    }
}

void member_free_set(struct member *m, const struct pack_list *devices)
{
    const struct message_device_state *rows = devices->items;
    for (size_t i = 0; i < MESSAGE_MAX_DEVICES; i++)
        m->device_free_bytes[i] = i < devices->count ? rows[i].memory_free_bytes : 0;
}

void member_models_set(struct member *m, const struct pack_list *models)
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
        utf8_copy(out->name, sizeof out->name, rows[i].name);
        out->bytes = rows[i].bytes;
    }
}

/* ---- the store ---- */

void member_keep(struct coord *c, const struct member *m)
{
    json_t *record = json_pack("{s:s, s:s, s:s, s:b, s:O?}", "key", m->key, "machine", m->machine,
                               "hostname", m->hostname, "draining", m->drain == MEMBER_LEAVES,
                               "node", m->node ? m->node->told : NULL);
    effects_store_json(c, "agent", m->name, record);
}

int member_restore(struct coord *c, const char *name, json_t *record, struct err *e)
{
    const char *key = json_string_value(json_object_get(record, "key"));
    if (!key || strlen(key) != KEY_TEXT - 1)
        return err_set(e, HP_EPARSE, "the store's record agent/%s has no key", name);
    struct member *m = member_add(c, name, key);
    if (!m)
        return err_set(e, HP_ENOMEM, "no memory for agents");
    utf8_copy(m->machine, sizeof m->machine, json_string_value(json_object_get(record, "machine")));
    utf8_copy(m->hostname, sizeof m->hostname,
              json_string_value(json_object_get(record, "hostname")));
    if (json_is_true(json_object_get(record, "draining")))
        m->drain = MEMBER_LEAVES;
    json_t *told = json_deep_copy(json_object_get(record, "node"));
    struct member_node *node = NULL;
    struct err why = {0};
    if (!json_is_object(told) || json_object_set_new(told, "name", json_string(m->name)) < 0)
        json_decref(told); /* it tells its node when it joins */
    else if (member_node_read(told, &node, &why) == 0)
        member_node_set(m, node);
    else
        log_warn("coordinator", "node_dropped", "agent=%s why=\"%s\"", m->name, why.text);
    return 0;
}

/* ---- those that were removed ---- */

/* Those that were removed since the start, so that they can be told. */
const char *member_removed_name(const struct coord *c, const char *key)
{
    for (size_t i = 0; i < COORD_REMOVED; i++)
        if (c->removed[i].key[0] && key_equal(c->removed[i].key, key))
            return c->removed[i].name;
    return NULL;
}

static void removed_note(struct coord *c, const struct member *m)
{
    struct removed_member *r = &c->removed[c->next_removed++ % COORD_REMOVED];
    utf8_copy(r->key, sizeof r->key, m->key);
    utf8_copy(r->name, sizeof r->name, m->name);
}

void member_remove(struct coord *c, struct member *m)
{
    removed_note(c, m);
    member_unmap(c, m);
    for (size_t i = 0; i < c->n_members; i++)
        if (c->members[i] == m) {
            vector_remove(c->members, c->n_members, i);
            break;
        }
    member_free(m);
}
