/* The face of the planner: given devices and layers, memory for a context, and the judge of foreign
 * plans. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "planners/pipeline/pipeline.h"
#include "tests/test.h"
#include "tests/unit/planners/pipeline/cases.h"

static void read_text(const char *text, struct cluster *c, struct profile *p)
{
    struct buffer b = {0};
    buffer_append(&b, text, strlen(text));
    case_read("file", &b, c, p);
}

struct pipeline_bed {
    struct cluster cluster;
    struct profile profile;
    struct arena arena;
    struct pipeline_answer answer;
    struct pipeline_request rq;
};

/* Three devices on two nodes, six equal layers that take 0.1 s a token each, twice that on the slow
 * kind. */
static void bed_make(struct pipeline_bed *b)
{
    *b = (struct pipeline_bed){0};
    read_text("{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"a\", \"devices\": "
              "[{\"name\": \"g0\", \"kind\": \"fast\", "
              "\"memory_bytes\": 1000},"
              "{\"name\": \"g1\", \"kind\": \"slow\", \"memory_bytes\": 1000}], \"device_link\": "
              "{\"bandwidth_bytes_per_s\": 1000},"
              "\"nics\": [{\"bandwidth_bytes_per_s\": 100}]}, {\"name\": \"b\", \"devices\": "
              "[{\"name\": \"g0\", \"kind\": \"fast\","
              "\"memory_bytes\": 1000}], \"nics\": [{\"bandwidth_bytes_per_s\": 100}]}]}",
              &b->cluster, NULL);
    read_text(
        "{\"format\": \"hp-profile/1\", \"batch\": 1, \"layers\": ["
        "{\"class\": \"c\", \"param_bytes\": 100, \"state_bytes_per_token\": 1, "
        "\"output_bytes_per_token\": 1},"
        "{\"class\": \"c\", \"param_bytes\": 100, \"state_bytes_per_token\": 1, "
        "\"output_bytes_per_token\": 1},"
        "{\"class\": \"c\", \"param_bytes\": 100, \"state_bytes_per_token\": 1, "
        "\"output_bytes_per_token\": 1},"
        "{\"class\": \"c\", \"param_bytes\": 100, \"state_bytes_per_token\": 1, "
        "\"output_bytes_per_token\": 1},"
        "{\"class\": \"c\", \"param_bytes\": 100, \"state_bytes_per_token\": 1, "
        "\"output_bytes_per_token\": 1},"
        "{\"class\": \"c\", \"param_bytes\": 100, \"state_bytes_per_token\": 1, "
        "\"output_bytes_per_token\": 1}],"
        "\"latency\": {\"fast\": {\"c\": {\"slice\": [1, 100], \"prefix\": [0], \"seconds\": "
        "[[0.1], [10]]}},"
        "\"slow\": {\"c\": {\"slice\": [1, 100], \"prefix\": [0], \"seconds\": [[0.2], [20]]}}}}",
        NULL, &b->profile);
    b->rq = (struct pipeline_request){
        .cluster = &b->cluster, .profile = &b->profile, .tokens = 32, .unit = 8};
}

static void bed_free(struct pipeline_bed *b)
{
    json_decref(b->answer.document);
    arena_free(&b->arena);
    cluster_free(&b->cluster);
    profile_free(&b->profile);
}

static int make(struct pipeline_bed *b, struct err *e)
{
    json_decref(b->answer.document);
    b->answer = (struct pipeline_answer){0};
    *e = (struct err){0};
    return pipeline_plan_make(&b->rq, &b->arena, &b->answer, e);
}

/* ---- what a stage runs at once ---- */

TEST(no_slice_is_longer_than_a_stage_runs_at_once)
{
    struct pipeline_bed b;
    struct err e;
    bed_make(&b);
    const int one[] = {0};
    static const enum pipeline_method methods[] = {PIPELINE_EXACT, PIPELINE_HPIPE, PIPELINE_EVEN};
    for (int limit = 8; limit <= 64; limit += 28)
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
            b.rq.tokens = 60;
            b.rq.devices = one;
            b.rq.n_devices = 1;
            b.rq.method = methods[m];
            b.rq.max_slice = 0;
            assert_int_equal(make(&b, &e), 0);
            double whole = b.answer.makespan_s;
            b.rq.max_slice = limit;
            assert_int_equal(make(&b, &e), 0);
            int sum = 0;
            for (int k = 0; k < b.answer.plan.n_slices; k++) {
                assert_true(b.answer.plan.slices[k] <= limit);
                sum += b.answer.plan.slices[k];
            }
            assert_int_equal(sum, 60);
            assert_true(b.answer.plan.n_slices >= 60 / limit);
            assert_true(b.answer.makespan_s >=
                        whole * (1 - 1e-9)); /* time per token is the same here at any length */
        }
    b.rq.max_slice = -1;
    assert_int_equal(make(&b, &e), HP_EINVAL);
    bed_free(&b);
}

