#include "coordinator/pools/pools.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_batches.h"
#include "coordinator/pools/pool_correction.h"
#include "coordinator/pools/pool_describe.h"
#include "coordinator/pools/pool_diff.h"
#include "coordinator/pools/pool_measuring.h"
#include "coordinator/pools/pool_metrics.h"
#include "coordinator/pools/pool_missing.h"
#include "coordinator/pools/pool_mix.h"
#include "coordinator/pools/pool_moves.h"
#include "coordinator/pools/pool_orders.h"
#include "coordinator/pools/pool_planning.h"
#include "coordinator/pools/pool_profiles.h"
#include "coordinator/pools/pool_spec.h"
#include "coordinator/pools/pool_texts.h"

enum { CORRECT_AGAIN_MS = 30000 }; /* a plan shows what it is worth for so long */

/* ---- hpctl ---- */

static void on_dry_plan(struct coord *c, struct pool_plan *plan, uint64_t peer, uint64_t ask,
                        const struct err *why)
{
    if (plan)
        effects_answer(c, peer, ask, false,
                       json_pack("{s:O?, s:O, s:o}", "serves",
                                 c->pools->current ? c->pools->current->report : NULL, "next",
                                 plan->report, "why", pool_diff_reasons(c->pools->current, plan)));
    else
        effects_answer_error(c, peer, ask, why);
    pool_plan_free(&plan);
}

/* With profiles of all models; takes `document`, and writes into it when it was applied. */
static int document_apply(struct coord *c, uint64_t peer, uint64_t ask, json_t *document, bool dry,
                          struct err *e)
{
    struct pool_spec *spec = NULL;
    json_int_t now_s = (json_int_t)coord_unix_s(c);
    if (json_is_object(document) &&
        json_object_set_new(document, "applied_s", json_integer(now_s)) < 0) {
        json_decref(document);
        return err_no_memory(e, "a workload");
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
    pool_listener_end(c, &gone);
    pool_moves_spec_set(c, spec);
    effects_store_json(c, "pools", "workload", json_incref(spec->document));
    c->pools->listener_peer = peer;
    c->pools->listener_ask = ask;
    pool_moves_begin(c);
    return 0;
}

/* What lacked a profile was measured, or could not be: the rest of the way. */
static void on_missing_measured(struct coord *c, const struct pool_measuring_ask *asked,
                                json_t *profile, const struct err *why)
{
    struct err e = *why;
    json_decref(profile); /* it is kept */
    int rc =
        profile ? pools_apply(c, asked->peer, asked->ask, asked->then, asked->dry, &e) : why->code;
    if (!profile)
        json_decref(asked->then);
    if (rc < 0)
        effects_answer_error(c, asked->peer, asked->ask, &e);
}

int pools_apply(struct coord *c, uint64_t peer, uint64_t ask, json_t *document, bool dry,
                struct err *e)
{
    json_t *missing = NULL;
    int rc = pool_service_of(c) ? 0 : err_no_memory(e, "a workload");
    if (rc == 0 && !c->config.data_open)
        rc = err_set(e, HP_EUNSUPPORTED,
                     "this coordinator has no data endpoint, to which results of pools come");
    rc = rc < 0 ? rc : pool_missing_fill(c, document, &missing, e);
    if (rc < 0) {
        json_decref(document);
        return rc;
    }
    if (!missing)
        return document_apply(c, peer, ask, document, dry, e);
    return pool_measuring_begin(c,
                                &(struct pool_measuring_ask){.peer = peer,
                                                             .ask = ask,
                                                             .document = missing,
                                                             .done = on_missing_measured,
                                                             .then = document,
                                                             .dry = dry},
                                e);
}

static void on_measured(struct coord *c, const struct pool_measuring_ask *asked, json_t *profile,
                        const struct err *why)
{
    if (profile)
        effects_answer(c, asked->peer, asked->ask, false, profile);
    else
        effects_answer_error(c, asked->peer, asked->ask, why);
}

int pools_load_diff(struct coord *c, uint64_t peer, uint64_t ask, struct err *e)
{
    return pool_mix_diff(c, peer, ask, e);
}

int pools_measure(struct coord *c, uint64_t peer, uint64_t ask, json_t *document, struct err *e)
{
    return pool_measuring_begin(
        c,
        &(struct pool_measuring_ask){
            .peer = peer, .ask = ask, .document = document, .done = on_measured},
        e);
}

void pools_profiles_describe(const struct coord *c, json_t *rows)
{
    pool_profiles_describe(c, rows);
}

int pools_profiles_remove(struct coord *c, const char *model, const char *kind)
{
    return pool_profiles_remove(c, model, kind);
}

int pools_profile_restore(struct coord *c, const char *key, json_t *value, struct err *e)
{
    return pool_profiles_restore(c, key, value, e);
}

int pools_remove(struct coord *c, struct err *e)
{
    struct pool_service *s = c->pools;
    struct err why = {0};
    if (!s || !s->spec)
        return err_set(e, HP_ENOENT, "nothing is applied");
    err_set(&why, HP_ECANCELED, "the pools were removed");
    pool_listener_end(c, &why);
    pool_planning_drop(&s->planning);
    pool_planning_drop(&s->mixing);
    pool_moves_next_drop(c);
    pool_moves_current_end(c);
    s->failure = (struct err){0};
    pool_spec_release(&s->spec);
    effects_forget(c, "pools", "workload");
    return 0;
}

json_t *pools_describe(struct coord *c)
{
    return pool_describe(c);
}

void pools_metrics(const struct coord *c, metrics_row_fn row, void *out)
{
    pool_metrics_rows(c, row, out);
}

int pools_restore(struct coord *c, const char *key, json_t *value, struct err *e)
{
    struct pool_spec *spec;
    (void)key; /* there is one */
    if (!pool_service_of(c))
        return err_no_memory(e, "a workload");
    int rc = pool_spec_read(json_incref(value), &spec, e);
    if (rc == 0)
        pool_moves_spec_set(c, spec);
    return rc;
}

/* ---- steps ---- */

/* What is off the plan is planned anew with corrected times, which are kept. */
static void correction_step(struct coord *c)
{
    struct pool_service *s = c->pools;
    const struct pool_plan *p = s->current;
    if (!p || s->next || s->planning || p->spec != s->spec ||
        (s->corrected_ns && coord_now(c) - s->corrected_ns < coord_ms(CORRECT_AGAIN_MS)))
        return;
    char why[POOL_WHY];
    struct pool_spec *corrected = pool_correction_make(p, why);
    if (!corrected)
        return;
    log_info("coordinator", "pools_corrected", "plan=%llu why=\"%s\"", (unsigned long long)p->id,
             why);
    s->corrected_ns = coord_now(c);
    pool_moves_adopt(c, corrected, why);
}

void pools_tick(struct coord *c)
{
    if (!c->pools)
        return;
    pool_measuring_tick(c);
    correction_step(c);
    pool_mix_step(c);
    pool_moves_tick(c);
}

/* When the plan's scheduler wants to be asked again. */
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
    /* This plan sends the agent nothing more; the next one has it again, if it is still there. */
    pool_batches_agent_lost(c, p, m);
    pool_moves_again(c);
}

