#include "coordinator/membership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/arrivals.h"
#include "coordinator/deployment.h"
#include "coordinator/effects.h"
#include "coordinator/joining.h"
#include "coordinator/link_probes.h"
#include "coordinator/pools/pools.h"

enum { LOADING_MOST = 64 }; /* deployments that an agent is told of */

bool membership_heartbeat(struct coord *c, struct member *m, const struct message_heartbeat *h)
{
    m->heard_ns = coord_now(c);
    m->gone_ns = 0;
    m->memory_free_bytes = h->memory_free_bytes;
    m->dropped_stale = h->dropped_stale;
    m->dropped_foreign = h->dropped_foreign;
    m->data_sent_bytes = h->data_sent_bytes;
    m->data_received_bytes = h->data_received_bytes;
    member_held_set(m, &h->held);
    member_free_set(m, &h->devices);
    struct message_loading loading[LOADING_MOST];
    struct message ack = {.type = MESSAGE_HEARTBEAT_ACK};
    ack.u.heartbeat_ack.number = h->number;
    ack.u.heartbeat_ack.loading.items = loading;
    ack.u.heartbeat_ack.loading.count = arrivals_of_member(c, m, loading, LOADING_MOST);
    effects_send(c, m->peer, &ack);
    if (m->state != MEMBER_JOINING && m->state != MEMBER_SUSPECT)
        return false;
    member_move(m, m->drain ? MEMBER_DRAINING : MEMBER_READY);
    return true;
}

static void member_lose(struct member *m, uint64_t silent_ns, char *why, size_t size)
{
    snprintf(why, size, "agent \"%s\" was lost: no sign of it for %.1f s", m->name,
             (double)silent_ns * 1e-9);
    member_move(m, MEMBER_LOST);
    m->peer = 0;
    member_held_set(m, NULL);
}

/* Whether its neighbours say that a link to it broke, too. */
static bool member_is_doubted(struct coord *c, const struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (coord_now(c) < c->deployments[i]->doubted_ns &&
            deployment_stage_of(c->deployments[i], m))
            return true;
    return false;
}

/* How long it may be silent: one whose connection is closed is most likely dead, and would be back
 * by then if it was not. */
static uint64_t patience_ms(struct coord *c, const struct member *m)
{
    return !m->gone_ns               ? COORD_LOST_MS
           : member_is_doubted(c, m) ? COORD_GONE_DOUBTED_MS
                                     : COORD_GONE_MS;
}

/* Sending finds out whether the connection is still there. */
static void member_call(struct coord *c, struct member *m)
{
    struct message ack = {.type = MESSAGE_HEARTBEAT_ACK};
    ack.u.heartbeat_ack.number = 0;
    effects_send(c, m->peer, &ack);
}

struct member *membership_tick(struct coord *c, char *why, size_t size)
{
    uint64_t now = coord_now(c);
    for (size_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];
        if (m->state == MEMBER_LOST)
            continue;
        uint64_t silent = now - m->heard_ns;
        if (m->state == MEMBER_READY && (m->gone_ns || silent >= coord_ms(COORD_SUSPECT_MS)))
            member_move(m, MEMBER_SUSPECT);
        if (silent >= coord_ms(COORD_CALL_MS) && !m->gone_ns)
            member_call(c, m);
        if (silent >= coord_ms(patience_ms(c, m))) {
            member_lose(m, silent, why, size);
            return m;
        }
    }
    return NULL;
}

void membership_peer_gone(struct coord *c, uint64_t peer)
{
    for (size_t i = 0; i < c->n_members; i++)
        if (c->members[i]->peer == peer && c->members[i]->state != MEMBER_LOST) {
            c->members[i]->gone_ns = coord_now(c);
            if (c->members[i]->state == MEMBER_READY)
                member_move(c->members[i], MEMBER_SUSPECT);
        }
}

int membership_remove(struct coord *c, struct member *m, struct err *e)
{
    if (deployments_use(c, m)) {
        err_set(e, HP_EBUSY, "agent \"%s\" holds stages of a deployment", m->name);
        return err_hint(e, "hpctl node drain %s moves them away", m->name);
    }
    if (m->state != MEMBER_LOST && m->state != MEMBER_DRAINING) {
        err_set(e, HP_EBUSY, "agent \"%s\" is %s", m->name, member_states[m->state].word);
        return err_hint(e, "stop it, or drain it first: hpctl node drain %s", m->name);
    }
    struct err told = {0};
    err_set(&told, HP_EDENIED, "agent \"%s\" was removed from this cluster", m->name);
    effects_refuse(c, m->peer, 0, &told);
    log_info("coordinator", "member_removed", "agent=%s", m->name);
    effects_forget(c, "agent", m->name);
    link_probes_member_removed(c, m);
    links_member_removed(c, m);
    pools_member_lost(c, m); /* a plan that ends may still name it */
    member_remove(c, m);
    joining_tell(c, NULL);
    return 0;
}
