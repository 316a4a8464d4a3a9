/* Workloads and plans of pools: what the readers take and what they say no to. */
#include <stdlib.h>
#include <string.h>

#include "common/plan.h"
#include "common/plan_pools.h"
#include "common/workload.h"
#include "tests/test.h"

#define MODEL "{\"name\":\"a\",\"profile\":\"p/a.json\",\"weight\":0.5,\"slo_s\":0.1}"

static int read_workload(const char *text, const char *folder, struct workload *w, struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_parse_at("w.json", text, strlen(text), &root, &at, e);
    if (rc < 0)
        return rc;
    rc = workload_from_json(&at, folder, w, e);
    json_decref(root);
    return rc;
}

TEST(defaults_are_those_of_the_format)
{
    struct workload w = {0};
    struct err e = {0};
    if (read_workload("{\"format\":\"hp-workload/1\",\"models\":[" MODEL
                      "],\"shares\":{\"L4\":[1,2,4]}}",
                      "data/w", &w, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(w.max_stages, 2);
    assert_int_equal(w.pipelines_per_assignment, 0);
    assert_false(w.share_devices_across_pipelines);
    assert_true(w.models[0].slo_margin == 0 && !w.models[0].has_batching);
    assert_string_equal(w.models[0].profile_file, "data/w/p/a.json");
    assert_int_equal(workload_shares_of(&w, "L4").n_shares, 3);
    assert_int_equal(workload_shares_of(&w, "P4").n_shares, 1);
    assert_int_equal(workload_find_model(&w, "a"), 0);
    assert_int_equal(workload_find_model(&w, "b"), -1);
    workload_free(&w);
}

TEST(errors_name_path_and_value)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"format\":\"hp-workload/2\",\"models\":[" MODEL "]}",
         "w.json: $.format: is \"hp-workload/2\""},
        {"{\"format\":\"hp-workload/1\",\"models\":[]}", "$.models: has 0 models"},
        {"{\"format\":\"hp-workload/"
         "1\",\"models\":[{\"name\":\"a\",\"profile\":\"p\",\"weight\":0,\"slo_s\":1}]}",
         "$.models[0].weight: 0 is not above 0"},
        {"{\"format\":\"hp-workload/"
         "1\",\"models\":[{\"name\":\"a\",\"profile\":\"p\",\"weight\":-2,\"slo_s\":1}]}",
         "-2 is not above 0"},
        {"{\"format\":\"hp-workload/"
         "1\",\"models\":[{\"name\":\"a\",\"profile\":\"p\",\"weight\":1,\"slo_s\":0}]}",
         "$.models[0].slo_s: 0 is not above 0"},
        {"{\"format\":\"hp-workload/1\",\"models\":[" MODEL "," MODEL "]}",
         "a second model of the name \"a\""},
        {"{\"format\":\"hp-workload/1\",\"models\":[" MODEL "],\"slo_margin\":1}",
         "$.slo_margin: 1 leaves no time"},
        {"{\"format\":\"hp-workload/1\",\"models\":[" MODEL "],\"max_stages\":0}",
         "max_stages is 0"},
        {"{\"format\":\"hp-workload/1\",\"models\":[" MODEL "],\"shares\":{\"L4\":[2,1]}}",
         "$.shares.L4[1]: 1: shares are"},
        {"{\"format\":\"hp-workload/"
         "1\",\"models\":[{\"name\":\"a\",\"profile\":\"p\",\"weight\":1,\"slo_s\":1,\"batching\":{"
         "\"factor\":1}}]}",
         "$.models[0].batching: has no \"throughput_per_s\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct workload w = {0};
        struct err e = {0};
        assert_int_equal(read_workload(cases[i].text, "", &w, &e), HP_EPARSE);
        if (!strstr(e.text, cases[i].says))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].says, e.text);
    }
}

static int read_plan(const char *text, struct arena *arena, struct plan_pools *p, struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_parse_at("p.json", text, strlen(text), &root, &at, e);
    if (rc < 0)
        return rc;
    rc = plan_pools_from_json(&at, arena, p, e);
    json_decref(root);
    return rc;
}

TEST(a_plan_reads_back_as_it_was_written)
{
    struct plan_pools_stage stages[2] = {{"P4", 0, 4, 1, 40, 40, 0.011, 0.002},
                                         {"L4", 4, 9, 3, 7, 3, 0.02, 0}};
    struct plan_pools_pipeline pipeline = {2, 744.7, 0.031, stages, 2};
    struct plan_pools_model model = {"apcnet", 744.7, 0.25, &pipeline, 1};
    struct plan_pools plan = {&model, 1, 2482.3}, back;
    struct arena arena = {0};
    struct err e = {0};
    json_t *o = plan_envelope("pools", "exact", 0.1);
    assert_int_equal(plan_pools_to_json(&plan, o), 0);
    char *text = json_dumps(o, 0);
    if (read_plan(text, &arena, &back, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(back.n_models, 1);
    assert_true(back.normalized_throughput_per_s == 2482.3 && back.models[0].slo_margin == 0.25);
    const struct plan_pools_stage *s = &back.models[0].pipelines[0].stages[1];
    assert_string_equal(s->kind, "L4");
    assert_true(s->first_layer == 4 && s->end_layer == 9 && s->share == 3 && s->count == 7 &&
                s->devices == 3 && s->compute_s == 0.02);
    free(text);
    json_decref(o);
    arena_free(&arena);
}

TEST(a_plan_with_a_gap_between_stages_is_refused)
{
    struct arena arena = {0};
    struct plan_pools p;
    struct err e = {0};
    assert_int_equal(read_plan("{\"format\":\"hp-plan/"
                               "1\",\"kind\":\"pools\",\"models\":[{\"name\":\"a\",\"pipelines\":[{"
                               "\"batch\":1,\"stages\":["
                               "{\"layers\":[0,2],\"kind\":\"K\",\"share\":1,\"count\":1},{"
                               "\"layers\":[3,4],\"kind\":\"K\",\"share\":1,\"count\":1}]"
                               "}]}]}",
                               &arena, &p, &e),
                     HP_EPARSE);
    assert_non_null(strstr(e.text, "$.models[0].pipelines[0].stages[1].layers: starts at layer 3; "
                                   "the stage before it ends at 2"));
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_format),
        cmocka_unit_test(errors_name_path_and_value),
        cmocka_unit_test(a_plan_reads_back_as_it_was_written),
        cmocka_unit_test(a_plan_with_a_gap_between_stages_is_refused),
    };
    return cmocka_run_group_tests_name("workload", tests, NULL, NULL);
}
