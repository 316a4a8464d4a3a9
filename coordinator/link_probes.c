#include "coordinator/link_probes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/asks.h"
#include "coordinator/deployment.h"
#include "coordinator/effects.h"
#include "coordinator/late_links.h"
#include "coordinator/topology.h"

/* hpctl waits until every link has been measured that can be (`topo --measure`). */
struct links_ask {
    uint64_t peer, id;
};

/* ---- telling agents ---- */

static void probe_tell(struct coord *c, const struct member *m, const char *role,
                       const struct member *peer)
{
    struct message p = {.type = MESSAGE_LINK_PROBE, .id = c->probe.id};
    p.u.link_probe = (struct message_link_probe){
        .session = c->probe.session,
        .role = role,
        .peer = peer ? peer->name : "",
        .data_address = {peer ? peer->address : NULL, peer ? peer->address_size : 0}};
    if (m->peer)
        effects_send(c, m->peer, &p);
}

/* ---- who waits for it ---- */

static void asks_tell(struct coord *c, const struct member *from, const struct member *to)
{
    for (size_t i = 0; i < c->n_links_asks; i++)
        effects_answer(
            c, c->links_asks[i].peer, c->links_asks[i].id, true,
            json_pack("{s:s, s:s, s:s}", "phase", "measure", "from", from->name, "to", to->name));
}

static void asks_answer(struct coord *c)
{
    for (size_t i = 0; i < c->n_links_asks; i++)
        effects_answer(c, c->links_asks[i].peer, c->links_asks[i].id, false, topology_document(c));
    free(c->links_asks);
    c->links_asks = NULL;
    c->n_links_asks = c->room_links_asks = 0;
    c->doubts_until_ns = 0;
}

static bool doubt_exists(const struct coord *c)
{
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_links; k++)
            if (links_is_doubted(c->members[i], &c->members[i]->links[k]))
                return true;
    return false;
}

/* Who asked gets what was measured, not what was known before: a doubted result is measured again
 * before the answer, which does not wait for ever for a network that is never the same. */
static bool asks_wait_for_doubts(struct coord *c)
{
    if (!doubt_exists(c))
        return false;
    if (!c->doubts_until_ns)
        c->doubts_until_ns = coord_now(c) + coord_ms(LINKS_DOUBTS_MS);
    return coord_now(c) < c->doubts_until_ns;
}

int link_probes_ask(struct coord *c, uint64_t peer, uint64_t id, struct err *e)
{
    struct links_ask *ask = vector_add(c->links_asks, c->n_links_asks, c->room_links_asks);
    if (!ask)
        return err_set(e, HP_ENOMEM, "no memory for another question");
    *ask = (struct links_ask){peer, id};
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_links; k++)
            c->members[i]->links[k].due_ns = 0;
    c->pairs_idle = 0;
    return 0;
}

void link_probes_peer_gone(struct coord *c, uint64_t peer)
{
    for (size_t i = c->n_links_asks; i-- > 0;)
        if (c->links_asks[i].peer == peer)
            vector_remove(c->links_asks, c->n_links_asks, i);
}

/* ---- one probe ---- */

static void probe_begin(struct coord *c, struct member *from, struct member *to)
{
    asks_tell(c, from, to);
    c->probe = (struct links_probe){.id = env_random_u64(c->env) | 1,
                                    .from = from,
                                    .to = to,
                                    .until_ns = coord_now(c) + coord_ms(LINKS_ANSWER_MS)};
    while (!c->probe.session)
        c->env->random_bytes(c->env->ctx, (uint8_t *)&c->probe.session, sizeof c->probe.session);
    probe_tell(c, to, "echo", from);
}

/* Whatever came of it: both ends let go, and the pair has its next time. */
static void probe_end(struct coord *c, uint64_t again_ms)
{
    struct member_link *l = links_make(c->probe.from, c->probe.to);
    probe_tell(c, c->probe.from, "end", NULL);
    probe_tell(c, c->probe.to, "end", NULL);
    if (l)
        l->due_ns = coord_now(c) + coord_ms(again_ms);
    c->probe = (struct links_probe){0};
}

static void probe_fail(struct coord *c, const char *why)
{
    struct member_link *l = links_make(c->probe.from, c->probe.to);
    if (l)
        utf8_copy(l->failure, sizeof l->failure, why);
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
        const struct member_node *node = (i ? to : from)->node;
        double speed = node ? node->nic_bytes_per_s : 0;
        if (speed > 0 && (bound <= 0 || speed < bound))
            bound = speed;
    }
    return bound;
}

/* A result that differs much from the last is believed when it comes twice: one stall of a network
 * makes a wrong one. */
static bool result_doubted(struct coord *c, struct member_link *l, double bytes_per_s)
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

