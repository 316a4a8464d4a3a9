#include "coordinator/joining.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/log.h"
#include "common/names.h"
#include "common/utf8.h"
#include "coordinator/effects.h"
#include "coordinator/holding.h"
#include "coordinator/invites.h"
#include "transport/data_address.h"

/* ---- what an agent tells of itself ---- */

/* The node that an agent told, checked by reading it. NULL with the reason in *e. */
static json_t *node_read(const char *text, struct err *e)
{
    json_error_t why = {0};
    struct member_node *node = NULL;
    json_t *told =
        strlen(text) <= MEMBER_NODE_BYTES ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (!json_is_object(told)) {
        json_decref(told);
        err_set(e, HP_EPARSE, "the node in \"join\" is not a JSON object of at most %d bytes: %s",
                MEMBER_NODE_BYTES, why.text);
        return NULL;
    }
    json_object_del(told, "count");
    if (!json_object_get(told, "name"))
        json_object_set_new(told, "name", json_string("node"));
    int rc = member_node_read(json_incref(told), &node, e);
    member_node_free(&node);
    if (rc == 0)
        return told;
    json_decref(told);
    return NULL;
}

/* ---- whose connections the agents' data endpoints may take ---- */

static void key_add(struct buffer *keys, const char *text)
{
    uint8_t key[KEY_BYTES];
    if (text[0] && key_decode(text, key, NULL) == 0)
        buffer_append(keys, key, sizeof key);
}

void joining_tell(struct coord *c, const struct member *only)
{
    struct buffer keys = {0};
    key_add(&keys, c->admin_key);
    key_add(&keys, c->public_key);
    for (size_t i = 0; i < c->n_members; i++)
        key_add(&keys, c->members[i]->key);
    struct message m = {.type = MESSAGE_MEMBERS};
    m.u.members.keys = (struct pack_span){keys.data, keys.size};
    for (size_t i = 0; i < c->n_members && !keys.failed; i++)
        if (only ? c->members[i] == only : member_present(c->members[i]))
            effects_send(c, c->members[i]->peer, &m);
    buffer_free(&keys);
}

/* ---- who may come in ---- */

/* Frames go where the address says, to whoever has the key in it: that must be the joiner's own.
 * Addresses within a process have no key, and are shorter than any of a network, which knows none
 * of them. */
