#include "coordinator/pools/pool_measuring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/log.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_describe.h"
#include "coordinator/pools/pool_measure_runs.h"
#include "coordinator/pools/pool_orders.h"
#include "coordinator/pools/pool_profiles.h"
#include "coordinator/pools/pool_spec.h"
#include "coordinator/stages.h"
#include "transport/stage_state.h"

enum { SILENCE_MS = 600000 /* of an agent, while it loads or measures */ };

/* ---- the end ---- */

static void measuring_unload(struct coord *c, struct pool_measuring *g)
{
    pool_orders_upload_end(c, g->plan);
    for (int i = 0; i < g->plan->topology.n_shares; i++) {
        const struct member *m = g->plan->shares[i].agent;
        if (m && m->peer && g->plan->shares[i].state != POOL_SHARE_UNTOLD)
            stages_unload(c, m, g->plan->id, 1);
    }
}

static void measuring_free(struct pool_measuring *g)
{
    for (int i = 0; g->runs && i < g->plan->topology.n_shares; i++)
        json_decref(g->runs[i].profile);
    free(g->runs);
    pool_plan_free(&g->plan);
    json_decref(g->failed);
    json_decref(g->ask.then);
    free(g);
}

/* Out of the list, and off its agents. */
static void measuring_take(struct coord *c, struct pool_measuring *g)
{
    struct pool_measuring **at = &c->pools->measurings;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    measuring_unload(c, g);
}

static struct pool_profile_of network_of(const struct pool_measuring *g)
{
    const json_t *network = json_object_get(g->plan->spec->document, "network");
    return (struct pool_profile_of){g->plan->spec->models[0].id, json_object_get(network, "dims")};
}

/* The profiles of kinds, those of several agents of a kind in one. Returns how many. */
static int kinds_collect(struct pool_measuring *g, json_t **profiles, const char **kinds)
{
    int n = 0;
    for (int i = 0; i < g->plan->topology.n_shares; i++) {
        struct pool_measure_run *r = &g->runs[i];
        int k = 0;
        struct err why = {0};
        while (k < n && strcmp(kinds[k], r->kind) != 0)
            k++;
        if (!r->profile)
            continue;
        if (k == n) {
            profiles[n] = r->profile;
            kinds[n++] = r->kind;
        } else if (pool_profiles_slower(profiles[k], r->profile, &why) < 0) {
            json_array_append_new(g->failed, json_pack("{s:s, s:s, s:s}", "kind", r->kind, "code",
                                                       status_word(why.code), "message", why.text));
        }
    }
    return n;
}

static int profile_make(struct coord *c, struct pool_measuring *g, json_t **out, struct err *e)
{
    int n = g->plan->topology.n_shares, rc = 0;
    json_t **profiles = calloc((size_t)n + 1, sizeof *profiles);
    const char **kinds = calloc((size_t)n + 1, sizeof *kinds);
    struct pool_profile_of of = network_of(g);
    if (!profiles || !kinds)
        rc = err_no_memory(e, "a profile");
    int n_kinds = rc == 0 ? kinds_collect(g, profiles, kinds) : 0;
    for (int k = 0; k < n_kinds && rc == 0; k++)
        rc = pool_profiles_set(c, &of, g->plan->spec->models[0].facts.name, kinds[k], profiles[k],
                               e);
    if (rc == 0 && n_kinds == 0)
        rc = (*e = g->first).code;
    if (rc == 0)
        rc = pool_profiles_join(profiles, kinds, n_kinds, g->blocks, &g->split, g->failed, out, e);
    if (rc == 0)
        json_object_set(*out, "failed", g->failed);
    free(profiles);
    free(kinds);
    return rc;
}

/* What was asked ends once nobody measures any more. */
static void measuring_end(struct coord *c, struct pool_measuring *g)
{
    json_t *profile = NULL;
    struct err why = {0};
    for (int i = 0; i < g->plan->topology.n_shares; i++)
        if (!g->runs[i].over)
            return;
    measuring_take(c, g);
    if (profile_make(c, g, &profile, &why) < 0)
        profile = NULL;
    struct pool_measuring_ask ask = g->ask;
    g->ask.then = NULL;
    measuring_free(g);
    ask.done(c, &ask, profile, &why);
}

/* Nobody waits for it. */
static void measuring_drop(struct coord *c, struct pool_measuring *g)
{
    measuring_take(c, g);
    measuring_free(g);
}

static void run_fail(struct coord *c, struct pool_measuring *g, int i, const struct err *why)
{
    const struct pool_share *s = &g->plan->shares[i];
    struct pool_measure_run *r = &g->runs[i];
    struct pool_profile_of of = network_of(g);
    struct err unused;
    if (r->over)
        return;
    r->over = true;
    if (!g->first.code)
        g->first = *why;
    log_warn("coordinator", "measurement_failed", "agent=%s kind=\"%s\" why=\"%s\"",
             s->agent ? s->agent->name : "lost", r->kind, why->text);
    json_array_append_new(g->failed,
                          json_pack("{s:s, s:s, s:s, s:s}", "agent", s->agent ? s->agent->name : "",
                                    "kind", r->kind, "code", status_word(why->code), "message",
                                    why->text));
    if (why->code == HP_EUNSUPPORTED) /* it need not be asked again for a plan */
        pool_profiles_set(c, &of, "", r->kind, NULL, &unused);
    measuring_end(c, g);
}