static void probe_measured(struct coord *c, const struct message_link_result *told)
{
    double bound = cards_bound(c->probe.from, c->probe.to);
    struct message_link_result own = *told;
    const struct message_link_result *r = &own;
    if (bound > 0 && own.bandwidth_bytes_per_s > bound)
        own.bandwidth_bytes_per_s = bound;
    struct member *from = c->probe.from;
    struct member_link *l = links_make(from, c->probe.to);
    if (!l || result_doubted(c, l, r->bandwidth_bytes_per_s))
        return;
    /* The store is asked only when there is news. */
    bool news =
        late_links_measured(from, l, r->latency_s) ||
        fabs(r->bandwidth_bytes_per_s - l->bandwidth_bytes_per_s) > 0.2 * l->bandwidth_bytes_per_s;
    c->links_version += news;
    l->bandwidth_bytes_per_s = r->bandwidth_bytes_per_s;
    l->measured_s = coord_unix_s(c);
    l->failure[0] = '\0';
    log_info("coordinator", "link_measured",
             "from=%s to=%s bandwidth_bytes_per_s=%.4g latency_s=%.3g", from->name, l->to->name,
             l->bandwidth_bytes_per_s, r->latency_s);
    if (news)
        links_keep(c, from);
    uint64_t round_ms = (uint64_t)c->n_members * c->n_members * LINKS_PAIR_MS;
    bool over_soon = l->loss > 0 || l->late_s > 0; /* it may be */
    uint64_t again_ms = over_soon ? LINKS_RETRY_MS : LINKS_REFRESH_MS;
    probe_end(c, round_ms > again_ms ? round_ms : again_ms);
}

void link_probes_result(struct coord *c, struct member *m, uint64_t id,
                        const struct message_link_result *r)
{
    struct links_probe *p = &c->probe;
    if (!id || id != p->id || m != (p->echoing ? p->from : p->to))
        return;
    if (r->code[0] && strcmp(r->code, "ok") != 0) {
        probe_fail(c, r->text);
    } else if (!p->echoing) {
        p->echoing = true;
        probe_tell(c, p->from, "measure", p->to);
    } else if (isfinite(r->bandwidth_bytes_per_s) && r->bandwidth_bytes_per_s > 0 &&
               isfinite(r->latency_s) && r->latency_s >= 0) {
        probe_measured(c, r);
    } else {
        probe_fail(c, "the agent told no speed");
    }
}

/* ---- whose turn it is ---- */

/* Nothing of it runs, nothing is on its way to it, nobody measures on it. */
static bool member_is_idle(struct coord *c, const struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        bool working =
            d->n_active || d->n_waiting || deployment_prepares(d) || d->state == DEPLOYMENT_READY;
        if ((d->state == DEPLOYMENT_PLANNED && d->profile_until_ns > coord_now(c)) ||
            (working && deployment_stage_of(d, m)))
            return false;
    }
    for (size_t i = 0; i < c->n_asks; i++)
        if (c->asks[i].type == MESSAGE_PROFILE_RESULT)
            return false;
    return true;
}

/* Paced agents stand for devices whose links are given. */
static bool takes_part(struct coord *c, const struct member *m)
{
    return member_available(m) && m->address_size && !member_paced_as(m)[0] &&
           coord_now(c) - m->joined_ns >= coord_ms(LINKS_SETTLE_MS) && member_is_idle(c, m);
}

/* Looks at some pairs a tick, going round, so that a large cluster costs no more than a small one.
 */
void link_probes_tick(struct coord *c)
{
    size_t n = c->n_members;
    if (c->probe.id && coord_now(c) >= c->probe.until_ns)
        probe_fail(c, "an agent did not answer");
    if (c->probe.id)
        return;
    if (c->n_links_asks && (n < 2 || c->pairs_idle >= n * n) && !asks_wait_for_doubts(c))
        asks_answer(c);
    for (size_t i = 0; n >= 2 && i < LINKS_SCAN && i < n * n; i++) {
        c->pairs_idle++;
        size_t pair = c->next_pair++ % (n * n);
        struct member *from = c->members[pair / n], *to = c->members[pair % n];
        const struct member_link *l = from == to ? NULL : links_cell(from, to);
        if (from != to && (!l || l->due_ns <= coord_now(c)) && takes_part(c, from) &&
            takes_part(c, to)) {
            c->pairs_idle = 0;
            probe_begin(c, from, to);
            return;
        }
    }
}

/* ---- who comes and goes ---- */

static void probe_forget(struct coord *c, const struct member *m)
{
    if (c->probe.id && (c->probe.from == m || c->probe.to == m))
        probe_end(c, LINKS_SETTLE_MS);
}

void link_probes_member_joined(struct coord *c, struct member *m)
{
    probe_forget(c, m);
    for (size_t i = 0; i < m->n_links; i++)
        m->links[i].due_ns = 0;
    for (size_t i = 0; i < c->n_members; i++) {
        struct member_link *l = links_cell(c->members[i], m);
        if (l)
            l->due_ns = 0;
    }
}

void link_probes_member_removed(struct coord *c, struct member *m)
{
    probe_forget(c, m);
}

void link_probes_free(struct coord *c)
{
    free(c->links_asks);
}
