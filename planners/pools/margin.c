#include "planners/pools/margin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planners/dispatch/arrivals.h"
#include "planners/dispatch/simulate.h"
#include "planners/dispatch/topology.h"
#include "planners/pools/served.h"

#define UNIFORM_STEP 0.05

#define UNIFORM_MOST 0.6

#define TRAIN_S 5.0 /* virtual seconds of a stream while searching */

#define JUDGE_S 15.0 /* while judging the finalists */

#define REPORT_S 30.0 /* for the figure that is reported */

enum { FINALISTS = 6, TRAIN_SEEDS = 2, JUDGE_SEEDS = 3, REPORT_SEEDS = 3 };

/* ---- the search ---- */

/* What a plan is made from: a margin per model, and a factor on its weight. */
struct setting {
    double *margin, *factor;
};

struct finalist {
    struct setting s;
    double served;
};

struct tuner {
    const struct pools_request *rq;
    const struct pools_margin_options *o;
    struct pools_problem p;
    struct arena arena;
    double *weights; /* the workload's own */
    double target;
    uint64_t random, end_ns, began_ns;
    struct finalist best[FINALISTS]; /* falling by what they serve in training */
    int n_best;
    uint64_t seen[4096]; /* digests of plans that were simulated */
    int n_seen, simulated;
    struct pools_answer *out;
};

static bool setting_make(struct tuner *w, struct setting *s)
{
    s->margin = arena_alloc(&w->arena, (size_t)w->p.n_models, sizeof *s->margin);
    s->factor = arena_alloc(&w->arena, (size_t)w->p.n_models, sizeof *s->factor);
    return s->margin && s->factor;
}

static void setting_copy(const struct tuner *w, const struct setting *from, struct setting *to)
{
    memcpy(to->margin, from->margin, (size_t)w->p.n_models * sizeof *to->margin);
    memcpy(to->factor, from->factor, (size_t)w->p.n_models * sizeof *to->factor);
}

/* Plans with a setting. The objective counts the workload's own weights. Positive: no plan with it.
 */
static int plan_with(struct tuner *w, const struct setting *s, struct pools_solution *solution,
                     struct err *e)
{
    struct pools_request rq = *w->rq;
    rq.method = POOLS_METHOD_EXACT;
    rq.time_limit_s = 0.05;
    for (int m = 0; m < w->p.n_models; m++) {
        pools_problem_set_margin(&w->p, m, s->margin[m]);
        w->p.models[m].weight = w->weights[m] * s->factor[m];
    }
    int rc = pools_solve(&w->p, &rq, solution, e);
    for (int m = 0; m < w->p.n_models; m++)
        w->p.models[m].weight = w->weights[m];
    if (rc == 0)
        pools_allocation_refresh(&w->p, &solution->allocation);
    return rc == HP_EINFEASIBLE ? HP_PENDING : rc;
}

static int topology_of(struct tuner *w, const struct pools_allocation *a,
                       struct dispatch_topology *t, struct err *e)
{
    struct arena arena = {0};
    struct plan_pools plan;
    int rc = pools_allocation_plan(&w->p, a, &arena, &plan, e);
    if (rc == 0)
        rc = dispatch_topology_make(&plan, w->rq->cluster, w->rq->workload, w->p.share_devices, t,
                                    e);
    arena_free(&arena);
    return rc;
}

/* A number that tells plans apart. */
static uint64_t digest_of_plan(const struct pools_allocation *a)
{
    uint64_t h = 1469598103934665603u;
    for (int m = 0; m < a->n_models; m++)
        for (int i = 0; i < a->models[m].n_uses; i++) {
            const struct pools_use *u = &a->models[m].uses[i];
            for (int d = 0; d < u->s.n_stages; d++) {
                const struct pools_stage *s = &u->s.stages[d];
                int facts[] = {m, u->s.batch, d, s->kind, s->share, s->first, s->end, u->count[d]};
                for (size_t k = 0; k < sizeof facts / sizeof *facts; k++)
                    h = (h ^ (uint64_t)facts[k]) * 1099511628211u;
            }
        }
    return h;
}

static bool seen_before(struct tuner *w, uint64_t digest)
{
    int n = w->n_seen < 4096 ? w->n_seen : 4096;
    for (int i = 0; i < n; i++)
        if (w->seen[i] == digest)
            return true;
    w->seen[w->n_seen++ % 4096] = digest;
    return false;
}

