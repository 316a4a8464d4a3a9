/* Prompts read apart from answers: where that pays, where it does not, and what is said of it. */
#include <string.h>

#include "planners/pipeline/apart.h"
#include "tests/test.h"
#include "tests/unit/planners/pipeline/cases.h"

enum { LAYERS = 8, TOKENS = 512 };

struct device_shape {
    const char *node, *kind;
    double memory_bytes;
};

/* A layer of SLOW takes 0.25 ms and 20 µs a token, one of FAST a tenth for each token; 1000 bytes.
 */
static void shapes_read(const struct device_shape *s, double link_bytes_per_s, struct small_case *k)
{
    struct buffer b = {0};
    *k = (struct small_case){0};
    buffer_printf(&b, "{\"format\": \"hp-cluster/1\", \"nodes\": [");
    for (int i = 0; s[i].node; i++)
        buffer_printf(&b,
                      "%s{\"name\": \"%s\", \"devices\": [{\"name\": \"cpu0\", \"kind\": \"%s\", "
                      "\"memory_bytes\": %.0f}], \"nics\": [{\"bandwidth_bytes_per_s\": %g, "
                      "\"latency_s\": 1e-4}]}",
                      i ? ", " : "", s[i].node, s[i].kind, s[i].memory_bytes, link_bytes_per_s);
    buffer_printf(&b, "]}");
    case_read("cluster", &b, &k->cluster, NULL);
    buffer_printf(&b, "{\"format\": \"hp-profile/1\", \"layers\": [");
    for (int l = 0; l < LAYERS; l++)
        buffer_printf(&b,
                      "%s{\"class\": \"c\", \"param_bytes\": 1000, \"state_bytes_per_token\": 100, "
                      "\"output_bytes_per_token\": 10}",
                      l ? ", " : "");
    buffer_printf(&b, "], \"latency\": {");
    for (int i = 0; i < 2; i++)
        buffer_printf(&b,
                      "%s\"%s\": {\"c\": {\"slice\": [1, 1001], \"prefix\": [0], \"seconds\": "
                      "[[%g], [%g]]}}",
                      i ? ", " : "", i ? "FAST" : "SLOW", 2.5e-4 + (i ? 2e-6 : 2e-5),
                      2.5e-4 + 1001 * (i ? 2e-6 : 2e-5));
    buffer_printf(&b, "}}");
    case_read("profile", &b, NULL, &k->profile);
}

struct apart_wish {
    double ttft_s, tpot_s;
    int answer_tokens;
    const int *devices;
    int n_devices;
};

/* *document is the caller's. */
static struct apart_answer ask(const struct small_case *k, const struct apart_wish *q,
                               struct arena *arena, json_t **document)
{
    struct pipeline_request base = {.cluster = &k->cluster,
                                    .profile = &k->profile,
                                    .tokens = k->tokens ? k->tokens : TOKENS,
                                    .unit = k->unit,
                                    .devices = q->devices,
                                    .n_devices = q->n_devices,
                                    .brief = true};
    struct pipeline_answer together;
    struct apart_answer a;
    struct err e = {0};
    if (pipeline_plan_make(&base, arena, &together, &e) < 0)
        fail_msg("%s", e.text);
    const struct apart_request rq = {.base = &base,
                                     .together = &together.plan,
                                     .answer_tokens = q->answer_tokens,
                                     .ttft_s = q->ttft_s,
                                     .tpot_s = q->tpot_s};
    if (apart_find(&rq, arena, &a, &e) < 0)
        fail_msg("%s", e.text);
    *document = apart_document(&a);
    assert_non_null(*document);
    json_decref(together.document);
    json_decref(a.decode.document);
    return a;
}