/* ---- what the caller fixes ---- */

TEST(given_devices_are_all_used_in_their_order)
{
    struct pipeline_bed b;
    struct err e;
    const int devices[] = {1, 2, 0};
    bed_make(&b);
    b.rq.devices = devices;
    b.rq.n_devices = 3;
    assert_int_equal(make(&b, &e), 0);
    assert_int_equal(b.answer.plan.n_stages, 3);
    assert_string_equal(b.answer.plan.stages[0].device, "a/g1");
    assert_string_equal(b.answer.plan.stages[1].device, "b/g0");
    assert_string_equal(b.answer.plan.stages[2].device, "a/g0");
    bed_free(&b);
}

TEST(given_layers_stay_and_only_slices_are_chosen)
{
    struct pipeline_bed b;
    struct err e;
    const int devices[] = {0, 1, 2}, ends[] = {1, 5, 6};
    bed_make(&b);
    b.rq.devices = devices;
    b.rq.n_devices = 3;
    b.rq.layer_ends = ends;
    for (int tokens = 8; tokens <= 1024; tokens *= 128) { /* few plans, and many */
        b.rq.tokens = tokens;
        b.rq.context_tokens = 32;
        assert_int_equal(make(&b, &e), 0);
        assert_int_equal(b.answer.plan.n_stages, 3);
        for (int j = 0; j < 3; j++)
            assert_int_equal(b.answer.plan.stages[j].end_layer, ends[j]);
    }
    assert_true(b.answer.plan.n_slices > 1);
    bed_free(&b);
}

TEST(nonsense_in_a_request_is_named)
{
    static const int twice[] = {0, 0}, unknown[] = {7}, two[] = {0, 1}, short_ends[] = {2, 5},
                     empty_stage[] = {6, 6};
    const struct {
        struct pipeline_request change;
        int code;
        const char *says;
    } cases[] = {
        {{.devices = twice, .n_devices = 2}, HP_EINVAL, "a/g0 is named twice"},
        {{.devices = unknown, .n_devices = 1}, HP_ENOENT, "no device number 7"},
        {{.devices = two, .n_devices = 2, .layer_ends = short_ends}, HP_EINVAL, "cover all 6"},
        {{.devices = two, .n_devices = 2, .layer_ends = empty_stage},
         HP_EINVAL,
         "at least one layer"},
        {{.layer_ends = short_ends}, HP_EINVAL, "without the devices"},
        {{.devices = two, .n_devices = 2, .layer_ends = short_ends, .method = PIPELINE_HPIPE},
         HP_EINVAL,
         ""},
        {{.tokens = -1}, HP_EINVAL, "at least 1"},
        {{.context_tokens = 1e6}, HP_EINFEASIBLE, "no device fits even the smallest layer"},
        {{.context_tokens = 450}, HP_EINFEASIBLE, "too little memory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pipeline_bed b;
        struct err e;
        bed_make(&b);
        struct pipeline_request rq = cases[i].change;
        rq.cluster = &b.cluster;
        rq.profile = &b.profile;
        rq.tokens = rq.tokens ? rq.tokens : 32;
        b.rq = rq;
        assert_int_equal(make(&b, &e), cases[i].code);
        if (!strstr(e.text, cases[i].says))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].says, e.text);
        bed_free(&b);
    }
}

TEST(memory_is_counted_for_the_context_and_its_sequences)
{
    struct pipeline_bed b;
    struct err e;
    bed_make(&b);
    b.rq.context_tokens = 50;
    b.rq.sequences = 2;
    assert_int_equal(make(&b, &e), 0);
    for (int j = 0; j < b.answer.plan.n_stages; j++) {
        const struct plan_stage *s = &b.answer.plan.stages[j];
        assert_true(fabs(s->memory_bytes - (s->end_layer - s->first_layer) * 200.0) < 1e-9);
        assert_true(fabs(b.answer.stages[j].kv_bytes + b.answer.stages[j].weight_bytes -
                         s->memory_bytes) < 1e-9);
    }
    bed_free(&b);
}