static int finalist_remember(struct tuner *w, const struct setting *s, double served, struct err *e)
{
    int at = w->n_best;
    while (at > 0 && w->best[at - 1].served < served)
        at--;
    if (at == FINALISTS)
        return 0;
    struct finalist f = {.served = served};
    if (w->n_best == FINALISTS)
        f.s = w->best[FINALISTS - 1].s;
    else if (!setting_make(w, &f.s))
        return err_no_memory(e, "looking for the margin");
    else
        w->n_best++;
    setting_copy(w, s, &f.s);
    memmove(&w->best[at + 1], &w->best[at], (size_t)(w->n_best - 1 - at) * sizeof *w->best);
    w->best[at] = f;
    return 0;
}

/* Plans and simulates one setting, no further than needed to see that it does not come near the
 * best. */
static int try_setting(struct tuner *w, const struct setting *s, double *served, struct err *e)
{
    struct pools_solution solution = {0};
    struct dispatch_topology t = {0};
    bool yes = true;
    int rc = plan_with(w, s, &solution, e);
    double floor = w->n_best > 0 ? w->best[w->n_best == FINALISTS ? FINALISTS - 1 : 0].served *
                                       (w->n_best == FINALISTS ? 1 : 0.9)
                                 : 0;
    *served = 0;
    if (rc == 0 && solution.allocation.objective > floor &&
        !seen_before(w, digest_of_plan(&solution.allocation)) &&
        (rc = topology_of(w, &solution.allocation, &t, e)) == 0) {
        w->simulated++;
        if (floor > 0)
            rc = pools_load_is_met(&t, floor, w->target, TRAIN_S, w->o->seed, TRAIN_SEEDS, &yes, e);
        if (rc == 0 && yes)
            rc = pools_load_between(&t, floor, solution.allocation.objective * 1.02, w->target,
                                    TRAIN_S, w->o->seed, TRAIN_SEEDS, served, e);
        if (rc == 0 && *served > 0)
            rc = finalist_remember(w, s, *served, e);
        dispatch_topology_free(&t);
    }
    pools_allocation_free(&solution.allocation);
    return rc == HP_PENDING ? 0 : rc;
}

static void tuner_tell(struct tuner *w)
{
    char text[128];
    if (!w->o->progress)
        return;
    double part =
        (double)(env_now_ns(w->rq->env) - w->began_ns) / (double)(w->end_ns - w->began_ns);
    part = fmax(part, (double)w->simulated / (w->o->plans > 0 ? w->o->plans : 60));
    snprintf(text, sizeof text, "%d plans simulated, best serves %.1f per unit of weight",
             w->simulated, w->n_best ? w->best[0].served : 0);
    w->o->progress(w->o->progress_ctx, text, fmin(0.99, part));
}

static int try_uniform(struct tuner *w, struct err *e)
{
    struct setting s;
    if (!setting_make(w, &s))
        return err_no_memory(e, "looking for the margin");
    /* From the middle outwards: good ones early make the rest cheap to rule out. */
    for (int i = 0; i <= (int)(UNIFORM_MOST / UNIFORM_STEP + 0.5); i++) {
        int k = 4 + (i % 2 ? -(i + 1) / 2 : i / 2);
        double margin = (k < 0 ? i : k) * UNIFORM_STEP, served;
        for (int m = 0; m < w->p.n_models; m++) {
            s.margin[m] = margin;
            s.factor[m] = 1;
        }
        int rc = try_setting(w, &s, &served, e);
        if (rc < 0)
            return rc;
        if (served > 0) {
            char *name = arena_printf(&w->out->arena, "margin %.0f %% for all", margin * 100);
            pools_answer_add_candidate(w->out, name ? name : "", served,
                                       "served in simulation while searching");
        }
        tuner_tell(w);
    }
    return 0;
}

/* Changes one or two things about one of the best settings. */
static void setting_vary(struct tuner *w, struct setting *s)
{
    static const double steps[] = {-0.15, -0.1, -0.05, -0.025, 0.025, 0.05, 0.1, 0.15};
    static const double factors[] = {0.9, 0.94, 0.97, 0.985, 1.015, 1.03, 1.06, 1.12};
    double u = random_unit(&w->random);
    setting_copy(w, &w->best[(int)(u * u * w->n_best)].s, s);
    int changes = 1 + (random_unit(&w->random) < 0.4);
    for (int i = 0; i < changes; i++) {
        int m = (int)(random_unit(&w->random) * w->p.n_models),
            k = (int)(random_unit(&w->random) * 8);
        if (random_unit(&w->random) < 0.5)
            s->margin[m] = fmin(0.9, fmax(0, s->margin[m] + steps[k]));
        else
            s->factor[m] = fmin(2, fmax(0.5, s->factor[m] * factors[k]));
    }
}