TEST(prompts_are_read_apart_where_it_pays_and_the_reason_is_said)
{
    static const struct device_shape equal[] = {{"a", "SLOW", 1e7}, {"b", "SLOW", 1e7}, {0}},
                                     mixed[] = {{"a", "SLOW", 1e7}, {"b", "FAST", 1e7}, {0}},
                                     one[] = {{"a", "SLOW", 1e7}, {0}},
                                     tight[] = {{"a", "SLOW", 3e5}, {"b", "SLOW", 3e5}, {0}};
    static const int first[] = {0};
    static const struct {
        const struct device_shape *shapes;
        double link_bytes_per_s;
        struct apart_wish asked;
        bool pays;
        const char *readers, *says;
    } cases[] = {
        {mixed, 1e9, {.answer_tokens = 64}, true, "b", "apart: prompts read by b, answered by a: "},
        {mixed, 1e9, {.answer_tokens = 4000}, false, NULL, "together: apart means "},
        {mixed, 1e5, {.ttft_s = 0}, false, NULL, "together: apart means "}, /* keys and values take
                                                                               4 s */
        {equal, 1e9, {.ttft_s = 0}, false, NULL, "together: apart means "},
        {equal, 1e9, {.ttft_s = 5, .tpot_s = 6e-3}, true, "a", "a token beside prompts"},
        {equal, 1e9, {.ttft_s = 5, .tpot_s = 1}, false, NULL, "together: apart means "},
        {equal, 1e9, {.devices = first, .n_devices = 1}, true, "b", "answered by a"},
        {one, 1e9, {.ttft_s = 0}, false, "", "no other device is there"},
        {tight, 1e9, {.ttft_s = 0}, false, "", "no two parts of the devices have room"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct small_case k;
        struct arena arena = {0};
        json_t *d;
        shapes_read(cases[i].shapes, cases[i].link_bytes_per_s, &k);
        struct apart_answer a = ask(&k, &cases[i].asked, &arena, &d);
        if (a.pays != cases[i].pays || !strstr(a.why, cases[i].says))
            fail_msg("case %zu: %s", i, a.why);
        if (cases[i].readers)
            assert_string_equal(a.n_prefill ? a.readers : "", cases[i].readers);
        assert_int_equal(json_is_true(json_object_get(d, "chosen")), a.pays);
        assert_int_equal(json_object_get(d, "prefill") != NULL, a.n_prefill > 0);
        json_decref(d);
        arena_free(&arena);
        case_free(&k);
    }
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

/* By hand: one device reads in 8 * (0.25 ms + 512 * 20 µs), makes a step of 8 in 8 * 0.41 ms, and a
 * request has 128 / 8 of these. */
TEST(figures_are_those_of_the_tables)
{
    static const struct device_shape equal[] = {{"a", "SLOW", 1e7}, {"b", "SLOW", 1e7}, {0}};
    static const int first[] = {0};
    const struct apart_wish q = {.devices = first, .n_devices = 1};
    struct small_case k;
    struct arena arena = {0};
    json_t *d;
    shapes_read(equal, 1e9, &k);
    struct apart_answer a = ask(&k, &q, &arena, &d);
    double read_s = 8 * (2.5e-4 + 512 * 2e-5), step_s = 8 * (2.5e-4 + 8 * 2e-5),
           kv_s = 2e-4 + 512 * 800 / 1e9;
    assert_true(is_near(a.together.ttft_s, read_s));
    assert_true(is_near(a.together.tpot_s, step_s + APART_TPOT_DEFAULT_S / 2));
    assert_true(is_near(a.together.requests_per_s, 1 / (read_s + 16 * step_s)));
    assert_true(is_near(a.apart.ttft_s, read_s + kv_s + step_s));
    assert_true(is_near(a.apart.tpot_s, step_s));
    assert_true(is_near(a.apart.requests_per_s, 1 / read_s));
    json_decref(d);
    arena_free(&arena);
    case_free(&k);
}

TEST(of_many_devices_those_that_are_better_at_it_read)
{
    static const struct device_shape many[] = {{"a", "SLOW", 1e7},
                                               {"b", "FAST", 1e7},
                                               {"c", "SLOW", 1e7},
                                               {"d", "FAST", 1e7},
                                               {"e", "SLOW", 1e7},
                                               {"f", "SLOW", 1e7},
                                               {0}};
    struct small_case k;
    struct arena arena = {0};
    json_t *d;
    shapes_read(many, 1e9, &k);
    struct apart_answer a = ask(&k, &(struct apart_wish){0}, &arena, &d);
    if (!a.pays)
        fail_msg("%s", a.why);
    for (int i = 0; i < a.n_prefill; i++)
        assert_string_equal(k.cluster.devices[a.prefill[i]].kind, "FAST");
    json_decref(d);
    arena_free(&arena);
    case_free(&k);
}

static bool reads_and_answers(const struct small_case *k, const struct apart_answer *a)
{
    for (int i = 0; i < a->n_prefill; i++)
        for (int j = 0; j < a->decode.plan.n_stages; j++)
            if (strcmp(k->cluster.devices[a->prefill[i]].id, a->decode.plan.stages[j].device) == 0)
                return true;
    return false;
}

TEST(no_device_is_on_both_sides)
{
    uint64_t seed = 77;
    int ways = 0;
    for (int i = 0; i < 60; i++) {
        struct small_case k = {0};
        struct arena arena = {0};
        json_t *d;
        case_make(&seed, &k);
        for (int n = 0; n < k.cluster.n_devices; n++)
            k.cluster.devices[n].memory_bytes += 10000;
        struct apart_answer a = ask(&k, &(struct apart_wish){0}, &arena, &d);
        ways += a.n_prefill > 0;
        if (reads_and_answers(&k, &a) || (a.pays && !a.n_prefill))
            fail_msg("seed 77, case %d: %s", i, a.why);
        json_decref(d);
        arena_free(&arena);
        case_free(&k);
    }
    assert_true(ways > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_read_apart_where_it_pays_and_the_reason_is_said),
        cmocka_unit_test(figures_are_those_of_the_tables),
        cmocka_unit_test(of_many_devices_those_that_are_better_at_it_read),
        cmocka_unit_test(no_device_is_on_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