static int address_check(const char *key, struct pack_span address, struct err *e)
{
    struct data_address a;
    uint8_t own[KEY_BYTES];
    if (address.size <= DATA_INPROC_ADDRESS_BYTES)
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
static int rival_check(struct coord *c, struct member *m, uint64_t peer,
                       const struct message_join *j, struct err *e)
{
    uint64_t now = coord_now(c);
    bool alone = !j->process || !m->process || j->process == m->process || m->peer == peer ||
                 !member_present(m) || now - m->heard_ns >= coord_ms(COORD_SUSPECT_MS);
    if (alone)
        return 0;
    if (m->rival != j->process) {
        m->rival = j->process;
        m->rival_ns = now;
    }
    if (m->heard_ns <= m->rival_ns)
        return now - m->rival_ns < coord_ms(MEMBER_RIVAL_MS) ? HP_PENDING : 0;
    utf8_copy(m->rival_host, sizeof m->rival_host, j->hostname);
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
static int join_check(struct coord *c, struct member *m, uint64_t peer, const char *key,
                      const struct message_join *j, struct member_invite **invite, json_t **told,
                      struct err *e)
{
    int rc = m ? rival_check(c, m, peer, j, e) : invites_check(c, key, j->token, invite, e);
    if (rc != 0 || (rc = address_check(key, j->data_address, e)) < 0)
        return rc;
    *told = node_read(j->node, e);
    return *told ? 0 : e->code;
}

/* ---- joining ---- */

/* The name asked for, reduced to what may stand in --layers and device ids; numbered where another
 * agent has it. */
static void name_choose(struct coord *c, const char *asked, char out[MEMBER_NAME])
{
    char base[MEMBER_NAME - 8];
    name_like(base, sizeof base, asked);
    if (!base[0])
        utf8_copy(base, sizeof base, "agent");
    snprintf(out, MEMBER_NAME, "%s", base);
    for (unsigned k = 2; member_find(c, out); k++)
        snprintf(out, MEMBER_NAME, "%s-%u", base, k);
}

static int member_admit(struct coord *c, const char *key, const struct message_join *j,
                        struct member_invite *invite, struct member **out, struct err *e)
{
    if (c->n_members >= COORD_MAX_MEMBERS)
        return err_set(e, HP_ELIMIT, "this cluster has %d agents already, its limit",
                       COORD_MAX_MEMBERS);
    if (holding_may_change(c, e) < 0)
        return e->code;
    char name[MEMBER_NAME];
    name_choose(c, j->name, name);
    *out = member_add(c, name, key);
    if (!*out)
        return err_set(e, HP_ENOMEM, "no memory for another agent");
    invites_use(c, invite, name);
    return 0;
}

static void member_welcome(struct coord *c, struct member *m, uint64_t id)
{
    struct message w = {.type = MESSAGE_WELCOME, .id = id};
    w.u.welcome.name = m->name;
    w.u.welcome.heartbeat_ms = COORD_HEARTBEAT_MS;
    w.u.welcome.coordinator_boot = c->boot;
    w.u.welcome.data = c->config.data.mode;
    w.u.welcome.trust = c->config.data.trust;
    w.u.welcome.orphan_ms = c->config.resume_ms;
    effects_send(c, m->peer, &w);
}

static void join_refuse(struct coord *c, uint64_t peer, uint64_t id, const struct message_join *j,
                        const struct err *e)
{
    log_warn_limited("coordinator", "join_refused", "name=%.64s host=%.64s why=\"%s\"", j->name,
                     j->hostname, e->text);
    effects_refuse(c, peer, id, e);
}

/* What an agent tells of itself with every join. */
static void member_joined(struct coord *c, struct member *m, uint64_t peer,
                          const struct message_join *j, struct member_node *node)
{
    member_node_set(m, node);
    utf8_copy(m->machine, sizeof m->machine, j->machine);
    utf8_copy(m->hostname, sizeof m->hostname, j->hostname);
    utf8_copy(m->program, sizeof m->program, j->program);
    member_held_set(m, &j->held);
    member_models_set(m, &j->models);
    m->peer = peer;
    m->heard_ns = coord_now(c);
    m->gone_ns = 0;
    if (!j->process || j->process != m->process)
        member_devices_find(m);
    m->process = j->process;
    m->streams_awaited = j->streams > 0;
    m->rival = m->rival_ns = 0;
    m->rival_host[0] = 0;
}

struct member *joining_join(struct coord *c, uint64_t peer, const char *key, uint64_t id,
                            const struct message_join *j)
{
    struct err e = {0};
    struct member *m = member_of_key(c, key);
    struct member_invite *invite = NULL;
    json_t *told = NULL;
    struct member_node *node = NULL;
    bool known = m != NULL;
    int rc = join_check(c, m, peer, key, j, &invite, &told, &e);
    if (rc == HP_PENDING)
        return NULL;
    /* It missed our answers and asks again: over the same connection nothing is lost, so nothing
     * begins anew. */
    bool again =
        m && m->peer == peer && member_present(m) && m->address_size == j->data_address.size &&
        (!m->address_size || memcmp(m->address, j->data_address.data, m->address_size) == 0);
    if (rc == 0 && !known)
        rc = member_admit(c, key, j, invite, &m, &e);
    if (rc == 0 && json_object_set_new(told, "name", json_string(m->name)) < 0)
        rc = err_set(&e, HP_ENOMEM, "no memory for an agent's node");
    if (rc == 0)
        rc = member_node_read(json_incref(told), &node, &e);
    json_decref(told);
    if (rc < 0 || member_address_set(m, j->data_address, &e) < 0) {
        join_refuse(c, peer, id, j, &e);
        member_node_free(&node);
        return NULL;
    }
    member_joined(c, m, peer, j, node);
    if (again) {
        member_welcome(c, m, id);
        joining_tell(c, m);
        return NULL;
    }
    m->joined_ns = coord_now(c);
    m->joins++;
    member_move(m, MEMBER_JOINING);
    member_keep(c, m);
    member_welcome(c, m, id);
    joining_tell(c, known ? m : NULL);
    return m;
}