static int settings_search(struct tuner *w, struct err *e)
{
    struct setting s;
    double served;
    int rc = try_uniform(w, e), idle = 0;
    if (rc < 0)
        return rc;
    if (w->n_best == 0)
        return HP_PENDING;
    if (!setting_make(w, &s))
        return err_no_memory(e, "looking for the margin");
    int most = w->o->plans > 0 ? w->o->plans : 60;
    while (env_now_ns(w->rq->env) < w->end_ns && w->simulated < most && idle < 2000) {
        int before = w->simulated;
        setting_vary(w, &s);
        if ((rc = try_setting(w, &s, &served, e)) < 0)
            return rc;
        idle = w->simulated == before ? idle + 1 : 0;
        tuner_tell(w);
    }
    return 0;
}

/* Judges the finalists by streams that the search did not see, and makes the plan of the best. */
static int finalist_choose(struct tuner *w, struct err *e)
{
    double most = -1;
    int winner = 0, rc = 0;
    for (int i = 0; i < w->n_best && rc == 0; i++) {
        struct pools_solution solution = {0};
        struct dispatch_topology t = {0};
        double served = 0;
        rc = plan_with(w, &w->best[i].s, &solution, e);
        if (rc == 0 && (rc = topology_of(w, &solution.allocation, &t, e)) == 0)
            rc = pools_served(&t, w->best[i].served, w->target, JUDGE_S, w->o->seed + 1000,
                              JUDGE_SEEDS, &served, e);
        if (rc == 0 && served > most) {
            most = served;
            winner = i;
        }
        dispatch_topology_free(&t);
        pools_allocation_free(&solution.allocation);
    }
    struct pools_solution solution = {0};
    struct dispatch_topology t = {0};
    if (rc == 0)
        rc = plan_with(w, &w->best[winner].s, &solution, e);
    if (rc == 0 && (rc = topology_of(w, &solution.allocation, &t, e)) == 0 &&
        (rc = pools_served(&t, most, w->target, REPORT_S, w->o->seed + 2000, REPORT_SEEDS,
                           &w->out->served, e)) == 0)
        rc = pools_allocation_plan(&w->p, &solution.allocation, &w->out->arena, &w->out->plan, e);
    w->out->bound = NAN;
    w->out->lp_seconds = solution.lp_seconds;
    dispatch_topology_free(&t);
    pools_allocation_free(&solution.allocation);
    return rc;
}

static int margin_tune(struct tuner *w, struct err *e)
{
    int rc = settings_search(w, e);
    if (rc == HP_PENDING) {
        /* Nothing serves the target at any margin: the plain planner says what is infeasible, or
         * gives its plan. */
        return pools_plan(w->rq, w->out, e);
    }
    if (rc == 0)
        rc = finalist_choose(w, e);
    if (rc == 0) {
        char *reason = arena_printf(
            &w->out->arena,
            "chosen: serves %.2f at %.3g %% attainment on fresh seeds; %d plans simulated",
            w->out->served, w->target * 100, w->simulated);
        pools_answer_add_candidate(w->out, "the plan (exact, margins by simulation)",
                                   w->out->plan.normalized_throughput_per_s, reason ? reason : "");
    }
    return rc;
}

int pools_plan_auto(const struct pools_request *rq, const struct pools_margin_options *options,
                    struct pools_answer *out, struct err *e)
{
    struct tuner w = {.rq = rq, .o = options, .out = out, .random = options->seed + 12345};
    w.target = options->target > 0 ? options->target : 0.99;
    w.began_ns = env_now_ns(rq->env);
    w.end_ns = w.began_ns + (uint64_t)((options->seconds > 0 ? options->seconds : 20) * 1e9);
    int rc = pools_problem_make(rq->cluster, rq->workload, &w.p, e);
    if (rc < 0)
        return rc;
    if (rq->share_devices >= 0)
        w.p.share_devices = rq->share_devices != 0;
    out->method = "exact";
    out->share_devices = w.p.share_devices;
    out->complete = true;
    out->target = w.target;
    w.weights = arena_alloc(&w.arena, (size_t)w.p.n_models, sizeof *w.weights);
    if (!w.weights)
        rc = err_no_memory(e, "looking for the margin");
    for (int m = 0; rc == 0 && m < w.p.n_models; m++)
        w.weights[m] = w.p.models[m].weight;
    if (rc == 0)
        rc = margin_tune(&w, e);
    out->seconds = (double)(env_now_ns(rq->env) - w.began_ns) * 1e-9;
    if (options->progress)
        options->progress(options->progress_ctx, "", 1);
    arena_free(&w.arena);
    pools_problem_free(&w.p);
    return rc;
}
