#include "coordinator/pools/pool_moves.h"

#include <stdio.h>

#include "common/log.h"
#include "coordinator/effects.h"
#include "coordinator/pools/pool_batches.h"
#include "coordinator/pools/pool_describe.h"
#include "coordinator/pools/pool_load.h"
#include "coordinator/pools/pool_memory.h"
#include "coordinator/pools/pool_orders.h"
#include "coordinator/pools/pool_planning.h"
#include "coordinator/pools/pool_texts.h"

enum {
    SETTLE_MS = 700, /* agents have come or gone for so long before a plan is made */
    RETRY_MS = 2000, /* after a failure, then twice as long, and so on */
    RETRY_MOST_MS = 60000,
    PREPARE_LIMIT_MS = 600000, /* without a word of any share */
    END_LIMIT_MS = 15000, /* a plan that ends has so much longer than its longest deadline, ... */
    END_MOST_MS = 600000, /* ... and no longer than this */
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

void pool_listener_end(struct coord *c, const struct err *why)
{
    struct pool_service *s = c->pools;
    if (s->listener_ask && why)
        effects_answer_error(c, s->listener_peer, s->listener_ask, why);
    else if (s->listener_ask)
        effects_answer_done(c, s->listener_peer, s->listener_ask, pool_describe(c));
    s->listener_peer = s->listener_ask = 0;
}

/* ---- plans come and go ---- */

void pool_moves_current_end(struct coord *c)
{
    struct pool_service *s = c->pools;
    struct pool_plan *p = s->current;
    s->current = NULL;
    if (!p)
        return;
    p->since_ns = coord_now(c);
    p->next = s->ending;
    s->ending = p;
}

void pool_moves_next_drop(struct coord *c)
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
    s->why_next[0] = '\0';
    s->planned_members = s->current->lacks ? 0 : s->current->members;
    effects_store_json(c, "pools", "workload", json_incref(s->spec->document));
    log_info("coordinator", "pools_kept", "models=%d", s->spec->workload.n_models);
}

void pool_moves_fail(struct coord *c, const struct err *why)
{
    struct pool_service *s = c->pools;
    uint64_t wait_ms = RETRY_MS;
    for (unsigned i = 0; i < s->failures && wait_ms < RETRY_MOST_MS; i++)
        wait_ms *= 2;
    wait_ms = wait_ms < RETRY_MOST_MS ? wait_ms : RETRY_MOST_MS;
    s->failures++;
    s->failure = *why;
    s->retry_ns = coord_now(c) + coord_ms(wait_ms);
    log_warn("coordinator", "pools_failed", "why=\"%s\" retry_s=%.0f", why->text,
             (double)wait_ms / 1e3);
    pool_moves_next_drop(c);
    pool_listener_end(c, why);
    spec_revert(c);
}

static void plan_take_over(struct coord *c)
{
    struct pool_service *s = c->pools;
    struct pool_plan *p = s->next;
    s->next = NULL;
    s->moved += s->current != NULL;
    if (s->current)
        pool_counts_move(p->spec, s->current->spec);
    pool_moves_current_end(c);
    s->current = p;
    p->load = pool_load_create(p); /* without it the load is not followed */
    s->plans++;
    s->failures = 0;
    s->failure = (struct err){0};
    pool_orders_upload_end(c, p);
    log_info("coordinator", "pools_serve", "plan=%llu shares=%d agents=%d why=\"%s\"",
             (unsigned long long)p->id, p->topology.n_shares, p->n_peers - 1, p->why);
    pool_listener_end(c, NULL);
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
        pool_moves_fail(c, &e);
        return;
    }
    const char *said = s->why_next[0]                   ? s->why_next
                       : !s->current                    ? "it was applied"
                       : s->current->spec != plan->spec ? "another workload was applied"
                                                        : "agents have come or gone";
    snprintf(plan->why, sizeof plan->why, "%s", said);
    s->why_next[0] = '\0';
    plan->members = s->planned_members;
    pool_moves_next_drop(c);
    s->next = plan;
    pool_memory_note(c);
    pool_orders_prepare(c, plan);
}

