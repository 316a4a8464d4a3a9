#include "coordinator/pools/pool_measure_runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/utf8.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_planning.h"
#include "coordinator/pools/pool_profiles.h"
#include "coordinator/stages.h"

/* ---- who may ---- */

static bool plan_uses(const struct pool_plan *p, const struct member *m)
{
    for (int i = 0; p && i < p->topology.n_shares; i++)
        if (p->shares[i].agent == m)
            return true;
    return false;
}

static bool measuring_uses(const struct pool_measuring *g, const struct member *m)
{
    for (int i = 0; i < g->plan->topology.n_shares; i++)
        if (g->plan->shares[i].agent == m && !g->runs[i].over)
            return true;
    return false;
}

bool pool_measure_agent_serves(struct coord *c, const struct member *m, struct err *why)
{
    const struct pool_service *s = c->pools;
    bool serves = s && (plan_uses(s->current, m) || plan_uses(s->next, m));
    for (const struct pool_plan *p = s ? s->ending : NULL; p; p = p->next)
        serves = serves || plan_uses(p, m);
    const struct deployment *d = deployment_using(c, m);
    if (serves) {
        err_set(why, HP_EBUSY, "agent \"%s\" serves pools, which measuring would disturb", m->name);
        err_hint(why, "name others with --agents, or free it first: hpctl pools rm");
    } else if (d) {
        err_set(why, HP_EBUSY,
                "agent \"%s\" holds stages of deployment \"%s\", which measuring would disturb",
                m->name, d->name);
        err_hint(why, "name others with --agents, or free it first: hpctl undeploy %s", d->name);
    }
    return serves || d;
}

bool pool_measure_is_disturbed(struct coord *c, const struct member *m, struct err *why)
{
    for (const struct pool_measuring *g = c->pools ? c->pools->measurings : NULL; g; g = g->next)
        if (measuring_uses(g, m)) {
            err_set(why, HP_EBUSY, "agent \"%s\" measures already, which measuring would disturb",
                    m->name);
            err_hint(why, "name others with --agents, or ask again when it is done");
            return true;
        }
    return pool_measure_agent_serves(c, m, why);
}

static bool kind_is_known(const json_t *known, const char *kind)
{
    const json_t *k;
    size_t i;
    json_array_foreach(known, i, k)
    {
        if (json_is_string(k) && strcmp(json_string_value(k), kind) == 0)
            return true;
    }
    return false;
}

/* ---- which of them ---- */

static void run_set(struct coord *c, struct pool_measuring *g, int i, struct member *m, int device)
{
    struct pool_share *s = &g->plan->shares[i];
    free(s->wanted);
    *s = (struct pool_share){.agent = m,
                             .device = device,
                             .parts = 1,
                             .end_block = 1,
                             .measure_id = stages_session_create(c),
                             .told_ns = coord_now(c)};
    utf8_copy(g->runs[i].kind, sizeof g->runs[i].kind, member_kind(m, device));
}

static bool kind_is_chosen(const struct pool_measuring *g, const char *kind)
{
    for (int i = 0; i < g->plan->topology.n_shares; i++)
        if (strcmp(g->runs[i].kind, kind) == 0)
            return true;
    return false;
}

static bool device_is_wanted(const struct pool_measuring *g, const struct member *m, int device)
{
    const char *kind = member_kind(m, device);
    const json_t *known = json_object_get(g->plan->spec->document, "known");
    return !member_device_lost(m, device) && kind[0] && !kind_is_known(known, kind) &&
           (g->every || !kind_is_chosen(g, kind));
}

int pool_measure_runs_choose(struct coord *c, struct pool_measuring *g, struct err *e)
{
    struct err busy = {0};
    for (size_t k = 0; k < c->n_members; k++) {
        struct member *m = c->members[k];
        if (!pool_member_is_wanted(g->plan->spec, m))
            continue;
        if (pool_measure_is_disturbed(c, m, &busy)) {
            if (g->any || (!g->every && g->plan->spec->n_agents == 0))
                continue; /* another one of its kind may do */
            *e = busy;
            return e->code;
        }
        for (int d = 0; d < member_device_count(m); d++)
            if (device_is_wanted(g, m, d)) {
                if (g->plan->topology.n_shares == POOL_MEASURE_RUNS)
                    return err_set(e, HP_ELIMIT,
                                   "more than %d devices: name the agents that are to measure",
                                   POOL_MEASURE_RUNS);
                run_set(c, g, g->plan->topology.n_shares++, m, d);
            }
    }
    if (g->plan->topology.n_shares > 0)
        return 0;
    if (busy.code)
        *e = busy;
    else
        err_set(e, HP_EBUSY, "no agent is ready that could measure it");
    return e->code;
}

