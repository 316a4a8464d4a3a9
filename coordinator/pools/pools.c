#include "coordinator/pools/pools.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_batches.h"
#include "coordinator/pools/pool_describe.h"
#include "coordinator/pools/pool_orders.h"
#include "coordinator/pools/pool_planning.h"
#include "coordinator/pools/pool_spec.h"

enum {
    SETTLE_MS = 700, /* agents have come or gone for so long before a plan is made */
    RETRY_MS = 2000, /* after a failure, then twice as long, and so on */
    RETRY_MOST_MS = 60000,
    PREPARE_LIMIT_MS = 600000, /* without a word of any share */
    END_LIMIT_MS = 15000,      /* a plan that was replaced is waited for so much longer than its
                                  longest deadline, */
    END_MOST_MS = 600000,      /* and never longer */
};

/* ---- who listens ---- */

static void listener_tell(struct coord *c, json_t *part)
{
    const struct pool_service *s = c->pools;
    if (s->listener_ask)
        effects_answer(c, s->listener_peer, s->listener_ask, true, part);
    else
        json_decref(part);
}

static void listener_end(struct coord *c, const struct err *why)
{
    struct pool_service *s = c->pools;
    if (s->listener_ask && why)
        effects_answer_error(c, s->listener_peer, s->listener_ask, why);
    else if (s->listener_ask)
        effects_answer(c, s->listener_peer, s->listener_ask, false, pool_describe(c));
    s->listener_peer = s->listener_ask = 0;
}

void pools_peer_gone(struct coord *c, uint64_t peer)
{
    if (c->pools && c->pools->listener_peer == peer)
        c->pools->listener_peer = c->pools->listener_ask = 0;
}

/* ---- plans come and go ---- */

static void plan_end(struct coord *c, struct pool_plan *p)
{
    struct pool_service *s = c->pools;
    p->begun_ns = coord_now(c);
    p->next = s->ending;
    s->ending = p;
}

static void next_drop(struct coord *c)
{
    struct pool_service *s = c->pools;
    if (!s->next)
        return;
    pool_orders_upload_end(c, s->next);
    pool_orders_unload(c, s->next);
    pool_plan_free(&s->next);
}

/* Another workload that cannot take the place of what serves leaves that as it was. */
static void spec_revert(struct coord *c)
{
    struct pool_service *s = c->pools;
    if (!s->current || !s->spec || s->current->spec == s->spec)
        return;
    pool_spec_release(&s->spec);
    s->spec = pool_spec_use(s->current->spec);
    s->failures = 0;
    s->failure = (struct err){0}; /* whoever applied it was told */
    s->planned_members = s->current->lacks ? 0 : s->current->members;
    effects_store_json(c, "pools", "workload", json_incref(s->spec->document));
    log_info("coordinator", "pools_kept", "models=%d", s->spec->workload.n_models);
}

static void service_failed(struct coord *c, const struct err *why)
{
    struct pool_service *s = c->pools;
    uint64_t wait_ms = RETRY_MS;
    for (unsigned i = 0; i < s->failures && wait_ms < RETRY_MOST_MS; i++)
        wait_ms *= 2;
    s->failures++;
    s->failure = *why;
    s->retry_ns = coord_now(c) + coord_ms(wait_ms < RETRY_MOST_MS ? wait_ms : RETRY_MOST_MS);
    log_warn("coordinator", "pools_failed", "why=\"%s\" retry_s=%.0f", why->text,
             (double)wait_ms / 1e3);
    next_drop(c);
    listener_end(c, why);
    spec_revert(c);
}

static void plan_take_over(struct coord *c)
{
    struct pool_service *s = c->pools;
    struct pool_plan *p = s->next;
    s->next = NULL;
    if (s->current) {
        s->moved++;
        plan_end(c, s->current);
    }
    s->current = p;
    s->plans++;
    s->failures = 0;
    s->failure = (struct err){0};
    pool_orders_upload_end(c, p);
    log_info("coordinator", "pools_serve", "plan=%llu shares=%d agents=%d why=\"%s\"",
             (unsigned long long)p->id, p->topology.n_shares, p->n_peers - 1, p->why);
    listener_end(c, NULL);
}

