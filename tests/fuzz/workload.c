/* Clusters, profiles, workloads and plans of pools from files: {"cluster", "workload", "profile",
 * "plan"}; every model of the workload gets the one profile. What is read and small is planned, and
 * the plan must be one that the judge accepts; a plan that came with it is judged and served. */
#include <stdlib.h>

#include "planners/dispatch/simulate.h"
#include "planners/pools/check.h"
#include "planners/pools/pools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool small(const struct cluster *c, const struct workload *w)
{
    int devices = 0;
    for (int k = 0; k < c->n_pools; k++) {
        if (c->pools[k].count > 12)
            return false;
        devices += c->pools[k].count;
    }
    for (int m = 0; m < w->n_models; m++)
        if (w->models[m].profile.n_layers > 6)
            return false;
    return devices <= 24 && c->n_pools <= 4 && w->n_models <= 3 && w->max_stages <= 3;
}

static void serve(const struct plan_pools *plan, const struct cluster *c, const struct workload *w)
{
    struct dispatch_topology t = {0};
    struct simulate_result r = {0};
    struct err e = {0};
    struct arrivals *a = malloc(sizeof *a);
    double rates[ARRIVALS_MAX_MODELS];
    if (a && dispatch_topology_make(plan, c, w, -1, &t, &e) == 0) {
        for (int m = 0; m < t.n_models; m++)
            rates[m] = 300;
        arrivals_init(a, ARRIVALS_BURSTY, rates, t.n_models, 0.2, 1);
        if (simulate_run(&t,
                         &(struct simulate_options){.latency_noise = 0.1, .network_jitter = 0.1},
                         arrivals_next, a, &r, &e) == 0)
            for (int m = 0; m < r.n_models; m++)
                if (r.models[m].arrived !=
                    r.models[m].in_time + r.models[m].late + r.models[m].dropped)
                    abort();
        simulate_result_free(&r);
        dispatch_topology_free(&t);
    }
    free(a);
}

static void plan_and_judge(const struct cluster *c, const struct workload *w)
{
    static const enum pools_method methods[] = {POOLS_METHOD_EXACT, POOLS_METHOD_NP,
                                                POOLS_METHOD_DART};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct pools_request rq = {.cluster = c,
                                   .workload = w,
                                   .method = methods[i],
                                   .share_devices = -1,
                                   .slo_margin = -1,
                                   .time_limit_s = 0.01,
                                   .env = &env_real};
        struct pools_answer a = {0};
        struct pools_check_result result;
        struct err e = {0};
        if (pools_plan(&rq, &a, &e) == 0) {
            if (pools_check(&a.plan, c, w, &(struct pools_check_options){-1, -1}, &result, &e) < 0)
                abort();
            serve(&a.plan, c, w);
        }
        pools_answer_free(&a);
    }
}

static void with_workload(const struct json_at *at, const struct cluster *c, struct workload *w)
{
    struct arena arena = {0};
    struct plan_pools plan;
    struct pools_check_result result;
    struct json_at place;
    struct err e = {0};
    for (int m = 0; m < w->n_models; m++)
        if (!json_find(at, "profile", &place) ||
            profile_from_json(&place, &w->models[m].profile, &e) < 0 ||
            w->models[m].profile.shape != PROFILE_FIXED)
            return;
    if (!small(c, w))
        return;
    plan_and_judge(c, w);
    if (json_find(at, "plan", &place) && plan_pools_from_json(&place, &arena, &plan, &e) == 0) {
        int shares = 0;
        pools_check(&plan, c, w, &(struct pools_check_options){-1, -1}, &result, &e);
        for (int m = 0; m < plan.n_models; m++)
            for (int i = 0; i < plan.models[m].n_pipelines; i++)
                for (int d = 0; d < plan.models[m].pipelines[i].n_stages && shares < 10000; d++)
                    shares += plan.models[m].pipelines[i].stages[d].count;
        if (shares < 10000)
            serve(&plan, c, w);
    }
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cluster c = {0};
    struct workload w = {0};
    struct json_at at, place;
    struct err e = {0};
    json_t *root;
    if (json_parse_at("input", data, size, &root, &at, &e) < 0)
        return 0;
    if (json_find(&at, "cluster", &place) && cluster_from_json(&place, &c, &e) == 0) {
        if (json_find(&at, "workload", &place) && workload_from_json(&place, "", &w, &e) == 0) {
            with_workload(&at, &c, &w);
            workload_free(&w);
        }
        cluster_free(&c);
    }
    json_decref(root);
    return 0;
}
