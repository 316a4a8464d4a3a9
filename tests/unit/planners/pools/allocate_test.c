/* The planner of pools against exhaustive search on small clusters, and against its own bounds. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "planners/pools/check.h"
#include "planners/pools/fastest.h"
#include "planners/pools/pools.h"
#include "planners/pools/relax.h"
#include "tests/test.h"
#include "tests/unit/planners/pools_example.h"

/* ---- exhaustive search: every set of pipelines, every number of devices, one model ---- */

struct brute_allocation {
    const struct pools_problem *p;
    struct pools_structure all[4096];
    int n;
    double best;
};

static void brute_list(struct brute_allocation *b, struct pools_structure *s, int first,
                       double used)
{
    const struct pools_model *m = &b->p->models[0];
    for (int k = 0; k < b->p->n_kinds; k++)
        for (int share = 0; share < b->p->kinds[k].n_shares; share++)
            for (int end = first + 1; end <= m->n_layers; end++) {
                double seconds = used + pools_compute_s(m, k, share, s->batch, first, end);
                if (s->n_stages > 0)
                    seconds +=
                        pools_transfer_s(b->p, m, first, s->stages[s->n_stages - 1].kind, k) *
                        m->batches[s->batch];
                if (seconds > m->budget_s ||
                    (end < m->n_layers && s->n_stages + 1 == b->p->max_stages))
                    continue;
                double x = pools_share_rate(b->p, m, k, share, s->batch, first, end);
                s->stages[s->n_stages++] = (struct pools_stage){
                    k, share, first, end, 0, x, x * b->p->kinds[k].shares[share]};
                if (end == m->n_layers && b->n < 4096)
                    b->all[b->n++] = *s;
                else if (end < m->n_layers)
                    brute_list(b, s, end, seconds);
                s->n_stages--;
            }
}

static void brute_allocate(struct brute_allocation *b, int from, const int *left, double so_far)
{
    if (so_far > b->best)
        b->best = so_far;
    for (int i = from; i < b->n; i++) {
        const struct pools_structure *s = &b->all[i];
        int count[POOLS_MAX_STAGES], rest[POOLS_MAX_KINDS];
        for (int d = 0; d < s->n_stages; d++)
            count[d] = 1;
        for (;;) { /* every number of devices per stage */
            double rate = INFINITY;
            bool fits = true;
            for (int k = 0; k < b->p->n_kinds; k++)
                rest[k] = left[k];
            for (int d = 0; d < s->n_stages; d++) {
                rest[s->stages[d].kind] -= count[d];
                rate = fmin(rate, count[d] * s->stages[d].device_rate);
            }
            for (int k = 0; k < b->p->n_kinds; k++)
                fits = fits && rest[k] >= 0;
            if (fits)
                brute_allocate(b, i + 1, rest, so_far + rate);
            int d = 0;
            while (d < s->n_stages && ++count[d] > left[s->stages[d].kind])
                count[d++] = 1;
            if (d == s->n_stages)
                break;
        }
    }
}

static double brute_objective(const struct pools_problem *p)
{
    struct brute_allocation *b = calloc(1, sizeof *b);
    int left[POOLS_MAX_KINDS];
    assert_non_null(b);
    b->p = p;
    for (int i = 0; i < p->models[0].n_batches; i++) {
        struct pools_structure s = {.batch = i};
        brute_list(b, &s, 0, 0);
    }
    for (int k = 0; k < p->n_kinds; k++)
        left[k] = p->kinds[k].count;
    brute_allocate(b, 0, left, 0);
    double best = b->best / p->models[0].weight;
    free(b);
    return best;
}

static double plan_objective(const struct example *x, int share, double *bound)
{
    struct pools_request rq = {.cluster = &x->c,
                               .workload = &x->w,
                               .share_devices = share,
                               .slo_margin = -1,
                               .env = &env_real};
    struct pools_answer a = {0};
    struct pools_check_result checked;
    struct err e = {0};
    int rc = pools_plan(&rq, &a, &e);
    double value = 0;
    if (rc == 0) {
        value = a.plan.normalized_throughput_per_s;
        if (pools_check(&a.plan, &x->c, &x->w, &(struct pools_check_options){share, -1}, &checked,
                        &e) < 0)
            fail_msg("seed gave a plan that is not valid: %s", e.text);
        assert_true(fabs(checked.normalized_throughput_per_s - value) < 1e-6 * value);
        if (bound)
            *bound = a.bound;
    } else {
        assert_int_equal(rc, HP_EINFEASIBLE);
    }
    pools_answer_free(&a);
    return value;
}