static void on_planned(struct coord *c, struct pool_plan *plan, uint64_t peer, uint64_t ask,
                       const struct err *why)
{
    struct pool_service *s = c->pools;
    struct err e = *why;
    (void)peer;
    (void)ask; /* the listener is the service's */
    int rc = plan ? pool_orders_begin(c, plan, &e) : e.code;
    if (rc < 0) {
        pool_plan_free(&plan);
        service_failed(c, &e);
        return;
    }
    const char *said = !s->current                      ? "it was applied"
                       : s->current->spec != plan->spec ? "another workload was applied"
                                                        : "agents have come or gone";
    snprintf(plan->why, sizeof plan->why, "%s", said);
    plan->members = s->planned_members;
    next_drop(c);
    s->next = plan;
    pool_orders_prepare(c, plan);
}

static void planning_start(struct coord *c)
{
    struct pool_service *s = c->pools;
    struct err e = {0};
    s->planned_members = pool_members_hash(c, s->spec);
    if (pool_planning_begin(c, s->spec, 0, 0, on_planned, &s->planning, &e) < 0)
        service_failed(c, &e);
    else
        listener_tell(c, json_pack("{s:s}", "phase", "planning"));
}

/* ---- hpctl ---- */

static void on_dry_plan(struct coord *c, struct pool_plan *plan, uint64_t peer, uint64_t ask,
                        const struct err *why)
{
    if (plan)
        effects_answer(c, peer, ask, false,
                       json_pack("{s:O?, s:O}", "serves",
                                 c->pools->current ? c->pools->current->report : NULL, "next",
                                 plan->report));
    else
        effects_answer_error(c, peer, ask, why);
    pool_plan_free(&plan);
}

/* Counts of models that stay go on. */
static void counts_keep(struct pool_spec *to, const struct pool_spec *from)
{
    for (int i = 0; from && i < to->workload.n_models; i++) {
        int old = pool_spec_find(from, to->workload.models[i].name);
        if (old >= 0)
            to->models[i].counts = from->models[old].counts;
    }
}

static void spec_set(struct coord *c, struct pool_spec *spec)
{
    struct pool_service *s = c->pools;
    counts_keep(spec, s->spec);
    pool_spec_release(&s->spec);
    s->spec = spec;
    pool_planning_drop(&s->planning);
    s->failures = 0;
    s->retry_ns = 0;
    s->planned_members = 0;
}

int pools_apply(struct coord *c, uint64_t peer, uint64_t ask, json_t *document, bool dry,
                struct err *e)
{
    struct pool_spec *spec = NULL;
    if (!pool_service_of(c)) {
        json_decref(document);
        return err_no_memory(e, "a workload");
    }
    if (!c->config.data_open) {
        json_decref(document);
        return err_set(e, HP_EUNSUPPORTED,
                       "this coordinator has no data endpoint, which results "
                       "of pools come to");
    }
    int rc = pool_spec_read(document, &spec, e);
    if (rc == 0 && dry) {
        rc = pool_planning_begin(c, spec, peer, ask, on_dry_plan, NULL, e);
        pool_spec_release(&spec);
    }
    if (rc < 0 || dry)
        return rc;
    struct err gone = {0};
    err_set(&gone, HP_ECANCELED, "another workload was applied meanwhile");
    listener_end(c, &gone);
    spec_set(c, spec);
    effects_store_json(c, "pools", "workload", json_incref(spec->document));
    c->pools->listener_peer = peer;
    c->pools->listener_ask = ask;
    planning_start(c);
    return 0;
}

int pools_remove(struct coord *c, struct err *e)
{
    struct pool_service *s = c->pools;
    struct err why = {0};
    if (!s || !s->spec)
        return err_set(e, HP_ENOENT, "nothing is applied");
    err_set(&why, HP_ECANCELED, "the pools were removed");
    listener_end(c, &why);
    pool_planning_drop(&s->planning);
    next_drop(c);
    if (s->current)
        plan_end(c, s->current);
    s->current = NULL;
    s->failure = (struct err){0};
    pool_spec_release(&s->spec);
    effects_forget(c, "pools", "workload");
    return 0;
}

json_t *pools_describe(struct coord *c)
{
    return pool_describe(c);
}