void pool_moves_begin(struct coord *c)
{
    struct pool_service *s = c->pools;
    struct err e = {0};
    s->planned_members = pool_members_hash(c, s->spec);
    if (pool_planning_begin(c, s->spec, 0, 0, on_planned, &s->planning, &e) < 0)
        pool_moves_fail(c, &e);
    else
        listener_tell(c, json_pack("{s:s}", "phase", "planning"));
}

void pool_moves_spec_set(struct coord *c, struct pool_spec *spec)
{
    struct pool_service *s = c->pools;
    pool_spec_release(&s->spec);
    s->spec = spec;
    pool_texts_open(c, spec);
    pool_planning_drop(&s->planning);
    pool_planning_drop(&s->mixing);
    s->failures = 0;
    s->retry_ns = 0;
    s->planned_members = 0;
    s->why_next[0] = '\0';
}

void pool_moves_adopt(struct coord *c, struct pool_spec *spec, const char *why)
{
    pool_moves_spec_set(c, spec);
    effects_store_json(c, "pools", "workload", json_incref(spec->document));
    snprintf(c->pools->why_next, sizeof c->pools->why_next, "%s", why);
    pool_moves_begin(c);
}

void pool_moves_again(struct coord *c)
{
    c->pools->planned_members = 0;
    c->pools->seen_ns = coord_now(c);
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

/* When any of its shares was last told or heard. */
static uint64_t plan_heard_ns(const struct pool_plan *p)
{
    uint64_t heard_ns = p->since_ns;
    for (int i = 0; i < p->topology.n_shares; i++)
        if (p->shares[i].told_ns > heard_ns)
            heard_ns = p->shares[i].told_ns;
    return heard_ns;
}

static void next_step(struct coord *c)
{
    struct pool_service *s = c->pools;
    struct err why = {0};
    pool_orders_prepare(c, s->next);
    if (!pool_orders_upload(c, s->next, s->listener_peer, s->listener_ask) && !s->listener_ask) {
        err_set(&why, HP_EBUSY, "no agent has all of the models' files any more");
        err_hint(&why, "`hpctl apply` sends them again");
    } else if (coord_now(c) - plan_heard_ns(s->next) > coord_ms(PREPARE_LIMIT_MS)) {
        err_set(&why, HP_ETIMEOUT, "agents said nothing for %d s", PREPARE_LIMIT_MS / 1000);
    }
    if (why.code) {
        pool_moves_fail(c, &why);
        return;
    }
    listener_tell(c, pool_describe_progress(s->next));
    if (!pool_orders_ready(s->next))
        return;
    pool_orders_connect(c, s->next, NULL);
    plan_take_over(c);
}

/* Whether a plan that ends has had the time to answer all that it had admitted. */
static bool ending_is_over(const struct coord *c, const struct pool_plan *p)
{
    uint64_t most_ns = coord_ms(END_MOST_MS), limit_ns = 0;
    for (int m = 0; m < p->topology.n_models; m++)
        if ((uint64_t)p->topology.models[m].slo_ns > limit_ns)
            limit_ns = (uint64_t)p->topology.models[m].slo_ns;
    limit_ns += coord_ms(END_LIMIT_MS);
    return coord_now(c) - p->since_ns > (limit_ns < most_ns ? limit_ns : most_ns);
}

static void ended_free(struct coord *c)
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
        if (c->pools->current) /* what it has answered since it was replaced */
            pool_counts_move(c->pools->current->spec, p->spec);
        *at = p->next;
        pool_orders_unload(c, p);
        pool_plan_free(&p);
    }
}

void pool_moves_tick(struct coord *c)
{
    struct pool_service *s = c->pools;
    if (plan_is_due(c))
        pool_moves_begin(c);
    if (s->next)
        next_step(c);
    if (s->current)
        pool_batches_expire(c, s->current);
    ended_free(c);
    pool_memory_note(c);
}