void pools_link_broken(struct coord *c, const uint8_t *address, size_t size)
{
    struct pool_service *s = c->pools;
    for (size_t i = 0; s && i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (m->address_size != size || memcmp(m->address, address, size) != 0)
            continue;
        if (s->current)
            pool_batches_link_broken(c, s->current, m);
        for (struct pool_plan *p = s->ending; p; p = p->next)
            pool_batches_link_broken(c, p, m);
    }
}

bool pools_stage_state(struct coord *c, const struct member *m, const struct message_stage_state *t)
{
    struct pool_plan *p = c->pools ? pool_plan_of(c->pools, t->deployment) : NULL;
    struct err why = {0};
    if (!p)
        return pool_measuring_state(c, m, t);
    if (pool_orders_state(c, p, m, t, &why) == 0)
        return true;
    if (p == c->pools->next) {
        pool_moves_fail(c, &why);
        return true;
    }
    pool_batches_agent_lost(c, p, m);
    if (p == c->pools->current)
        c->pools->planned_members = 0; /* the next one, with that share or without */
    return true;
}

bool pools_profile_result(struct coord *c, const struct member *m, uint64_t id,
                          const struct message_profile_result *r)
{
    return pool_measuring_result(c, m, id, r);
}

bool pools_profile_progress(struct coord *c, const struct member *m, uint64_t id,
                            const struct message_profile_progress *g)
{
    return pool_measuring_progress(c, m, id, g);
}

void pools_share_failed(struct coord *c, const struct member *m,
                        const struct message_share_failed *f)
{
    struct pool_plan *p = c->pools ? pool_plan_of(c->pools, f->deployment) : NULL;
    log_warn_limited("coordinator", "share_failed", "agent=%s share=%llu why=\"%s\"", m->name,
                     (unsigned long long)f->stage, f->text);
    const struct member *beyond =
        p && coord_failure_code(f->code) == HP_ELINK ? pool_batches_beyond(p, m, f) : NULL;
    if (beyond) { /* as where a frame of ours does not reach it */
        pool_batches_agent_lost(c, p, beyond);
        pool_moves_again(c);
    }
    if (p && coord_failure_code(f->code) == HP_ENOENT)
        pool_orders_connect(c, p, m);
    if (p)
        pool_batches_failed(c, p, m, f);
}

void pools_member_lost(struct coord *c, const struct member *m)
{
    struct pool_service *s = c->pools;
    if (!s)
        return;
    pool_measuring_member_lost(c, m);
    for (struct pool_plan *p = s->ending; p; p = p->next)
        pool_batches_agent_lost(c, p, m);
    if (s->current)
        pool_batches_agent_lost(c, s->current, m);
    for (int i = 1; s->next && i < s->next->n_peers; i++)
        if (s->next->peers[i].agent == m) {
            pool_batches_agent_lost(c, s->next, m);
            pool_moves_next_drop(c);
            s->planned_members = 0;
        }
}

void pools_peer_gone(struct coord *c, uint64_t peer)
{
    if (c->pools && c->pools->listener_peer == peer)
        c->pools->listener_peer = c->pools->listener_ask = 0;
    pool_measuring_peer_gone(c, peer);
}

bool pools_has(const struct coord *c, uint64_t deployment)
{
    return c->pools && (pool_plan_of(c->pools, deployment) || pool_measuring_has(c, deployment));
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
    pool_measuring_free(c);
    struct pool_service *s = c->pools;
    c->pools = NULL;
    if (!s)
        return;
    pool_profiles_free(s);
    struct pool_request *r, *next;
    HASH_ITER(hh, s->requests, r, next)
    {
        pool_request_free(s, r);
    }
    pool_planning_drop(&s->planning);
    pool_planning_drop(&s->mixing);
    pool_plan_free(&s->current);
    pool_plan_free(&s->next);
    for (struct pool_plan *p; (p = s->ending) != NULL;) {
        s->ending = p->next;
        pool_plan_free(&p);
    }
    pool_spec_release(&s->spec);
    free(s);
}