int pools_restore(struct coord *c, const char *key, json_t *value, struct err *e)
{
    struct pool_spec *spec;
    (void)key; /* there is one */
    if (!pool_service_of(c))
        return err_no_memory(e, "a workload");
    int rc = pool_spec_read(json_incref(value), &spec, e);
    if (rc == 0)
        spec_set(c, spec);
    return rc;
}

/* ---- steps ---- */

/* A plan is made when who is there has changed and stayed so for a moment. */
static bool plan_is_due(struct coord *c)
{
    struct pool_service *s = c->pools;
    uint64_t now = coord_now(c), members = s->spec ? pool_members_hash(c, s->spec) : 0;
    if (members != s->seen_members) {
        s->seen_members = members;
        s->seen_ns = now;
    }
    bool has_plan = s->next || s->current;
    return s->spec && !s->planning && members != 0 && now >= s->retry_ns &&
           now - s->seen_ns >= coord_ms(SETTLE_MS) &&
           (members != s->planned_members || !has_plan || (s->failure.code && !s->next));
}

static void next_step(struct coord *c)
{
    struct pool_service *s = c->pools;
    struct err why = {0};
    pool_orders_prepare(c, s->next);
    if (!pool_orders_upload(c, s->next, s->listener_peer, s->listener_ask) && !s->listener_ask) {
        err_set(&why, HP_EBUSY, "no agent has all of the models' files any more");
        err_hint(&why, "`hpctl apply` sends them again");
        service_failed(c, &why);
        return;
    }
    uint64_t heard_ns = s->next->begun_ns;
    for (int i = 0; i < s->next->topology.n_shares; i++)
        if (s->next->shares[i].told_ns > heard_ns)
            heard_ns = s->next->shares[i].told_ns;
    if (coord_now(c) - heard_ns > coord_ms(PREPARE_LIMIT_MS)) {
        err_set(&why, HP_ETIMEOUT, "agents said nothing for %d s", PREPARE_LIMIT_MS / 1000);
        service_failed(c, &why);
        return;
    }
    listener_tell(c, pool_describe_progress(s->next));
    if (!pool_orders_ready(s->next))
        return;
    pool_orders_connect(c, s->next);
    plan_take_over(c);
}

/* It is waited for as long as it may have something to answer. */
static bool ending_is_over(const struct coord *c, const struct pool_plan *p)
{
    uint64_t most_ns = coord_ms(END_MOST_MS), limit_ns = 0;
    for (int m = 0; m < p->topology.n_models; m++)
        if ((uint64_t)p->topology.models[m].slo_ns > limit_ns)
            limit_ns = (uint64_t)p->topology.models[m].slo_ns;
    limit_ns += coord_ms(END_LIMIT_MS);
    return coord_now(c) - p->begun_ns > (limit_ns < most_ns ? limit_ns : most_ns);
}

static void ending_step(struct coord *c)
{
    struct pool_plan **at = &c->pools->ending;
    struct err why = {0};
    err_set(&why, HP_EBUSY, "the plan that this was admitted to has ended");
    while (*at) {
        struct pool_plan *p = *at;
        pool_batches_expire(c, p);
        if (!ending_is_over(c, p) && !pool_batches_idle(p)) {
            at = &p->next;
            continue;
        }
        pool_batches_give_up(c, p, &why);
        *at = p->next;
        pool_orders_unload(c, p);
        pool_plan_free(&p);
    }
}

void pools_tick(struct coord *c)
{
    struct pool_service *s = c->pools;
    if (!s)
        return;
    if (plan_is_due(c))
        planning_start(c);
    if (s->next)
        next_step(c);
    if (s->current)
        pool_batches_expire(c, s->current);
    ending_step(c);
}

static int64_t plan_run(struct coord *c, struct pool_plan *p)
{
    int64_t wake = INT64_MAX;
    pool_batches_run(c, p);
    for (int m = 0; m < p->topology.n_models; m++)
        wake = p->wake_ns[m] < wake ? p->wake_ns[m] : wake;
    return wake;
}

