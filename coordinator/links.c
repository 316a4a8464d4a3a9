#include "coordinator/links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/core_int.h"
#include "coordinator/costs.h"
#include "transport/data_choice.h"

/* ---- the matrix, a row a member
 * ----------------------------------------------------------------------------------------- */

static struct member_link *link_of(const struct member *from, const struct member *to)
{
    for (size_t i = 0; i < from->n_links; i++)
        if (from->links[i].to == to)
            return &from->links[i];
    return NULL;
}

static struct member_link *link_make(struct member *from, const struct member *to)
{
    struct member_link *l = link_of(from, to);
    if (!l && (l = core_array_add(&from->links, &from->n_links, sizeof *l)) != NULL)
        l->to = to;
    return l;
}

const struct member_link *links_find(const struct member *from, const struct member *to)
{
    const struct member_link *l = link_of(from, to);
    return l && l->bandwidth_bytes_per_s > 0 ? l : NULL;
}

static void row_keep(struct core *c, const struct member *m)
{
    json_t *row = json_array();
    for (size_t i = 0; i < m->n_links; i++) {
        const struct member_link *l = &m->links[i];
        if (l->bandwidth_bytes_per_s > 0)
            json_array_append_new(row, json_pack("{s:s, s:f, s:f, s:I}", "to", l->to->name,
                                                 "bandwidth_bytes_per_s", l->bandwidth_bytes_per_s,
                                                 "latency_s", l->latency_s, "measured_s",
                                                 (json_int_t)l->measured_s));
    }
    core_keep_json(c, "link", m->name, row);
}

int links_restore(struct core *c, const char *name, const json_t *record, struct err *e)
{
    struct member *from = member_find(c, name);
    const json_t *row;
    size_t i;
    if (!json_is_array(record))
        return err_set(e, HP_EPARSE, "the store's record link/%s is not a list", name);
    json_array_foreach(record, i, row)
    {
        double bandwidth = json_number_value(json_object_get(row, "bandwidth_bytes_per_s")),
               latency = json_number_value(json_object_get(row, "latency_s"));
        if (!isfinite(bandwidth) || bandwidth <= 0 || !isfinite(latency) || latency < 0)
            return err_set(e, HP_EPARSE, "the store's record link/%s has no speed in row %zu", name,
                           i);
        const char *other = json_string_value(json_object_get(row, "to"));
        const struct member *to = other ? member_find(c, other) : NULL;
        struct member_link *l = from && to ? link_make(from, to) : NULL;
        if (from && to && !l)
            return err_set(e, HP_ENOMEM, "no memory for measured links");
        if (!l)
            continue;
        c->links_version++;
        l->bandwidth_bytes_per_s = bandwidth;
        l->latency_s = latency;
        l->measured_s = (uint64_t)json_integer_value(json_object_get(row, "measured_s"));
    }
    return 0;
}

/* ---- telling agents
 * --------------------------------------------------------------------------------------------------------
 */

static void tell(struct core *c, const struct member *m, const char *role,
                 const struct member *peer)
{
    struct message p = {.type = MESSAGE_LINK_PROBE, .id = c->probe.id};
    p.u.link_probe = (struct message_link_probe){
        .session = c->probe.session,
        .role = role,
        .peer = peer ? peer->name : "",
        .data_address = {peer ? peer->address : NULL, peer ? peer->address_size : 0}};
    if (m->peer)
        core_say(c, m->peer, &p);
}

/* ---- what people are told
 * --------------------------------------------------------------------------------------------------
 */

/* "tcp 10.0.0.5:7071": where an agent's data channel listens, for people and their firewalls. */
void links_address_text(const struct member *m, char *out, size_t size)
{
    struct data_address a;
    if (data_address_parse(m->address, m->address_size, &a, NULL) == 0)
        snprintf(out, size, "%s %s:%u", data_kind_word(a.kind), a.host, (unsigned)a.port);
    else
        snprintf(out, size, "its data channel");
}

json_t *links_cluster(const struct core *c)
{
    json_t *cluster = costs_cluster(c), *unreachable = json_array();
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_links; k++) {
            const struct member *from = c->members[i];
            const struct member_link *l = &from->links[k];
            char address[160];
            if (!l->failure[0] || !member_present(from) || !member_present(l->to))
                continue;
            links_address_text(l->to, address, sizeof address);
            json_array_append_new(unreachable,
                                  json_pack("{s:s, s:s, s:s, s:s}", "from", from->name, "to",
                                            l->to->name, "address", address, "why", l->failure));
        }
    if (json_array_size(unreachable))
        json_object_set(cluster, "unreachable", unreachable);
    json_decref(unreachable);
    return cluster;
}

/* ---- who waits for it
 * ------------------------------------------------------------------------------------------------------
 */