/* ---- what agents say ---- */

static struct pool_measuring *measuring_of(const struct coord *c, uint64_t deployment)
{
    for (struct pool_measuring *g = c->pools ? c->pools->measurings : NULL; g; g = g->next)
        if (g->plan->id == deployment)
            return g;
    return NULL;
}

bool pool_measuring_has(const struct coord *c, uint64_t deployment)
{
    return measuring_of(c, deployment);
}

/* The measurement whose answers have this id. */
static struct pool_measuring *measuring_of_answer(struct coord *c, const struct member *m,
                                                  uint64_t id, int *run)
{
    for (struct pool_measuring *g = c->pools ? c->pools->measurings : NULL; g; g = g->next)
        for (int i = 0; i < g->plan->topology.n_shares; i++)
            if (id && g->plan->shares[i].measure_id == id && g->plan->shares[i].agent == m &&
                !g->runs[i].over) {
                *run = i;
                return g;
            }
    return NULL;
}

bool pool_measuring_state(struct coord *c, const struct member *m,
                          const struct message_stage_state *t)
{
    struct pool_measuring *g = measuring_of(c, t->deployment);
    struct err why = {0};
    if (!g)
        return false;
    if (t->stage < (uint64_t)g->plan->topology.n_shares && !g->runs[t->stage].over &&
        pool_orders_state(c, g->plan, m, t, &why) < 0)
        run_fail(c, g, (int)t->stage, &why);
    return true;
}

/* Whose runs they were stands beside them. */
static void agent_note(json_t *profile, const struct member *m)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(profile, "measured"), i, row)
        json_object_set_new(row, "agent", json_string(m->name));
}

static int result_read(const struct message_profile_result *r, const char *kind, json_t **out,
                       struct err *e)
{
    json_error_t at = {0};
    if (r->code[0] && strcmp(r->code, "ok") != 0)
        return err_set(e, coord_failure_code(r->code), "%s", r->text);
    *out = json_loads(r->tables, JSON_REJECT_DUPLICATES, &at);
    return *out ? pool_profile_check(*out, kind, e) : err_set(e, HP_EPARSE, "%s", at.text);
}

bool pool_measuring_result(struct coord *c, const struct member *m, uint64_t id,
                           const struct message_profile_result *r)
{
    int i;
    struct pool_measuring *g = measuring_of_answer(c, m, id, &i);
    struct err e = {0};
    json_t *profile = NULL;
    if (!g)
        return false;
    if (result_read(r, g->runs[i].kind, &profile, &e) < 0) {
        struct err why = {0};
        json_decref(profile);
        err_set(&why, e.code, "agent \"%s\" could not measure the network: %s", m->name, e.text);
        run_fail(c, g, i, &why);
        return true;
    }
    agent_note(profile, m);
    g->runs[i].profile = profile;
    g->runs[i].over = true;
    measuring_end(c, g);
    return true;
}

bool pool_measuring_progress(struct coord *c, const struct member *m, uint64_t id,
                             const struct message_profile_progress *p)
{
    int i;
    struct pool_measuring *g = measuring_of_answer(c, m, id, &i);
    if (!g)
        return false;
    g->plan->shares[i].told_ns = coord_now(c);
    effects_answer(c, g->ask.peer, g->ask.ask, true,
                   json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "phase", "profile",
                             "model", g->plan->spec->models[0].facts.name, "agent", m->name, "kind",
                             g->runs[i].kind, "what", p->what, "points", (json_int_t)p->points,
                             "elapsed_s", p->elapsed_s, "budget_s", p->budget_s, "error",
                             p->error));
    return true;
}

/* ---- the beginning ---- */

static int measuring_make(struct coord *c, struct pool_measuring *g, json_t *document,
                          struct err *e)
{
    struct pool_spec *spec = NULL;
    int rc = pool_spec_network_read(document, &spec, e);
    if (rc < 0)
        return rc;
    g->plan->spec = spec;
    g->plan->measure = &g->measure;
    g->plan->shares = calloc(POOL_MEASURE_RUNS, sizeof *g->plan->shares);
    g->runs = calloc(POOL_MEASURE_RUNS, sizeof *g->runs);
    g->failed = json_array();
    if (!g->plan->shares || !g->runs || !g->failed)
        return err_no_memory(e, "a measurement");
    return pool_measure_wishes_read(c, g, e);
}