bool pool_measure_run_replace(struct coord *c, struct pool_measuring *g, int i)
{
    struct err unused;
    for (size_t k = 0; k < c->n_members && !g->every; k++) {
        struct member *m = c->members[k];
        if (!pool_member_is_wanted(g->plan->spec, m) || pool_measure_is_disturbed(c, m, &unused))
            continue;
        for (int d = 0; d < member_device_count(m); d++)
            if (!member_device_lost(m, d) && strcmp(member_kind(m, d), g->runs[i].kind) == 0) {
                run_set(c, g, i, m, d);
                return true;
            }
    }
    return false;
}

/* ---- what is asked for ---- */

static int names_check(struct coord *c, const struct pool_spec *s, struct err *e)
{
    for (int i = 0; i < s->n_agents; i++) {
        const struct member *m = member_find(c, s->agents[i]);
        if (!m)
            return member_missing(c, s->agents[i], e);
        if (!member_available(m))
            return err_set(e, HP_ELINK, "agent \"%s\" is %s", m->name,
                           member_states[m->state].word);
    }
    return 0;
}

static int sizes_read(const struct json_at *at, const char *key, struct arena *arena,
                      struct pack_u32s *out, struct err *e)
{
    struct json_at list;
    size_t n;
    if (!json_find(at, key, &list))
        return 0;
    int rc = json_as_array(&list, &n, e);
    uint32_t *items = rc == 0 ? arena_alloc(arena, n + 1, sizeof *items) : NULL;
    if (rc == 0 && !items)
        return json_no_memory(&list, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, i);
        uint64_t v = 0;
        rc = json_as_u64(&item, &v, e);
        if (rc == 0 && (v < 1 || v > MESSAGE_MAX_BATCH))
            rc = json_fail(&item, e, "%llu; 1 to %d are possible", (unsigned long long)v,
                           MESSAGE_MAX_BATCH);
        items[i] = (uint32_t)v;
    }
    *out = (struct pack_u32s){items, rc == 0 ? n : 0};
    return rc;
}

/* Where blocks begin and the last ends, in layers of the network. */
static int bounds_read(const struct json_at *at, struct split *out, struct err *e)
{
    struct json_at list;
    size_t n = 0;
    if (!json_find(at, "bounds", &list))
        return 0;
    int rc = json_as_array(&list, &n, e);
    if (rc == 0 && (n < 2 || n > SPLIT_MAX_BLOCKS + 1))
        rc = json_fail(&list, e, "%zu bounds; 2 to %d are possible", n, SPLIT_MAX_BLOCKS + 1);
    uint64_t before = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, i);
        uint64_t v = 0;
        rc = json_as_u64(&item, &v, e);
        if (rc == 0 && (v > SPLIT_MAX_LAYERS || (i == 0 ? v != 0 : v <= before)))
            rc = json_fail(&item, e, "bounds of blocks rise from 0");
        if (rc == 0 && i > 0)
            out->end[i - 1] = (int)v;
        before = v;
    }
    out->n_blocks = rc == 0 ? (int)n - 1 : 0;
    return rc;
}

int pool_measure_wishes_read(struct coord *c, struct pool_measuring *g, struct err *e)
{
    struct pool_spec *s = g->plan->spec;
    struct json_at at = {.file = "what is to be measured", .value = s->document};
    double budget_s;
    uint64_t blocks;
    int rc = json_opt_number_min(&at, "budget_s", 0, POOL_MEASURE_BUDGET_S, &budget_s, e);
    rc = rc < 0 ? rc : json_opt_u64(&at, "blocks", POOL_PROFILE_BLOCKS, &blocks, e);
    rc = rc < 0 ? rc : json_opt_bool(&at, "every", false, &g->every, e);
    rc = rc < 0 ? rc : json_opt_bool(&at, "any", false, &g->any, e);
    rc = rc < 0 ? rc : sizes_read(&at, "batches", &s->arena, &g->measure.batches, e);
    rc = rc < 0 ? rc : sizes_read(&at, "shares", &s->arena, &g->measure.shares, e);
    rc = rc < 0 ? rc : bounds_read(&at, &g->split, e);
    if (rc == 0 && !(budget_s > 0 && budget_s <= POOL_MEASURE_MAX_BUDGET_S))
        rc = json_fail(&at, e, "\"budget_s\" is not above 0 and at most %d",
                       POOL_MEASURE_MAX_BUDGET_S);
    if (rc == 0 && (blocks < 1 || blocks > 64))
        rc = json_fail(&at, e, "%llu blocks; 1 to 64 are possible", (unsigned long long)blocks);
    if (rc < 0)
        return rc;
    g->blocks = (int)blocks;
    g->measure.budget_ms = (uint64_t)ceil(budget_s * 1000);
    return names_check(c, s, e);
}