static void asks_tell(struct core *c, const struct member *from, const struct member *to)
{
    for (size_t i = 0; i < c->n_links_asks; i++)
        core_answer(
            c, c->links_asks[i].peer, c->links_asks[i].id, true,
            json_pack("{s:s, s:s, s:s}", "phase", "measure", "from", from->name, "to", to->name));
}

static void asks_answer(struct core *c)
{
    for (size_t i = 0; i < c->n_links_asks; i++)
        core_answer(c, c->links_asks[i].peer, c->links_asks[i].id, false, links_cluster(c));
    free(c->links_asks);
    c->links_asks = NULL;
    c->n_links_asks = 0;
}

int links_measure(struct core *c, uint64_t peer, uint64_t id, struct err *e)
{
    struct links_ask *ask = core_array_add(&c->links_asks, &c->n_links_asks, sizeof *ask);
    if (!ask)
        return err_set(e, HP_ENOMEM, "no memory for another question");
    *ask = (struct links_ask){peer, id};
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_links; k++)
            c->members[i]->links[k].due_ns = 0;
    c->pairs_idle = 0;
    return 0;
}

void links_peer_gone(struct core *c, uint64_t peer)
{
    for (size_t i = c->n_links_asks; i-- > 0;)
        if (c->links_asks[i].peer == peer)
            core_array_remove(c->links_asks, &c->n_links_asks, sizeof *c->links_asks, i);
}

/* ---- one probe
 * ------------------------------------------------------------------------------------------------------------
 */

static void probe_begin(struct core *c, struct member *from, struct member *to)
{
    asks_tell(c, from, to);
    c->probe = (struct links_probe){.id = env_random_u64(c->env) | 1,
                                    .from = from,
                                    .to = to,
                                    .until_ns = core_now(c) + core_ms(LINKS_ANSWER_MS)};
    while (!c->probe.session)
        c->env->random_bytes(c->env->ctx, (uint8_t *)&c->probe.session, sizeof c->probe.session);
    tell(c, to, "echo", from);
}

/* Whatever came of it: both ends let go, and the pair has its next time. */
static void probe_end(struct core *c, uint64_t again_ms)
{
    struct member_link *l = link_make(c->probe.from, c->probe.to);
    tell(c, c->probe.from, "end", NULL);
    tell(c, c->probe.to, "end", NULL);
    if (l)
        l->due_ns = core_now(c) + core_ms(again_ms);
    c->probe = (struct links_probe){0};
}

static void probe_fail(struct core *c, const char *why)
{
    struct member_link *l = link_make(c->probe.from, c->probe.to);
    if (l)
        core_text_set(l->failure, sizeof l->failure, why);
    log_warn("coordinator", "link_not_measured", "from=%s to=%s why=\"%s\"", c->probe.from->name,
             c->probe.to->name, why);
    probe_end(c, LINKS_RETRY_MS);
}

/* What the network cards of both ends can do; 0: not known (or one box, whose loopback no card
 * bounds). */
static double cards_bound(const struct member *from, const struct member *to)
{
    double bound = 0;
    if (strcmp(from->machine, to->machine) == 0)
        return 0;
    for (int i = 0; i < 2; i++) {
        const json_t *nic = json_array_get(json_object_get((i ? to : from)->node, "nics"), 0);
        double speed = json_number_value(json_object_get(nic, "bandwidth_bytes_per_s"));
        if (speed > 0 && !json_is_true(json_object_get(nic, "assumed")) &&
            (bound == 0 || speed < bound))
            bound = speed;
    }
    return bound;
}

/* A result that differs much from the last is believed when it comes twice: one stall of a network
 * makes a wrong one. */
static bool result_doubted(struct core *c, struct member_link *l, double bytes_per_s)
{
    double last = l->bandwidth_bytes_per_s, doubted = l->doubted_bytes_per_s;
    bool strange = last > 0 && (bytes_per_s > LINKS_DOUBT_TIMES * last ||
                                bytes_per_s * LINKS_DOUBT_TIMES < last);
    bool again = doubted > 0 && bytes_per_s < 2 * doubted && bytes_per_s > 0.5 * doubted;
    l->doubted_bytes_per_s = strange && !again ? bytes_per_s : 0;
    if (!strange || again)
        return false;
    log_info("coordinator", "link_doubted", "from=%s to=%s bandwidth_bytes_per_s=%.4g last=%.4g",
             c->probe.from->name, l->to->name, bytes_per_s, last);
    probe_end(c, LINKS_DOUBT_MS);
    return true;
}

