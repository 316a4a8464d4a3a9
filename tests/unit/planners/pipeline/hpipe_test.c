/* The published methods on the published testbed: figures that an independent implementation of the
 * paper gets. */
#include <stddef.h>
#include <stdint.h>

#include "planners/pipeline/hpipe.h"
#include "tests/test.h"
#include "tests/unit/planners/pipeline/cases.h"
#include "tests/unit/planners/pipeline/testbed.h"

/* ---- Algorithm 2 against trying every t_max ---- */

enum { MAX_UNITS = 9 };

/* The least sum + bubble * (largest slice) over all slicings. */
static double best_slicing(int n, const ptrdiff_t *row, const double *seconds, int n_stages)
{
    double best = INFINITY;
    for (unsigned bits = 0; bits < 1u << (n - 1); bits++) {
        double sum = 0, most = 0;
        for (int i = 0, j = 1; j <= n; j++)
            if (j == n || bits >> (j - 1) & 1) {
                double t = seconds[row[i] + j];
                sum += t;
                most = fmax(most, t);
                i = j;
            }
        best = fmin(best, sum + (n_stages - 1) * most);
    }
    return best;
}

TEST(slicing_programme_equals_trying_every_slicing)
{
    uint64_t r = 7;
    for (int round = 0; round < 400; round++) {
        int n = case_pick(&r, 1, MAX_UNITS), n_stages = case_pick(&r, 1, 6), cuts[MAX_UNITS + 1],
            n_slices;
        double seconds[MAX_UNITS * (MAX_UNITS + 1) / 2];
        ptrdiff_t row[MAX_UNITS], offset = 0;
        struct arena arena = {0};
        struct err e = {0};
        for (int i = 0; i < n; i++) {
            row[i] = offset - i - 1;
            for (int j = i + 1; j <= n; j++)
                seconds[offset++] =
                    round % 2 ? case_pick(&r, 1, 9)
                              : case_range(&r, 0.1, 0.3) + (j - i) * case_range(&r, 0.1, 0.3);
        }
        assert_int_equal(hpipe_slices(n, row, seconds, n_stages, &arena, cuts, &n_slices, &e), 0);
        double sum = 0, most = 0;
        assert_int_equal(cuts[0], 0);
        assert_int_equal(cuts[n_slices], n);
        for (int k = 0; k < n_slices; k++) {
            assert_true(cuts[k] < cuts[k + 1]);
            sum += seconds[row[cuts[k]] + cuts[k + 1]];
            most = fmax(most, seconds[row[cuts[k]] + cuts[k + 1]]);
        }
        double got = sum + (n_stages - 1) * most, best = best_slicing(n, row, seconds, n_stages);
        if (fabs(got - best) > 1e-9 * best)
            fail_msg("round %d: %.12g, best %.12g", round, got, best);
        arena_free(&arena);
    }
}

/* ---- figures ---- */

TEST(published_methods_take_their_known_times)
{
    static const struct {
        const char *model;
        enum pipeline_method method;
        enum pipeline_partition partition;
        double makespan_s, tolerance;
    } cases[] = {
        {"llama-7b", PIPELINE_EVEN, PIPELINE_PARTITION_EVEN, 19.09, 0.001},
        {"llama-7b", PIPELINE_GPIPE, PIPELINE_PARTITION_EVEN, 7.65, 0.001},
        {"llama-7b", PIPELINE_GPIPE, PIPELINE_PARTITION_BALANCED, 2.68, 0.002},
        {"llama-7b", PIPELINE_TERAPIPE, PIPELINE_PARTITION_EVEN, 7.08, 0.001},
        {"llama-7b", PIPELINE_HPIPE, PIPELINE_PARTITION_EVEN, 2.32, 0.01},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster cluster = {0};
        struct profile profile = {0};
        struct arena arena = {0};
        struct err e = {0};
        struct pipeline_answer a;
        testbed_load(cases[i].model, &cluster, &profile);
        struct pipeline_request rq = {.cluster = &cluster,
                                      .profile = &profile,
                                      .tokens = 2048,
                                      .method = cases[i].method,
                                      .partition = cases[i].partition,
                                      .brief = true};
        if (pipeline_plan_make(&rq, &arena, &a, &e) < 0)
            fail_msg("%s", e.text);
        if (fabs(a.makespan_s - cases[i].makespan_s) > cases[i].tolerance * cases[i].makespan_s)
            fail_msg("%s: %.4f s, known %.4f s", pipeline_method_names[cases[i].method],
                     a.makespan_s, cases[i].makespan_s);
        json_decref(a.document);
        arena_free(&arena);
        cluster_free(&cluster);
        profile_free(&profile);
    }
}

TEST(exact_plans_reach_the_best_known_times)
{
    static const struct {
        const char *model;
        double makespan_s;
    } cases[] = {{"llama-7b", 2.1085}, {"gpt3-2b", 1.5165}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster cluster = {0};
        struct profile profile = {0};
        struct arena arena = {0};
        struct err e = {0};
        struct pipeline_answer a;
        testbed_load(cases[i].model, &cluster, &profile);
        struct pipeline_request rq = {
            .cluster = &cluster, .profile = &profile, .tokens = 2048, .env = &env_real};
        if (pipeline_plan_make(&rq, &arena, &a, &e) < 0)
            fail_msg("%s", e.text);
        print_message(
            "# %s: %.4f s, bound %.4f s, planned in %.2f s\n", cases[i].model, a.makespan_s,
            a.bound,
            json_real_value(json_object_get(json_object_get(a.document, "solver"), "seconds")));
        assert_true(a.makespan_s <= cases[i].makespan_s);
        assert_true(a.bound > 0 && a.bound <= a.makespan_s);
        json_decref(a.document);
        arena_free(&arena);
        cluster_free(&cluster);
        profile_free(&profile);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slicing_programme_equals_trying_every_slicing),
        cmocka_unit_test(published_methods_take_their_known_times),
        cmocka_unit_test(exact_plans_reach_the_best_known_times),
    };
    return cmocka_run_group_tests_name("pipeline hpipe", tests, NULL, NULL);
}
