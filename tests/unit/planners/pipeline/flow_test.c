#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "planners/pipeline/flow.h"
#include "tests/test.h"

static const struct {
    const char *what;
    int n_stages, n_slices;
    double compute[6], wire[6], latency[3], makespan;
} cases[] = {
    {"one stage is the sum of its slices", 1, 3, {1, 2, 3}, {9, 9, 9}, {9}, 6},
    {"a slice arrives after its hop and the latency", 2, 1, {1, 2}, {0.5, 0}, {0.25, 0}, 3.75},
    {"hops overlap with compute", 2, 3, {2, 2, 2, 1, 1, 1}, {1, 1, 1, 0, 0, 0}, {0, 0}, 8},
    {"a slow hop is a queue of its own", 2, 3, {1, 1, 1, 1, 1, 1}, {3, 3, 3, 0, 0, 0}, {0, 0}, 11},
    {"latency delays every slice but queues none",
     2,
     3,
     {1, 1, 1, 1, 1, 1},
     {0, 0, 0, 0, 0, 0},
     {10, 0},
     14},
    {"a slow stage holds up those before the next",
     3,
     2,
     {1, 1, 4, 4, 1, 1},
     {0, 0, 0, 0, 0, 0},
     {0, 0, 0},
     10},
};

/* Stage after stage; gives the end of the last compute. */
static double stages_run(int n_stages, int n_slices, const double *compute_s, const double *wire_s,
                         const double *latency_s, double *scratch)
{
    double end = 0;
    memset(scratch, 0, (size_t)n_slices * sizeof *scratch);
    for (int j = 0; j < n_stages; j++) {
        const double *wire = j + 1 < n_stages ? wire_s + (size_t)j * (size_t)n_slices : NULL;
        end = flow_stage(n_slices, compute_s + (size_t)j * (size_t)n_slices, wire, latency_s[j],
                         scratch);
    }
    return end;
}

TEST(makespan_is_that_of_queues_in_a_row)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double scratch[3];
        double got = stages_run(cases[i].n_stages, cases[i].n_slices, cases[i].compute,
                                cases[i].wire, cases[i].latency, scratch);
        if (fabs(got - cases[i].makespan) > 1e-12)
            fail_msg("%s: %g, expected %g", cases[i].what, got, cases[i].makespan);
    }
}

TEST(schedule_ends_when_the_makespan_says_and_keeps_every_queue)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena = {0};
        struct err e = {0};
        struct pipeline_schedule s;
        int n = cases[i].n_slices, stages = cases[i].n_stages;
        assert_int_equal(flow_schedule(stages, n, cases[i].compute, cases[i].wire, cases[i].latency,
                                       &arena, &s, &e),
                         0);
        assert_true(fabs(s.end_s[stages * n - 1] - cases[i].makespan) < 1e-12);
        for (int j = 0; j < stages; j++)
            for (int k = 0; k < n; k++) {
                int cell = j * n + k;
                assert_true(fabs(s.end_s[cell] - s.start_s[cell] - cases[i].compute[cell]) < 1e-12);
                assert_true(k == 0 || s.start_s[cell] >= s.end_s[cell - 1]);
                if (j + 1 == stages)
                    continue;
                assert_true(s.hop_start_s[cell] >= s.end_s[cell]);
                assert_true(k == 0 || s.hop_start_s[cell] >= s.hop_end_s[cell - 1]);
                assert_true(s.start_s[cell + n] >= s.hop_end_s[cell] + cases[i].latency[j]);
            }
        arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makespan_is_that_of_queues_in_a_row),
        cmocka_unit_test(schedule_ends_when_the_makespan_says_and_keeps_every_queue),
    };
    return cmocka_run_group_tests_name("pipeline flow", tests, NULL, NULL);
}