static void measured(struct core *c, const struct message_link_result *told)
{
    double bound = cards_bound(c->probe.from, c->probe.to);
    struct message_link_result own = *told;
    const struct message_link_result *r = &own;
    if (bound > 0 && own.bandwidth_bytes_per_s > bound)
        own.bandwidth_bytes_per_s = bound;
    struct member *from = c->probe.from;
    struct member_link *l = link_make(from, c->probe.to);
    if (!l || result_doubted(c, l, r->bandwidth_bytes_per_s))
        return;
    /* The store is asked only when there is news. */
    bool news =
        fabs(r->bandwidth_bytes_per_s - l->bandwidth_bytes_per_s) > 0.2 * l->bandwidth_bytes_per_s;
    c->links_version += news;
    l->bandwidth_bytes_per_s = r->bandwidth_bytes_per_s;
    l->latency_s = r->latency_s;
    l->measured_s = core_unix_s(c);
    l->failure[0] = '\0';
    log_info("coordinator", "link_measured",
             "from=%s to=%s bandwidth_bytes_per_s=%.4g latency_s=%.3g", from->name, l->to->name,
             l->bandwidth_bytes_per_s, l->latency_s);
    if (news)
        row_keep(c, from);
    uint64_t round_ms = (uint64_t)c->n_members * c->n_members * LINKS_PAIR_MS;
    probe_end(c, round_ms > LINKS_REFRESH_MS ? round_ms : LINKS_REFRESH_MS);
}

void links_result(struct core *c, struct member *m, uint64_t id,
                  const struct message_link_result *r)
{
    struct links_probe *p = &c->probe;
    if (!id || id != p->id || m != (p->echoing ? p->from : p->to))
        return;
    if (r->code[0] && strcmp(r->code, "ok") != 0) {
        probe_fail(c, r->text);
    } else if (!p->echoing) {
        p->echoing = true;
        tell(c, p->from, "measure", p->to);
    } else if (isfinite(r->bandwidth_bytes_per_s) && r->bandwidth_bytes_per_s > 0 &&
               isfinite(r->latency_s) && r->latency_s >= 0) {
        measured(c, r);
    } else {
        probe_fail(c, "the agent told no speed");
    }
}

/* ---- whose turn it is
 * ------------------------------------------------------------------------------------------------------
 */

/* Nothing of it runs, nothing is on its way to it, nobody measures on it. */
static bool idle(struct core *c, const struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        bool working = d->n_active || d->n_waiting || d->state == DEPLOYMENT_PREPARING ||
                       d->state == DEPLOYMENT_READY;
        if ((d->state == DEPLOYMENT_PLANNED && d->profile_until_ns > core_now(c)) ||
            (working && stages_of_member(d, m)))
            return false;
    }
    for (size_t i = 0; i < c->n_relays; i++)
        if (c->relays[i].type == MESSAGE_PROFILE_RESULT)
            return false;
    return true;
}

/* Paced agents stand for devices whose links are given. */
static bool takes_part(struct core *c, const struct member *m)
{
    return member_available(m) && m->address_size && !costs_paced_as(m)[0] &&
           core_now(c) - m->joined_ns >= core_ms(LINKS_SETTLE_MS) && idle(c, m);
}

/* Looks at some pairs a tick, going round, so that a large cluster costs no more than a small one.
 */
void links_tick(struct core *c)
{
    size_t n = c->n_members;
    if (c->probe.id && core_now(c) >= c->probe.until_ns)
        probe_fail(c, "an agent did not answer");
    if (c->probe.id)
        return;
    if (c->n_links_asks && (n < 2 || c->pairs_idle >= n * n))
        asks_answer(c);
    for (size_t i = 0; n >= 2 && i < LINKS_SCAN && i < n * n; i++) {
        c->pairs_idle++;
        size_t pair = c->next_pair++ % (n * n);
        struct member *from = c->members[pair / n], *to = c->members[pair % n];
        const struct member_link *l = from == to ? NULL : link_of(from, to);
        if (from != to && (!l || l->due_ns <= core_now(c)) && takes_part(c, from) &&
            takes_part(c, to)) {
            c->pairs_idle = 0;
            probe_begin(c, from, to);
            return;
        }
    }
}

/* ---- who comes and goes
 * ----------------------------------------------------------------------------------------------------
 */

static void probe_forget(struct core *c, const struct member *m)
{
    if (c->probe.id && (c->probe.from == m || c->probe.to == m))
        probe_end(c, LINKS_SETTLE_MS);
}

void links_member_joined(struct core *c, struct member *m)
{
    probe_forget(c, m);
    for (size_t i = 0; i < m->n_links; i++)
        m->links[i].due_ns = 0;
    for (size_t i = 0; i < c->n_members; i++) {
        struct member_link *l = link_of(c->members[i], m);
        if (l)
            l->due_ns = 0;
    }
}

void links_member_removed(struct core *c, struct member *m)
{
    probe_forget(c, m);
    if (m->n_links)
        core_forget(c, "link", m->name);
    for (size_t i = 0; i < c->n_members; i++) {
        struct member *other = c->members[i];
        for (size_t k = other->n_links; k-- > 0;)
            if (other->links[k].to == m)
                core_array_remove(other->links, &other->n_links, sizeof *other->links, k);
    }
}
