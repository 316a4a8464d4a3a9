/* Planning pools of devices for models with deadlines (PPipe, USENIX ATC 2025): which pipelines of
 * which kinds, shares, layers and batch sizes, and how many devices in each pool, so that the least
 * throughput / weight over the models is greatest.
 *
 * `exact` is a dynamic programme over whole devices (planners/pools/allocate.h); on clusters too
 * large for its tables the linear relaxation and the programme for the remainder (large.h). Where
 * devices may be shared across pipelines it pairs pipelines and lets lp_solve improve the result
 * (polish.h). `milp` is the published formulation (appendix A.2), `np` whole models on single
 * kinds, `dart` replicated chains of two devices.
 *
 * No file is opened and no clock read but through what the request hands in. One thread per call;
 * calls do not share anything. */
#ifndef HP_PLANNERS_POOLS_POOLS_H
#define HP_PLANNERS_POOLS_POOLS_H

#include <jansson.h>

#include "common/cluster.h"
#include "common/env.h"
#include "common/plan_pools.h"
#include "common/workload.h"
#include "planners/lp.h"
#include "planners/pools/allocate.h"

enum pools_method { POOLS_METHOD_EXACT, POOLS_METHOD_MILP, POOLS_METHOD_NP, POOLS_METHOD_DART };
extern const char *const pools_method_words[]; /* "exact", "milp", "np", "dart", NULL */

struct pools_request {
    const struct cluster *cluster;
    const struct workload *workload; /* profiles loaded */
    enum pools_method method;
    int share_devices;   /* 1 or 0; below 0: as the workload says */
    double slo_margin;   /* for every model; below 0: as the workload says */
    double time_limit_s; /* of lp_solve (milp), or of improving a plan (exact); 0: 60 s, and 0.25 or
                            (large clusters) 1.2 s */
    uint64_t seed;       /* of the search on large clusters */
    const struct env *env;
    lp_put_fn lp_put; /* milp: receives the .lp text; may be NULL */
    void *lp_ctx;
};

struct pools_candidate {
    const char *name;
    double predicted; /* least throughput / weight; NaN: none */
    const char *reason;
};

enum { POOLS_MAX_CANDIDATES = 32 };

struct pools_answer {
    struct arena arena; /* owns the plan's and the candidates' text */
    struct plan_pools plan;
    const char *method;
    double bound;      /* no plan serves more; NaN where the method proves none */
    double seconds;    /* planning, all of it */
    double lp_seconds; /* of those, inside lp_solve */
    bool complete;     /* milp: lp_solve searched to the end */
    bool share_devices;
    double served; /* by simulation (margin.h): least served throughput / weight at the target
                      attainment; NaN: not simulated */
    double target; /* that attainment */
    struct pools_candidate candidates[POOLS_MAX_CANDIDATES];
    int n_candidates;
};

/* Zero-initialise `out`; pools_answer_free after, also on failure. HP_EINFEASIBLE: a deadline that
 * nothing meets, too few devices; HP_ETIMEOUT: milp found no plan in time; HP_EINVAL, HP_ELIMIT,
 * HP_ENOMEM. */
int pools_plan(const struct pools_request *rq, struct pools_answer *out, struct err *e);
void pools_answer_free(struct pools_answer *a);
/* The hp-plan/1 document without `inputs`; NULL when memory ran out. The caller releases it. */
json_t *pools_answer_json(const struct pools_answer *a);
void pools_answer_add_candidate(struct pools_answer *a, const char *name, double predicted,
                                const char *reason);

/* ---- the parts, for planning one problem many times ---- */

struct pools_solution {
    struct pools_allocation allocation;
    double bound, lp_seconds;
    bool complete;
};

/* Solves a problem whose margins are set. `solution` is zero-initialised;
 * pools_allocation_free(&solution->allocation) after. */
int pools_solve(const struct pools_problem *p, const struct pools_request *rq,
                struct pools_solution *solution, struct err *e);
/* An allocation as a plan, in the arena. HP_ENOMEM. */
int pools_allocation_plan(const struct pools_problem *p, const struct pools_allocation *a,
                          struct arena *arena, struct plan_pools *out, struct err *e);

#endif
