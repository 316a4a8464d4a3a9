/* The joint search against a brute force over small random cases. */
#include <stddef.h>
#include <stdint.h>

#include "planners/pipeline/bound.h"
#include "planners/pipeline/evaluate.h"
#include "planners/pipeline/search.h"
#include "tests/share.h"
#include "tests/test.h"
#include "tests/unit/planners/pipeline/cases.h"

enum { CASES = 600, SEED = 20240607 };

static void compare_with_brute_force(enum pipeline_objective objective, int cases,
                                     int *several_devices, int *infeasible)
{
    for (int i = 0; i < cases; i++) {
        uint64_t r = SEED + (uint64_t)i;
        struct small_case k;
        struct arena arena = {0};
        struct err e = {0};
        struct pipeline_answer a = {0};
        int stages = 0;
        case_make(&r, &k);
        double best = brute_force(&k, objective, &stages);
        struct pipeline_request rq = {.cluster = &k.cluster,
                                      .profile = &k.profile,
                                      .tokens = k.tokens,
                                      .batch = k.batch,
                                      .unit = k.unit,
                                      .objective = objective,
                                      .brief = true};
        int rc = pipeline_plan_make(&rq, &arena, &a, &e);
        if (!isfinite(best)) {
            assert_int_equal(rc, HP_EINFEASIBLE);
            ++*infeasible;
        } else {
            if (rc < 0)
                fail_msg("seed %d: %s", SEED + i, e.text);
            double value = objective == PIPELINE_LATENCY  ? a.makespan_s
                           : objective == PIPELINE_ENERGY ? a.energy_j
                                                          : 1 / a.prompts_per_s;
            if (fabs(value - best) > 1e-6 * best || a.gap > 1e-6)
                fail_msg("seed %d: planned %.12g (gap %g), brute force %.12g", SEED + i, value,
                         a.gap, best);
            *several_devices += stages > 1;
        }
        json_decref(a.document);
        arena_free(&arena);
        case_free(&k);
    }
}

TEST(exact_equals_brute_force_for_latency)
{
    int several = 0, infeasible = 0, cases = test_share(CASES);
    compare_with_brute_force(PIPELINE_LATENCY, cases, &several, &infeasible);
    print_message("# %d cases, %d optima use several devices, %d have no plan\n", cases, several,
                  infeasible);
    assert_true(several > (cases - infeasible) / 2);
    assert_true(infeasible < cases / 4);
}

TEST(exact_equals_brute_force_for_throughput_and_energy)
{
    int several = 0, infeasible = 0;
    compare_with_brute_force(PIPELINE_THROUGHPUT, test_share(CASES / 4), &several, &infeasible);
    compare_with_brute_force(PIPELINE_ENERGY, test_share(CASES / 4), &several, &infeasible);
}

/* The search for large problems, made to solve small ones. */
TEST(search_is_close_to_brute_force_and_above_the_bound)
{
    int feasible = 0, optimal = 0;
    for (int i = 0; i < test_share(CASES / 2); i++) {
        uint64_t r = SEED + (uint64_t)i;
        struct small_case k;
        struct arena arena = {0};
        struct err e = {0};
        struct pipeline_cost c;
        struct exact x;
        struct trial best = {.value = INFINITY};
        int stages = 0;
        case_make(&r, &k);
        double least = brute_force(&k, PIPELINE_LATENCY, &stages);
        struct pipeline_request rq = {.cluster = &k.cluster,
                                      .profile = &k.profile,
                                      .tokens = k.tokens,
                                      .batch = k.batch,
                                      .unit = k.unit};
        struct exact_options options = {.effort = 1};
        assert_int_equal(cost_init(&c, &rq, NULL, 0, &arena, &e), 0);
        assert_int_equal(exact_init(&x, &c, &options, &e), 0);
        assert_int_equal(search_best(&x, &best, &e), 0);
        if (isfinite(least)) {
            feasible++;
            optimal += best.value <= least * (1 + 1e-6);
            if (best.value < least * (1 - 1e-9))
                fail_msg("seed %d: the search claims %.12g, below the least %.12g", SEED + i,
                         best.value, least);
            double bound = bound_of(&c, &options);
            if (!(bound > 0 && bound <= least * (1 + 1e-9)))
                fail_msg("seed %d: the bound %.12g is not below the least %.12g", SEED + i, bound,
                         least);
            if (!(best.value <= least * 1.2))
                fail_msg("seed %d: the search found %.12g, the least is %.12g", SEED + i,
                         best.value, least);
        }
        arena_free(&arena);
        case_free(&k);
    }
    print_message("# %d of %d small cases solved to the optimum by search\n", optimal, feasible);
    assert_true(optimal * 100 >= feasible * 95);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_equals_brute_force_for_latency),
        cmocka_unit_test(exact_equals_brute_force_for_throughput_and_energy),
        cmocka_unit_test(search_is_close_to_brute_force_and_above_the_bound),
    };
    return cmocka_run_group_tests_name("pipeline exact", tests, NULL, NULL);
}