int pool_measuring_begin(struct coord *c, const struct pool_measuring_ask *ask, struct err *e)
{
    struct pool_measuring *g = calloc(1, sizeof *g);
    struct pool_plan *plan = g ? calloc(1, sizeof *plan) : NULL;
    if (!plan || !pool_service_of(c)) {
        json_decref(ask->document);
        json_decref(ask->then);
        free(plan);
        free(g);
        return err_no_memory(e, "a measurement");
    }
    g->plan = plan;
    g->ask = *ask;
    g->ask.document = NULL;
    int rc = measuring_make(c, g, ask->document, e);
    rc = rc < 0 ? rc : pool_measure_runs_choose(c, g, e);
    if (rc < 0) {
        measuring_free(g);
        return rc;
    }
    pool_orders_number(c, plan);
    snprintf(plan->why, sizeof plan->why, "it measures");
    g->next = c->pools->measurings;
    c->pools->measurings = g;
    pool_orders_prepare(c, plan);
    return 0;
}

/* ---- what happens ---- */

/* Another of its kind takes over, or it ends. False: with it all of what was asked. */
static bool run_leave(struct coord *c, struct pool_measuring *g, int i, const struct err *why)
{
    bool last = true;
    if (pool_measure_run_replace(c, g, i))
        return true;
    for (int k = 0; k < g->plan->topology.n_shares; k++)
        last = last && (k == i || g->runs[k].over);
    run_fail(c, g, i, why);
    return !last;
}

static void measuring_member_lost(struct coord *c, struct pool_measuring *g, const struct member *m)
{
    struct err why = {0};
    err_set(&why, HP_ELINK, "agent \"%s\" was lost while it measured", m->name);
    for (int i = 0; i < g->plan->topology.n_shares; i++) {
        struct pool_share *s = &g->plan->shares[i];
        if (s->agent != m)
            continue;
        s->agent = NULL;
        s->state = POOL_SHARE_LOST;
    }
    for (int i = 0; i < g->plan->topology.n_shares; i++)
        if (g->plan->shares[i].state == POOL_SHARE_LOST && !g->runs[i].over &&
            !run_leave(c, g, i, &why))
            return; /* it is gone */
    pool_orders_prepare(c, g->plan);
}

void pool_measuring_member_lost(struct coord *c, const struct member *m)
{
    struct pool_measuring *next;
    for (struct pool_measuring *g = c->pools ? c->pools->measurings : NULL; g; g = next) {
        next = g->next;
        measuring_member_lost(c, g, m);
    }
}

void pool_measuring_peer_gone(struct coord *c, uint64_t peer)
{
    struct pool_measuring *next;
    for (struct pool_measuring *g = c->pools ? c->pools->measurings : NULL; g; g = next) {
        next = g->next;
        if (g->ask.peer == peer)
            measuring_drop(c, g);
    }
}

/* Whoever has been given something to serve since then measures nothing that could be believed. */
static bool runs_yield(struct coord *c, struct pool_measuring *g)
{
    for (int i = 0; i < g->plan->topology.n_shares; i++) {
        const struct member *m = g->plan->shares[i].agent;
        struct err why = {0};
        if (g->runs[i].over || !m || !pool_measure_agent_serves(c, m, &why))
            continue;
        if (m->peer)
            stages_unload(c, m, g->plan->id, 1);
        if (!run_leave(c, g, i, &why))
            return false;
    }
    return true;
}

/* The one that has said nothing for so long; -1. */
static int run_silent(const struct coord *c, const struct pool_measuring *g)
{
    for (int i = 0; i < g->plan->topology.n_shares; i++)
        if (!g->runs[i].over && coord_now(c) - g->plan->shares[i].told_ns > coord_ms(SILENCE_MS))
            return i;
    return -1;
}

static bool measuring_loads(const struct pool_measuring *g)
{
    for (int i = 0; i < g->plan->topology.n_shares; i++)
        if (!g->runs[i].over && stage_state_of_word(g->plan->shares[i].word) == STAGE_FETCHING)
            return true;
    return false;
}

void pool_measuring_tick(struct coord *c)
{
    struct pool_measuring *next;
    for (struct pool_measuring *g = c->pools ? c->pools->measurings : NULL; g; g = next) {
        next = g->next;
        if (!runs_yield(c, g))
            continue; /* it is gone */
        pool_orders_prepare(c, g->plan);
        pool_orders_upload(c, g->plan, g->ask.peer, g->ask.ask);
        if (measuring_loads(g))
            effects_answer(c, g->ask.peer, g->ask.ask, true, pool_describe_progress(g->plan));
        int silent = run_silent(c, g);
        if (silent < 0)
            continue;
        struct err why = {0};
        err_set(&why, HP_ETIMEOUT, "agent \"%s\" has said nothing for %d s while it measured",
                g->plan->shares[silent].agent->name, SILENCE_MS / 1000);
        run_fail(c, g, silent, &why);
    }
}

void pool_measuring_free(struct coord *c)
{
    for (struct pool_measuring *g; c->pools && (g = c->pools->measurings) != NULL;) {
        c->pools->measurings = g->next;
        measuring_free(g);
    }
}