int64_t pools_run(struct coord *c)
{
    struct pool_service *s = c->pools;
    int64_t wake = INT64_MAX;
    if (!s)
        return wake;
    if (s->current)
        wake = plan_run(c, s->current);
    for (struct pool_plan *p = s->ending; p; p = p->next) {
        int64_t own = plan_run(c, p);
        wake = own < wake ? own : wake;
    }
    s->wake_ns = wake;
    return wake;
}

/* ---- what agents say ---- */

void pools_frame(struct coord *c, const struct frame_header *h, const uint8_t *payload)
{
    struct pool_plan *p = c->pools ? pool_plan_of(c->pools, h->deployment) : NULL;
    if (p && h->session == p->peers[0].session && payload)
        pool_batches_result(c, p, h, payload);
    else
        c->counts.stale++;
}

void pools_frame_lost(struct coord *c, const struct frame_header *h)
{
    struct pool_plan *p = c->pools ? pool_plan_of(c->pools, h->deployment) : NULL;
    const struct member *m =
        p && h->stage < p->topology.n_shares ? p->shares[h->stage].agent : NULL;
    if (!m)
        return;
    /* It takes nothing for a while; the next plan has it again, if it is still there. */
    pool_batches_agent_lost(c, p, m);
    c->pools->planned_members = 0;
    c->pools->seen_ns = coord_now(c);
}

bool pools_stage_state(struct coord *c, const struct member *m, const struct message_stage_state *t)
{
    struct pool_plan *p = c->pools ? pool_plan_of(c->pools, t->deployment) : NULL;
    struct err why = {0};
    if (!p)
        return false;
    if (pool_orders_state(c, p, m, t, &why) == 0)
        return true;
    if (p == c->pools->next) {
        service_failed(c, &why);
        return true;
    }
    pool_batches_agent_lost(c, p, m);
    if (p == c->pools->current)
        c->pools->planned_members = 0; /* the next one, with that share or without */
    return true;
}

void pools_share_failed(struct coord *c, const struct member *m,
                        const struct message_share_failed *f)
{
    struct pool_plan *p = c->pools ? pool_plan_of(c->pools, f->deployment) : NULL;
    log_warn_limited("coordinator", "share_failed", "agent=%s share=%llu why=\"%s\"", m->name,
                     (unsigned long long)f->stage, f->text);
    if (p)
        pool_batches_failed(c, p, m, f);
}

void pools_member_lost(struct coord *c, const struct member *m)
{
    struct pool_service *s = c->pools;
    if (!s)
        return;
    for (struct pool_plan *p = s->ending; p; p = p->next)
        pool_batches_agent_lost(c, p, m);
    if (s->current)
        pool_batches_agent_lost(c, s->current, m);
    for (int i = 1; s->next && i < s->next->n_peers; i++)
        if (s->next->peers[i].agent == m) {
            struct err why = {0};
            err_set(&why, HP_ELINK, "agent \"%s\" was lost", m->name);
            pool_batches_agent_lost(c, s->next, m);
            next_drop(c);
            s->planned_members = 0;
        }
}

bool pools_has(const struct coord *c, uint64_t deployment)
{
    return c->pools && pool_plan_of(c->pools, deployment);
}

int pools_sessions(const struct coord *c, uint64_t *out, int max)
{
    const struct pool_service *s = c->pools;
    int n = 0;
    const struct pool_plan *plans[] = {s ? s->current : NULL, s ? s->next : NULL};
    for (int i = 0; i < 2; i++)
        if (plans[i] && plans[i]->peers && n < max)
            out[n++] = plans[i]->peers[0].session;
    for (const struct pool_plan *p = s ? s->ending : NULL; p && n < max; p = p->next)
        out[n++] = p->peers[0].session;
    return n;
}

/* ---- the end ---- */

void pools_free(struct coord *c)
{
    struct pool_service *s = c->pools;
    c->pools = NULL;
    if (!s)
        return;
    struct pool_request *r, *next;
    HASH_ITER(hh, s->requests, r, next)
    {
        pool_request_free(s, r);
    }
    pool_planning_drop(&s->planning);
    pool_plan_free(&s->current);
    pool_plan_free(&s->next);
    for (struct pool_plan *p; (p = s->ending) != NULL;) {
        s->ending = p->next;
        pool_plan_free(&p);
    }
    pool_spec_release(&s->spec);
    free(s);
}
