#include "coordinator/pools/pool_mix.h"

#include <math.h>
#include <stdio.h>

#include "common/log.h"
#include "coordinator/effects.h"
#include "coordinator/pools/pool_diff.h"
#include "coordinator/pools/pool_load.h"
#include "coordinator/pools/pool_moves.h"
#include "coordinator/pools/pool_planning.h"
#include "coordinator/pools/pool_spec.h"

enum {
    LEAST_ANSWERS = 50, /* of a model in a window, before its attainment says anything */
    AGAIN_MS = 30000,   /* a plan shows what it is worth for so long */
    NO_GAIN_MS = 60000, /* after a plan that was not worth it */
};

static const double ATTAINMENT = 0.99; /* below it a model is not on time */
/* A model keeps so much of the part that was applied for it while nobody asks for it. */
static const double LEAST_PART = 0.05;

/* ---- weights ---- */

/* What was applied, whatever the load has made of it since. */
static double weight_applied(const struct pool_spec *s, int model)
{
    const struct workload_model *w = &s->workload.models[model];
    const json_t *kept = json_object_get(json_object_get(s->document, "applied_weights"), w->name);
    return json_is_number(kept) ? json_number_value(kept) : w->weight;
}

static void weights_set(const struct pool_plan *p, json_t *document)
{
    const struct pool_spec *s = p->spec;
    double applied = 0, asked = 0;
    json_t *rows = json_object_get(json_object_get(document, "workload"), "models"),
           *kept = json_object();
    int n = s->workload.n_models;
    for (int m = 0; m < n; m++) {
        applied += weight_applied(s, m);
        asked += pool_load_weight(p, m);
        json_object_set_new(kept, s->workload.models[m].name, json_real(weight_applied(s, m)));
    }
    for (int m = 0; m < n; m++) {
        double least = LEAST_PART * asked * weight_applied(s, m) / applied;
        json_object_set_new(json_array_get(rows, (size_t)m), "weight",
                            json_real(fmax(pool_load_weight(p, m), least)));
    }
    json_object_set_new(document, "applied_weights", kept);
}

/* The workload of a plan with what is asked of it as weights. */
static int spec_make(const struct pool_plan *p, struct pool_spec **out, struct err *e)
{
    json_t *document = json_deep_copy(p->spec->document);
    if (!document)
        return err_no_memory(e, "a workload");
    weights_set(p, document);
    return pool_spec_read(document, out, e);
}

/* ---- in the background ---- */

/* The model that is least on time; -1: all are. */
static int model_missing(const struct pool_plan *p)
{
    double least = ATTAINMENT;
    int model = -1;
    for (int m = 0; m < p->spec->workload.n_models; m++) {
        uint64_t answers;
        double attainment = pool_load_attainment(p, m, &answers);
        if (answers < LEAST_ANSWERS || attainment >= least)
            continue;
        least = attainment;
        model = m;
    }
    return model;
}

static void on_mix_planned(struct coord *c, struct pool_plan *plan, uint64_t peer, uint64_t ask,
                           const struct err *error)
{
    struct pool_service *s = c->pools;
    struct pool_plan *p = s->current, *made = plan;
    char why[POOL_WHY];
    (void)peer, (void)ask; /* nobody waits */
    bool fits = p && p->spec == s->spec && !s->next && !s->planning;
    double now = fits ? pool_load_level(p, p) : 0,
           then = fits && made ? pool_load_level(made, p) : 0;
    if (fits && then >= now * (1 + s->spec->workload.replan_margin)) {
        int m = model_missing(p);
        snprintf(
            why, sizeof why,
            "\"%.60s\" is asked for %.4g times a second, and %.4g were planned; with weights as "
            "the load is, %.2f times as much of it is served",
            s->spec->workload.models[m < 0 ? 0 : m].name, pool_load_asked(p, m < 0 ? 0 : m),
            p->topology.models[m < 0 ? 0 : m].rate, then / now);
        log_info("coordinator", "pools_follow", "plan=%llu why=\"%s\"", (unsigned long long)p->id,
                 why);
        s->mixed_ns = coord_now(c) + coord_ms(AGAIN_MS);
        pool_moves_adopt(c, pool_spec_use(plan->spec), why);
    } else if (fits) {
        log_info("coordinator", "pools_stay", "plan=%llu level=%.3g then=%.3g text=\"%s\"",
                 (unsigned long long)p->id, now, then, error->text);
        s->mixed_ns = coord_now(c) + coord_ms(NO_GAIN_MS);
    }
    pool_plan_free(&plan);
}

void pool_mix_step(struct coord *c)
{
    struct pool_service *s = c->pools;
    struct pool_plan *p = s->current;
    struct pool_spec *spec = NULL;
    struct err e = {0};
    if (!p || !pool_load_step(c, p) || p->spec->workload.replan_margin <= 0 ||
        p->spec->workload.n_models < 2 || p->spec != s->spec || s->next || s->planning ||
        s->mixing || coord_now(c) < s->mixed_ns || model_missing(p) < 0)
        return;
    int rc = spec_make(p, &spec, &e);
    rc = rc < 0 ? rc : pool_planning_begin(c, spec, 0, 0, on_mix_planned, &s->mixing, &e);
    pool_spec_release(&spec);
    if (rc < 0)
        log_warn("coordinator", "pools_not_followed", "why=\"%s\"", e.text);
}

/* ---- for whoever asks ---- */

static json_t *load_json(const struct pool_plan *p)
{
    json_t *asked = json_object();
    for (int m = 0; m < p->spec->workload.n_models; m++)
        json_object_set_new(asked, p->spec->workload.models[m].name,
                            json_real(pool_load_asked(p, m)));
    return asked;
}

static void on_diff_planned(struct coord *c, struct pool_plan *plan, uint64_t peer, uint64_t ask,
                            const struct err *why)
{
    const struct pool_plan *p = c->pools->current;
    struct err gone = {0};
    if (plan && p && pool_load_fits(plan, p) && isfinite(pool_load_level(p, p)))
        effects_answer(c, peer, ask, false,
                       json_pack("{s:O, s:O, s:o, s:o, s:f, s:f}", "serves", p->report, "next",
                                 plan->report, "why", pool_diff_reasons(p, plan), "load",
                                 load_json(p), "level", pool_load_level(p, p), "next_level",
                                 pool_load_level(plan, p)));
    else if (plan)
        err_set(&gone, HP_EBUSY, "another plan has taken over meanwhile: ask again");
    if (!plan || gone.code)
        effects_answer_error(c, peer, ask, plan ? &gone : why);
    pool_plan_free(&plan);
}

int pool_mix_diff(struct coord *c, uint64_t peer, uint64_t ask, struct err *e)
{
    const struct pool_plan *p = c->pools ? c->pools->current : NULL;
    struct pool_spec *spec = NULL;
    if (!p)
        return err_set(e, HP_ENOENT, "no pools serve");
    if (!isfinite(pool_load_level(p, p))) {
        err_set(e, HP_ENOENT, "nothing was asked of the models lately");
        return err_hint(e, "the load is what came in the last whole %d s",
                        POOL_LOAD_WINDOW_MS / 1000);
    }
    int rc = spec_make(p, &spec, e);
    rc = rc < 0 ? rc : pool_planning_begin(c, spec, peer, ask, on_diff_planned, NULL, e);
    pool_spec_release(&spec);
    return rc;
}
