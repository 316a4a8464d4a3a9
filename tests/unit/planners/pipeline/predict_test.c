/* What is predicted for a prompt is what its plan says: the two come from one flow. */
#include <stddef.h>
#include <stdint.h>

#include "planners/pipeline/predict.h"
#include "tests/test.h"
#include "tests/unit/planners/pipeline/cases.h"

enum { CASES = 60 };

TEST(the_plans_own_slices_take_its_makespan)
{
    static const enum pipeline_method methods[] = {PIPELINE_EVEN, PIPELINE_HPIPE, PIPELINE_EXACT};
    uint64_t seed = 11;
    int compared = 0;
    for (int i = 0; i < CASES; i++) {
        struct small_case k = {0};
        case_make(&seed, &k);
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
            struct pipeline_request rq = {.cluster = &k.cluster,
                                          .profile = &k.profile,
                                          .tokens = k.tokens,
                                          .batch = k.batch,
                                          .unit = k.unit,
                                          .method = methods[m],
                                          .brief = true};
            struct arena arena = {0};
            struct pipeline_answer a;
            struct pipeline_schedule s;
            struct err e = {0};
            if (pipeline_plan_make(&rq, &arena, &a, &e) == 0) {
                assert_int_equal(predict_schedule(&k.cluster, &k.profile, &a.plan, a.plan.slices,
                                                  a.plan.n_slices, 0, k.batch, &arena, &s, &e),
                                 0);
                double end = s.end_s[s.n_stages * s.n_slices - 1];
                if (fabs(end - a.makespan_s) > 1e-9 * a.makespan_s)
                    fail_msg("seed 11, case %d, method %s: predicted %.12g s, planned %.12g s", i,
                             pipeline_method_names[methods[m]], end, a.makespan_s);
                compared++;
                json_decref(a.document);
            }
            arena_free(&arena);
        }
        case_free(&k);
    }
    assert_true(compared > CASES);
}

TEST(what_cannot_be_predicted_says_why)
{
    uint64_t seed = 3;
    struct small_case k = {0};
    case_make(&seed, &k);
    const int slices[] = {4};
    int n = k.profile.n_layers;
    struct plan_stage cases[] = {
        {.device = "no/such", .end_layer = n},
        {.device = k.cluster.devices[0].id, .end_layer = n + 1},
        {.device = k.cluster.devices[0].id, .end_layer = n, .n_devices = 2},
    };
    const int codes[] = {HP_ENOENT, HP_EINVAL, HP_EINVAL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_pipeline plan = {.stages = &cases[i], .n_stages = 1};
        struct arena arena = {0};
        struct pipeline_schedule s;
        struct err e = {0};
        assert_int_equal(
            predict_schedule(&k.cluster, &k.profile, &plan, slices, 1, 0, 0, &arena, &s, &e),
            codes[i]);
        assert_int_equal(
            predict_schedule(&k.cluster, &k.profile, &plan, slices, 0, 0, 0, &arena, &s, &e),
            HP_EINVAL);
        arena_free(&arena);
    }
    case_free(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plans_own_slices_take_its_makespan),
        cmocka_unit_test(what_cannot_be_predicted_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