TEST(whole_devices_are_planned_as_well_as_by_exhaustive_search)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct example x;
        struct pools_problem p = {0};
        struct err e = {0};
        example_make(&(struct example_options){.n_kinds = 2,
                                               .counts = {2, 2},
                                               .per_node = 1 + (int)(seed % 2),
                                               .n_models = 1,
                                               .max_stages = 2,
                                               .slo_s = 0.016 + 0.004 * (double)(seed % 4),
                                               .nic_bytes_per_s = 1e9,
                                               .max_batch = 2,
                                               .shares = 1,
                                               .seed = seed},
                     &x);
        assert_int_equal(pools_problem_make(&x.c, &x.w, &p, &e), 0);
        double best = brute_objective(&p), found = plan_objective(&x, 0, NULL);
        if (fabs(best - found) > 1e-9 * best)
            fail_msg("seed %llu: planned %.9g, exhaustive search %.9g", (unsigned long long)seed,
                     found, best);
        pools_problem_free(&p);
        example_free(&x);
    }
}

TEST(no_plan_beats_the_relaxation)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct example x;
        double bound = 0;
        example_make(&(struct example_options){.n_kinds = 3,
                                               .counts = {4, 7, 9},
                                               .per_node = 2,
                                               .n_models = 2,
                                               .max_stages = 3,
                                               .slo_s = 0.05,
                                               .nic_bytes_per_s = 1e9,
                                               .max_batch = 3,
                                               .shares = 3,
                                               .seed = seed},
                     &x);
        double whole = plan_objective(&x, 0, &bound);
        assert_true(whole <= bound * (1 + 1e-9));
        double shared = plan_objective(&x, 1, &bound);
        assert_true(shared <= bound * (1 + 1e-9));
        assert_true(shared >= whole * (1 - 1e-9));
        example_free(&x);
    }
}

TEST(a_large_cluster_is_planned_near_the_relaxation)
{
    struct example x;
    double bound = 0;
    example_make(&(struct example_options){.n_kinds = 4,
                                           .counts = {4000, 9000, 1500, 25000},
                                           .per_node = 4,
                                           .n_models = 3,
                                           .max_stages = 2,
                                           .slo_s = 0.05,
                                           .nic_bytes_per_s = 1e9,
                                           .max_batch = 4,
                                           .shares = 2,
                                           .seed = 5},
                 &x);
    double value = plan_objective(&x, 0, &bound);
    assert_true(value <= bound * (1 + 1e-9));
    assert_true(value >= bound * 0.99);
    example_free(&x);
}

TEST(limited_assignments_are_kept)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct example x;
        example_make(&(struct example_options){.n_kinds = 2,
                                               .counts = {6, 9},
                                               .per_node = 1,
                                               .n_models = 2,
                                               .max_stages = 2,
                                               .pipelines_per_assignment = 1,
                                               .slo_s = 0.04,
                                               .nic_bytes_per_s = 1e9,
                                               .max_batch = 3,
                                               .shares = 2,
                                               .seed = seed},
                     &x);
        double limited = plan_objective(&x, 0, NULL); /* the check counts assignments */
        x.w.pipelines_per_assignment = 0;
        assert_true(limited > 0 && limited <= plan_objective(&x, 0, NULL) * (1 + 1e-9));
        example_free(&x);
    }
}

TEST(limited_assignments_are_kept_on_large_clusters)
{
    struct example x;
    double bound = 0;
    example_make(&(struct example_options){.n_kinds = 3,
                                           .counts = {3000, 8000, 500},
                                           .per_node = 2,
                                           .n_models = 3,
                                           .max_stages = 3,
                                           .pipelines_per_assignment = 1,
                                           .slo_s = 0.05,
                                           .nic_bytes_per_s = 1e9,
                                           .max_batch = 4,
                                           .shares = 3,
                                           .seed = 6},
                 &x);
    double value = plan_objective(&x, 0, &bound); /* the check counts assignments */
    assert_true(value <= bound * (1 + 1e-9));
    assert_true(value >= bound * 0.97);
    example_free(&x);
}

/* Least seconds from a layer on, behind a stage on kind `from` (-1: none), in so many stages. */
static double brute_fastest(const struct pools_problem *p, int batch, int first, int from, int left)
{
    const struct pools_model *m = &p->models[0];
    double best = INFINITY;
    for (int k = 0; left > 0 && k < p->n_kinds; k++)
        for (int share = 0; share < p->kinds[k].n_shares; share++)
            for (int end = first + 1; end <= m->n_layers; end++) {
                double seconds = pools_compute_s(m, k, share, batch, first, end);
                if (from >= 0)
                    seconds += pools_transfer_s(p, m, first, from, k) * m->batches[batch] +
                               p->kinds[from].latency_s + p->kinds[k].latency_s;
                if (end < m->n_layers)
                    seconds += brute_fastest(p, batch, end, k, left - 1);
                best = seconds < best ? seconds : best;
            }
    return best;
}

