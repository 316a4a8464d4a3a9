/* hp-plan/1: the envelope and the pipeline part, there and back. */
#include <math.h>
#include <string.h>

#include "common/plan.h"
#include "tests/test.h"

static int read_pipeline(const char *text, struct arena *arena, struct plan_pipeline *out,
                         struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_parse_at("p.json", text, strlen(text), &root, &at, e);
    if (rc < 0)
        fail_msg("%s", e->text);
    rc = plan_pipeline_from_json(&at, arena, out, e);
    json_decref(root);
    return rc;
}

TEST(a_pipeline_comes_back_as_it_was_written)
{
    struct arena arena = {0};
    struct err e = {0};
    struct plan_stage stages[] = {
        {.device = "a/cpu", .first_layer = 0, .end_layer = 3, .compute_s = 2, .memory_bytes = 100},
        {.device = "b/cpu", .first_layer = 3, .end_layer = 8, .compute_s = 1, .memory_bytes = 50}};
    int slices[] = {40, 30, 10};
    struct plan_pipeline p = {.stages = stages,
                              .n_stages = 2,
                              .slices = slices,
                              .n_slices = 3,
                              .makespan_s = 9.5},
                         back = {0};
    json_t *o = plan_envelope("pipeline", "exact", 0.25);
    const char *kind;
    struct json_at at = {.file = "p.json", .value = o};
    assert_int_equal(plan_pipeline_to_json(&p, o), 0);
    assert_int_equal(plan_kind(&at, &kind, &e), 0);
    assert_string_equal(kind, "pipeline");
    if (plan_pipeline_from_json(&at, &arena, &back, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(back.n_stages, 2);
    assert_string_equal(back.stages[1].device, "b/cpu");
    assert_int_equal(back.stages[1].first_layer, 3);
    assert_int_equal(back.stages[1].end_layer, 8);
    assert_true(back.stages[0].memory_bytes == 100 && back.makespan_s == 9.5);
    assert_int_equal(back.n_slices, 3);
    assert_memory_equal(back.slices, slices, sizeof slices);
    json_decref(o);
    arena_free(&arena);
}

TEST(stages_follow_each_other_without_gap_or_overlap)
{
    static const struct {
        const char *layers, *says;
    } cases[] = {
        {"[1, 3]}, {\"device\": \"b\", \"layers\": [3, 4]", "stages[0].layers: starts at layer 1"},
        {"[0, 3]}, {\"device\": \"b\", \"layers\": [4, 5]", "stages[1].layers: starts at layer 4"},
        {"[0, 3]}, {\"device\": \"b\", \"layers\": [2, 5]",
         "starts at layer 2; the stage before it ends at 3"},
        {"[0, 0]", "no range"},
        {"[0]", "half-open range"},
        {"[0, 99999999]", "no range"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena = {0};
        struct plan_pipeline out = {0};
        struct err e = {0};
        char text[300];
        snprintf(text, sizeof text,
                 "{\"format\": \"hp-plan/1\", \"kind\": \"pipeline\", \"stages\": [{\"device\": "
                 "\"a\", \"layers\": %s}]}",
                 cases[i].layers);
        assert_int_equal(read_pipeline(text, &arena, &out, &e), HP_EPARSE);
        if (!strstr(e.text, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].says);
        arena_free(&arena);
    }
}

TEST(a_gap_is_computed_for_a_minimum_and_taken_for_a_maximum)
{
    json_t *o = plan_envelope("pipeline", "exact", 0);
    json_t *solver = json_object_get(o, "solver");
    plan_set_bound(o, 8, 10, NAN);
    assert_true(fabs(json_number_value(json_object_get(solver, "gap")) - 0.25) < 1e-12);
    plan_set_bound(o, 8, 10, 0.5);
    assert_true(json_number_value(json_object_get(solver, "gap")) == 0.5);
    plan_add_why(o, "two stages", INFINITY, "does not fit");
    json_t *row = json_array_get(json_object_get(o, "why"), 0);
    assert_true(json_is_null(json_object_get(row, "predicted")));
    assert_string_equal(json_string_value(json_object_get(row, "candidate")), "two stages");
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipeline_comes_back_as_it_was_written),
        cmocka_unit_test(stages_follow_each_other_without_gap_or_overlap),
        cmocka_unit_test(a_gap_is_computed_for_a_minimum_and_taken_for_a_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
