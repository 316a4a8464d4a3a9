#include "coordinator/drains.h"

#include "common/log.h"
#include "coordinator/deployment.h"
#include "coordinator/describe.h"
#include "coordinator/effects.h"
#include "coordinator/lifecycle_members.h"
#include "coordinator/member.h"
#include "coordinator/placement.h"

/* Serves there, or leaves an agent that drains and may want this one. */
static bool needs_member(struct deployment *d, const struct member *m)
{
    return !d->spec.copy_of[0] && /* copies are made again elsewhere, or not */
           ((d->state == DEPLOYMENT_MOVING && !d->spec.n_ranges && !d->heir) ||
            (deployment_serves(d) && deployment_stage_of(d, m)));
}

static bool member_is_needed(struct coord *c, const struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (needs_member(c->deployments[i], m))
            return true;
    return false;
}

/* It served and will again: just now it is being moved, to this agent or to nobody knows where. */
static bool is_on_its_way(const struct coord *c, struct deployment *d, const struct member *m)
{
    bool again = d->state == DEPLOYMENT_BROKEN && d->until_ns && d->until_ns <= coord_now(c);
    return d->served && !d->spec.copy_of[0] &&
           (d->rebalance || again || d->state == DEPLOYMENT_PLANNED ||
            ((deployment_prepares(d) || d->state == DEPLOYMENT_READY) &&
             deployment_stage_of(d, m)));
}

static int moves_check(struct coord *c, const struct member *m, struct err *e)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        if (!is_on_its_way(c, d, m))
            continue;
        err_set(e, HP_EBUSY,
                "\"%s\" is being moved just now (it is %s), so that nobody knows whether it can do "
                "without agent \"%s\"",
                d->name, deployment_states[d->state].word, m->name);
        return err_hint(e,
                        "drain it when `hpctl ps` says that %s serves; --force drains it now, "
                        "whatever becomes of the deployment",
                        d->name);
    }
    return 0;
}

/* ---- the decision ---- */

/* Draining, for good or until it is known that this cannot be. */
static void drain_set(struct member *m, enum member_drain drain)
{
    m->drain = drain;
    if (m->state == MEMBER_READY || m->state == MEMBER_SUSPECT)
        member_move(m, MEMBER_DRAINING);
}

static void drain_clear(struct coord *c, struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        if (needs_member(d, m) && d->leaves == DEPLOYMENT_LEAVES_ASKED)
            placement_cancel(d);
        if (needs_member(d, m) || deployment_stage_of(d, m))
            d->leaves = DEPLOYMENT_STAYS;
    }
    m->drain = MEMBER_STAYS;
    if (m->state == MEMBER_DRAINING)
        member_move(m, MEMBER_READY);
}

static void drain_accept(struct coord *c, struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (needs_member(c->deployments[i], m) || deployment_stage_of(c->deployments[i], m))
            c->deployments[i]->leaves = DEPLOYMENT_STAYS;
    drain_set(m, MEMBER_LEAVES);
    member_keep(c, m);
    lifecycle_member_drains(c, m);
    if (m->drain_ask)
        effects_answer_done(c, m->drain_peer, m->drain_ask, describe_member(c, m, false));
    m->drain_peer = m->drain_ask = 0;
}

static void drain_refuse(struct coord *c, struct member *m, const struct err *why)
{
    log_info("coordinator", "drain_refused", "agent=%s why=\"%s\"", m->name, why->text);
    drain_clear(c, m);
    if (m->drain_ask)
        effects_answer_error(c, m->drain_peer, m->drain_ask, why);
    m->drain_peer = m->drain_ask = 0;
}

/* 0: this deployment can move; 1: that is being found out; else it cannot, and why. */
static int deployment_can_leave(struct coord *c, struct deployment *d, const struct member *m,
                                struct err *e)
{
    struct placement p;
    struct err why = {0};
    if (d->leaves == DEPLOYMENT_LEAVES)
        return 0;
    if (d->spec.n_ranges && deployment_stage_of(d, m)) {
        err_set(e, HP_EINFEASIBLE,
                "\"%s\" cannot leave agent \"%s\": it was deployed to agents by name "
                "(--agents, --layers or --plan)",
                d->name, m->name);
        return err_hint(e,
                        "undeploy it and deploy it without them, or to others; hpctl node drain "
                        "%s --force drains the agent whatever becomes of the deployment",
                        m->name);
    }
    d->leaves = DEPLOYMENT_LEAVES_ASKED;
    int rc = placement_make(c, d, &p, &why);
    if (rc > 0)
        return rc;
    uint64_t context = rc == 0 ? p.layout->context : 0;
    if (rc == 0)
        placement_free(&p);
    if (rc == 0 && context >= d->context) {
        d->leaves = DEPLOYMENT_LEAVES;
        return 0;
    }
    if (rc == 0)
        err_set(e, HP_EINFEASIBLE,
                "\"%s\" cannot leave agent \"%s\": without it there is room for a context of %llu "
                "tokens, and it has %llu",
                d->name, m->name, (unsigned long long)context, (unsigned long long)d->context);
    else
        err_set(e, HP_EINFEASIBLE, "\"%s\" cannot leave agent \"%s\": %s", d->name, m->name,
                why.text);
    return err_hint(e,
                    "hpctl node drain %s --force takes the agent out of service whatever becomes "
                    "of the deployment",
                    m->name);
}

static void drain_decide(struct coord *c, struct member *m)
{
    bool all = true;
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct err e = {0};
        int rc = needs_member(c->deployments[i], m)
                     ? deployment_can_leave(c, c->deployments[i], m, &e)
                     : 0;
        if (rc < 0) {
            drain_refuse(c, m, &e);
            return;
        }
        all = all && rc == 0;
    }
    if (all)
        drain_accept(c, m);
}

void drains_advance(struct coord *c)
{
    for (size_t i = 0; i < c->n_members; i++)
        if (c->members[i]->drain == MEMBER_ASKS)
            drain_decide(c, c->members[i]);
}

/* ---- what hpctl wants ---- */

int drain_start(struct coord *c, struct member *m, bool force, uint64_t peer, uint64_t ask,
                struct err *e)
{
    if (m->drain == MEMBER_ASKS && !force)
        return err_set(e, HP_EBUSY,
                       "agent \"%s\": whether its deployments can move is being found out already",
                       m->name);
    bool at_once = force || m->drain == MEMBER_LEAVES;
    int rc = at_once ? 0 : moves_check(c, m, e);
    if (rc < 0)
        return rc;
    if (at_once || !member_is_needed(c, m)) {
        drain_accept(c, m);
        return 0;
    }
    drain_set(m, MEMBER_ASKS);
    m->drain_peer = peer;
    m->drain_ask = ask;
    return HP_PENDING;
}

void drain_undo(struct coord *c, struct member *m)
{
    struct err e = {0};
    err_set(&e, HP_ECANCELED, "the draining of agent \"%s\" was taken back", m->name);
    if (m->drain == MEMBER_ASKS)
        drain_refuse(c, m, &e);
    if (m->drain == MEMBER_STAYS)
        return;
    drain_clear(c, m);
    member_keep(c, m);
    lifecycle_member_stays(c);
}

void drains_peer_gone(struct coord *c, uint64_t peer)
{
    for (size_t i = 0; i < c->n_members; i++)
        if (c->members[i]->drain_peer == peer)
            c->members[i]->drain_peer = c->members[i]->drain_ask = 0;
}