/* Layers of 200 bytes on devices of 1000: five of them fit where a stage holds nothing else. */
TEST(what_a_stage_holds_beside_its_layers_is_counted_where_it_is_held)
{
    static const int all[] = {0, 1, 2}, ends[] = {1, 5, 6};
    static const struct {
        double hands_on, last;
        int code;
    } cases[] = {
        {0, 0, 0},
        {200, 800, 0},
        {201, 0, HP_EINFEASIBLE},
        {0, 801, HP_EINFEASIBLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pipeline_bed b;
        struct err e;
        bed_make(&b);
        b.rq.context_tokens = 50;
        b.rq.sequences = 2;
        b.rq.devices = all;
        b.rq.n_devices = 3;
        b.rq.layer_ends = ends;
        b.rq.hands_on_bytes = cases[i].hands_on;
        b.rq.last_bytes = cases[i].last;
        if (make(&b, &e) != cases[i].code)
            fail_msg("case %zu: %s", i, e.text);
        if (cases[i].code == 0) {
            const struct plan_stage *s = b.answer.plan.stages;
            assert_true(fabs(s[0].memory_bytes - 200 - cases[i].hands_on) < 1e-9);
            assert_true(fabs(s[1].memory_bytes - 800 - cases[i].hands_on) < 1e-9);
            assert_true(fabs(s[2].memory_bytes - 200 - cases[i].last) < 1e-9);
        }
        bed_free(&b);
    }
}

/* One device holds the whole model exactly: it hands nothing on, and must not be refused for what
 * it would hold if it did. */
TEST(the_only_stage_hands_nothing_on)
{
    for (enum pipeline_method method = PIPELINE_EXACT; method <= PIPELINE_HPIPE; method++) {
        struct pipeline_bed b;
        struct err e;
        bed_make(&b);
        b.cluster.n_devices = 1;
        b.cluster.devices[0].memory_bytes = 1200;
        b.rq.method = method;
        b.rq.context_tokens = 50;
        b.rq.sequences = 2;
        b.rq.hands_on_bytes = 700;
        assert_int_equal(make(&b, &e), 0);
        assert_int_equal(b.answer.plan.n_stages, 1);
        bed_free(&b);
    }
}

TEST(a_cached_prefix_is_where_slices_start)
{
    uint64_t r = 99;
    for (int i = 0; i < 20; i++) {
        struct small_case k;
        struct arena arena = {0};
        struct pipeline_answer cold, warm;
        struct err e = {0};
        case_make(&r, &k);
        struct pipeline_request rq = {.cluster = &k.cluster,
                                      .profile = &k.profile,
                                      .tokens = k.tokens,
                                      .unit = k.unit,
                                      .brief = true};
        if (pipeline_plan_make(&rq, &arena, &cold, &e) == 0) {
            rq.cached_tokens = 64;
            rq.context_tokens = k.tokens;
            assert_int_equal(pipeline_plan_make(&rq, &arena, &warm, &e), 0);
            assert_true(warm.makespan_s >= cold.makespan_s);
            json_decref(cold.document);
            json_decref(warm.document);
        }
        arena_free(&arena);
        case_free(&k);
    }
}

/* ---- the judge ---- */

static json_t *judge(struct pipeline_bed *b, json_t *plan)
{
    struct json_at at = {"plan.json", plan, NULL, NULL, 0};
    struct err e = {0};
    json_t *report = NULL;
    if (pipeline_plan_check(&b->rq, &at, &report, &e) < 0)
        fail_msg("%s", e.text);
    return report;
}

TEST(every_method_makes_plans_that_the_judge_finds_valid)
{
    for (int method = 0; pipeline_method_names[method]; method++) {
        struct pipeline_bed b;
        struct err e;
        bed_make(&b);
        b.rq.method = (enum pipeline_method)method;
        if (make(&b, &e) < 0)
            fail_msg("%s: %s", pipeline_method_names[method], e.text);
        json_t *report = judge(&b, b.answer.document);
        if (!json_is_true(json_object_get(report, "valid")))
            fail_msg("%s: %s", pipeline_method_names[method],
                     json_string_value(json_array_get(json_object_get(report, "violations"), 0)));
        double again = json_real_value(json_object_get(report, "makespan_s"));
        assert_true(fabs(again - b.answer.makespan_s) <= 1e-9 * again);
        json_decref(report);
        bed_free(&b);
    }
}

static json_t *at_path(json_t *plan, const char *stage_key)
{
    return json_object_get(json_array_get(json_object_get(plan, "stages"), 0), stage_key);
}

TEST(the_judge_names_what_is_wrong)
{
    const int devices[] = {0, 2};
    static const char *const says[] = {"no device x/y",
                                       "more than one stage",
                                       "the slices have 40 tokens",
                                       "needs ",
                                       "predicted makespan_s",
                                       "no multiple of the unit",
                                       "ends at layer 9 of 6",
                                       "the last stage ends at layer 5 of 6"};
    for (int edit = 0; edit < (int)(sizeof says / sizeof *says); edit++) {
        struct pipeline_bed b;
        struct err e;
        bed_make(&b);
        b.rq.devices = devices;
        b.rq.n_devices = 2;
        assert_int_equal(make(&b, &e), 0);
        json_t *plan = json_deep_copy(b.answer.document), *stages = json_object_get(plan, "stages"),
               *last = json_array_get(stages, 1);
        switch (edit) {
        case 0: json_string_set(at_path(plan, "device"), "x/y"); break;
        case 1: json_object_set_new(last, "device", json_string("a/g0")); break;
        case 2: json_object_set_new(plan, "slices", json_pack("[i, i]", 16, 24)); break;
        case 3: b.rq.context_tokens = 5000; break;
        case 4:
            json_object_set_new(json_object_get(plan, "predicted"), "makespan_s", json_real(1));
            break;
        case 5: json_object_set_new(plan, "slices", json_pack("[i, i]", 15, 17)); break;
        case 6: json_array_set_new(json_object_get(last, "layers"), 1, json_integer(9)); break;
        default: json_array_set_new(json_object_get(last, "layers"), 1, json_integer(5));
        }
        json_t *report = judge(&b, plan), *violations = json_object_get(report, "violations");
        assert_true(json_is_false(json_object_get(report, "valid")));
        bool named = false;
        for (size_t i = 0; i < json_array_size(violations); i++)
            named |= strstr(json_string_value(json_array_get(violations, i)), says[edit]) != NULL;
        if (!named)
            fail_msg("\"%s\" is not among the violations; the first is \"%s\"", says[edit],
                     json_string_value(json_array_get(violations, 0)));
        json_decref(report);
        json_decref(plan);
        bed_free(&b);
    }
}

/* Kind "a" is quick at prompts and slow at single tokens, "b" the other way round. */
TEST(throughput_counts_the_tokens_that_requests_make)
{
    static const struct {
        int decode_tokens, layers_on_a;
        double period_s;
    } cases[] = {{0, 5, 5}, {100, 1, 65}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pipeline_bed b;
        struct err e;
        bed_make(&b);
        cluster_free(&b.cluster);
        profile_free(&b.profile);
        read_text("{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"n\", \"devices\": "
                  "[{\"name\": \"g0\", \"kind\": \"a\", "
                  "\"memory_bytes\": 1e9},"
                  "{\"name\": \"g1\", \"kind\": \"b\", \"memory_bytes\": 1e9}], \"device_link\": "
                  "{\"bandwidth_bytes_per_s\": 1e9}}]}",
                  &b.cluster, NULL);
        struct buffer text = {0};
        buffer_printf(&text, "{\"format\": \"hp-profile/1\", \"layers\": [");
        for (int l = 0; l < 6; l++)
            buffer_printf(&text, "%s{\"class\": \"c\", \"output_bytes_per_token\": 1}",
                          l ? "," : "");
        buffer_printf(
            &text,
            "], \"latency\": {\"a\": {\"c\": {\"slice\": [1, 32], \"prefix\": [0], \"seconds\": "
            "[[0.5], [1]]}},"
            "\"b\": {\"c\": {\"slice\": [1, 32], \"prefix\": [0], \"seconds\": [[0.1], [3]]}}}}");
        read_text(buffer_cstr(&text), NULL, &b.profile);
        buffer_free(&text);
        b.rq = (struct pipeline_request){.cluster = &b.cluster,
                                         .profile = &b.profile,
                                         .tokens = 32,
                                         .unit = 32,
                                         .objective = PIPELINE_THROUGHPUT,
                                         .decode_tokens = cases[i].decode_tokens};
        assert_int_equal(make(&b, &e), 0);
        int on_a = 0;
        for (int j = 0; j < b.answer.plan.n_stages; j++)
            if (strcmp(b.answer.plan.stages[j].device, "n/g0") == 0)
                on_a = b.answer.plan.stages[j].end_layer - b.answer.plan.stages[j].first_layer;
        assert_int_equal(on_a, cases[i].layers_on_a);
        assert_true(fabs(1 / b.answer.requests_per_s - cases[i].period_s) < 1e-6);
        assert_true(b.answer.bound <= cases[i].period_s * (1 + 1e-9));
        bed_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(throughput_counts_the_tokens_that_requests_make),
        cmocka_unit_test(no_slice_is_longer_than_a_stage_runs_at_once),
        cmocka_unit_test(given_devices_are_all_used_in_their_order),
        cmocka_unit_test(given_layers_stay_and_only_slices_are_chosen),
        cmocka_unit_test(nonsense_in_a_request_is_named),
        cmocka_unit_test(memory_is_counted_for_the_context_and_its_sequences),
        cmocka_unit_test(what_a_stage_holds_beside_its_layers_is_counted_where_it_is_held),
        cmocka_unit_test(the_only_stage_hands_nothing_on),
        cmocka_unit_test(a_cached_prefix_is_where_slices_start),
        cmocka_unit_test(every_method_makes_plans_that_the_judge_finds_valid),
        cmocka_unit_test(the_judge_names_what_is_wrong),
    };
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