TEST(the_fastest_pipeline_is_that_of_exhaustive_search)
{
    int cut = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct example x;
        struct pools_problem p = {0};
        struct err e = {0};
        int stages = 1 + (int)(seed % 3);
        example_make(&(struct example_options){.n_kinds = 2 + (int)(seed % 2),
                                               .counts = {2, 2, 2},
                                               .per_node = 1,
                                               .n_models = 1,
                                               .max_stages = stages,
                                               .slo_s = 0.05,
                                               .nic_bytes_per_s = seed % 4 ? 1e10 : 1e8,
                                               .max_batch = 2,
                                               .shares = 2,
                                               .seed = seed},
                     &x);
        assert_int_equal(pools_problem_make(&x.c, &x.w, &p, &e), 0);
        struct pools_model *m = &p.models[0];
        /* A kind has no times for the last layer, another none for the first. */
        int n = m->n_layers + 1;
        for (int k = 0; k < 2; k++)
            for (int s = 0; s < WORKLOAD_MAX_SHARES * m->n_batches; s++)
                for (int i = 0; i < n; i++)
                    m->compute_s[((k * WORKLOAD_MAX_SHARES * m->n_batches + s) * n + (k ? 0 : i)) *
                                     n +
                                 (k ? i : m->n_layers)] = NAN;
        double wanted = INFINITY;
        for (int b = 0; b < m->n_batches; b++)
            wanted = fmin(wanted, brute_fastest(&p, b, 0, -1, stages) + pools_batching_s(m, b));
        struct pools_fastest f = pools_fastest_find(&p, 0, stages);
        if (isfinite(wanted) ? !(fabs(f.seconds - wanted) < 1e-12) : isfinite(f.seconds))
            fail_msg("seed %llu: %g, and %g by trying all", (unsigned long long)seed, f.seconds,
                     wanted);
        cut += isfinite(f.seconds) && f.n_stages > 1 && f.kinds[0] != 1 && f.kinds[f.n_stages - 1];
        pools_problem_free(&p);
        example_free(&x);
    }
    assert_true(cut > 5);
}

TEST(a_deadline_that_nothing_meets_is_infeasible_and_says_why)
{
    struct example x;
    struct err e = {0};
    struct pools_answer a = {0};
    example_make(&(struct example_options){.n_kinds = 2,
                                           .counts = {2, 2},
                                           .per_node = 1,
                                           .n_models = 1,
                                           .max_stages = 2,
                                           .slo_s = 0.001,
                                           .nic_bytes_per_s = 1e9,
                                           .max_batch = 2,
                                           .shares = 1,
                                           .seed = 3},
                 &x);
    struct pools_request rq = {
        .cluster = &x.c, .workload = &x.w, .share_devices = -1, .slo_margin = -1, .env = &env_real};
    assert_int_equal(pools_plan(&rq, &a, &e), HP_EINFEASIBLE);
    assert_non_null(strstr(e.text, "m0: no pipeline meets its deadline: 1 ms"));
    assert_non_null(strstr(e.text, "and one request takes at least "));
    pools_answer_free(&a);
    example_free(&x);
}

TEST(the_published_programme_agrees_on_a_small_cluster)
{
    struct example x;
    struct err e = {0};
    struct pools_answer a = {0};
    example_make(&(struct example_options){.n_kinds = 2,
                                           .counts = {2, 3},
                                           .per_node = 1,
                                           .n_models = 1,
                                           .max_stages = 2,
                                           .pipelines_per_assignment = 1,
                                           .slo_s = 0.03,
                                           .nic_bytes_per_s = 1e9,
                                           .max_batch = 2,
                                           .shares = 1,
                                           .seed = 11},
                 &x);
    struct pools_request rq = {.cluster = &x.c,
                               .workload = &x.w,
                               .method = POOLS_METHOD_MILP,
                               .share_devices = 0,
                               .slo_margin = -1,
                               .time_limit_s = 20,
                               .env = &env_real};
    assert_int_equal(pools_plan(&rq, &a, &e), 0);
    if (a.complete)
        assert_true(fabs(a.plan.normalized_throughput_per_s / plan_objective(&x, 0, NULL) - 1) <
                    1e-6);
    pools_answer_free(&a);
    example_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_devices_are_planned_as_well_as_by_exhaustive_search),
        cmocka_unit_test(no_plan_beats_the_relaxation),
        cmocka_unit_test(a_large_cluster_is_planned_near_the_relaxation),
        cmocka_unit_test(limited_assignments_are_kept),
        cmocka_unit_test(limited_assignments_are_kept_on_large_clusters),
        cmocka_unit_test(the_fastest_pipeline_is_that_of_exhaustive_search),
        cmocka_unit_test(a_deadline_that_nothing_meets_is_infeasible_and_says_why),
        cmocka_unit_test(the_published_programme_agrees_on_a_small_cluster),
    };
    return cmocka_run_group_tests_name("allocate", tests, NULL, NULL);
}
