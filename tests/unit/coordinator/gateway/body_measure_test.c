/* Bodies are refused for what their tree would cost before it is made, and by the field that has
 * it; token ids are read without one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "coordinator/gateway/body_measure.h"
#include "tests/test.h"

/* `begin`, `item` n times, `end`. */
static struct buffer body_of(const char *begin, const char *item, size_t n, const char *end)
{
    struct buffer b = {0};
    buffer_printf(&b, "%s", begin);
    for (size_t i = 0; i < n; i++)
        buffer_printf(&b, i ? ",%s" : "%s", item);
    buffer_printf(&b, "%s", end);
    return b;
}

static int try(struct buffer *b, const char **param, struct err *e)
{
    json_t *root = NULL;
    struct body_ids ids = {.field = "prompt"};
    int rc = body_measure_load(buffer_cstr(b), b->size, &ids, &root, param, e);
    json_decref(root);
    body_ids_free(&ids);
    buffer_free(b);
    return rc;
}

TEST(what_no_body_may_hold_is_told_with_the_member_that_it_is_in)
{
    static const struct {
        const char *begin, *item, *end, *param, *says;
        size_t n;
    } cases[] = {
        {"{\"n\":1,\"messages\":", "[", "", "messages", "messages: the body is nested deeper", 100},
        {"{\"n\":1,\"odd\":", "[", "", NULL, "64 levels, in its member \"odd\"", 100},
        {"{\"odd\":[", "{}", "]}", NULL, "are the most, in its member \"odd\"", 80000},
        {"{\"query\":1,\"documents\":[", "{}", "]}", "documents", "documents: the body holds",
         80000},
        {"", "[", "", NULL, "64 levels", 100},
        {"{\"stop\":[\"a\\u0000\"],\"n\":1", "", "}", "stop", "stop: the body holds \\u0000", 0},
        {"{\"user\":\"\xC3\"}", "", "", NULL, "at byte 9, in its member \"user\"", 0},
        {"{\"user\":1,\"\xC3\":2}", "", "", NULL, "at byte 11", 0}, /* which is in no member yet */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *param = NULL;
        struct err e = {0};
        struct buffer b = body_of(cases[i].begin, cases[i].item, cases[i].n, cases[i].end);
        assert_int_equal(try(&b, &param, &e), HP_EINVAL);
        if (!strstr(e.text, cases[i].says) || !param != !cases[i].param ||
            (param && strcmp(param, cases[i].param) != 0))
            fail_msg("%s: %s", param ? param : "-", e.text);
        assert_true(i + 1 < sizeof cases / sizeof *cases || !strstr(e.text, "member"));
    }
}

TEST(what_costs_too_much_is_refused_by_its_field_and_less_is_not)
{
    static const struct {
        const char *begin, *item, *end, *param;
        size_t taken, refused;
    } cases[] = {
        {"{\"messages\":[", "{\"role\":\"user\",\"content\":\"x\"}", "]}", "messages", 18000,
         19000},
        {"{\"n\":1,\"logit_bias\":{", "\"1\":1", "},\"stop\":[]}", "logit_bias", 0, 56000},
        {"{\"model\":\"stop\",\"stop\":[", "\"x\"", "]}", "stop", 124000, 126000},
        {"{\"prompt\":[", "1", "]}", "prompt", 999000, 1000001},
        {"{\"prompt\":[", "[1]", "]}", "prompt", 66000, 67000},
        {"{\"prompt\":[\"x\",", "1", "]}", "prompt", 249000, 251000},
        {"{\"stop_token_ids\":[", "1", "]}", "stop_token_ids", 249000, 251000},
        {"{\"tools\":[{\"stop\":[", "{\"messages\":[]}", "]}]}", "tools", 20000, 60000},
        {"{\"n\":{\"prompt\":[", "1", "]}}", NULL, 249000, 251000},
        {"{\"nobody\":[", "{}", "]}", NULL, 70000, 80000},
        {"[", "{}", "]", NULL, 70000, 80000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *param = NULL;
        struct err e = {0};
        struct buffer less = body_of(cases[i].begin, cases[i].item, cases[i].taken, cases[i].end),
                      more = body_of(cases[i].begin, cases[i].item, cases[i].refused, cases[i].end);
        assert_int_equal(try(&less, &param, &e), 0);
        assert_null(param);
        assert_int_equal(try(&more, &param, &e), HP_EINVAL);
        if (!cases[i].param) {
            assert_null(param);
            assert_non_null(strstr(e.text, "the body holds too many values"));
            continue;
        }
        assert_string_equal(param, cases[i].param);
        assert_memory_equal(e.text, cases[i].param, strlen(cases[i].param));
        assert_non_null(strstr(e.text, ": the body holds too many values"));
    }
}

TEST(several_texts_cost_together_what_one_may)
{
    size_t left = BODY_MAX_COST;
    struct err e = {0};
    json_t *root = NULL;
    struct buffer one = body_of("{\"a\":[", "[]", 30000, "]}");
    for (int i = 0; i < 3; i++) {
        int rc =
            body_measure_load_within(buffer_cstr(&one), one.size, NULL, &left, &root, NULL, &e);
        assert_int_equal(rc, i < 2 ? 0 : HP_EINVAL);
        json_decref(root);
        root = NULL;
    }
    assert_int_equal(left, 0);
    assert_non_null(strstr(e.text, "too many values"));
    buffer_free(&one);
}

/* What looks like structure within texts is none. */
TEST(texts_are_not_measured_as_structure)
{
    static const char tricky[] = "\"{[\\\"stop\\\": ,,:\\\\\"";
    const char *param = NULL;
    struct err e = {0};
    struct buffer b = body_of("{\"messages\":[", tricky, 100000, "]}");
    assert_int_equal(try(&b, &param, &e), 0);
    b = body_of("{\"messages\":[", tricky, 260000, "]}");
    assert_int_equal(try(&b, &param, &e), HP_EINVAL);
    assert_string_equal(param, "messages");
}

TEST(tensors_are_counted_by_their_values_alone)
{
    json_t *root = NULL;
    struct err e = {0};
    struct buffer b = body_of("{\"inputs\":[{\"data\":[", "[1]", 499000, "]}]}");
    assert_int_equal(body_measure_load_tensors(buffer_cstr(&b), b.size, &root, &e), 0);
    json_decref(root);
    buffer_free(&b);
    b = body_of("{\"inputs\":[{\"data\":[", "[1]", 500001, "]}]}");
    assert_int_equal(body_measure_load_tensors(buffer_cstr(&b), b.size, &root, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "more than 1000000 JSON values"));
    buffer_free(&b);
}

/* ---- token ids ---- */

/* As many as there are at an item, or -1; the first ones in `out`. */
static int ids_of(struct body_ids *ids, size_t item, const json_t *value, uint32_t out[4])
{
    uint32_t *list = NULL;
    size_t n = 0;
    int rc = body_ids_take(ids, item, value, &list, &n);
    for (size_t i = 0; i < n && i < 4; i++)
        out[i] = list[i];
    free(list);
    return rc == 0 ? (int)n : -1;
}

TEST(token_ids_are_read_and_leave_an_empty_list)
{
    static const char body[] = "{\"a\":[7,8],\"prompt\" : [ 1 ,\n20, 4294967295 ,0],\"b\":[]}";
    uint32_t got[4];
    json_t *root = NULL;
    struct body_ids ids = {.field = "prompt"};
    assert_int_equal(body_measure_load(body, strlen(body), &ids, &root, NULL, NULL), 0);
    assert_int_equal(json_array_size(json_object_get(root, "prompt")), 0);
    assert_int_equal(json_array_size(json_object_get(root, "a")), 2);
    assert_true(body_ids_whole(&ids));
    assert_int_equal(ids_of(&ids, BODY_IDS_WHOLE, json_object_get(root, "prompt"), got), 4);
    assert_memory_equal(got, ((uint32_t[]){1, 20, UINT32_MAX, 0}), sizeof got);
    json_decref(root);
    body_ids_free(&ids);
}

TEST(lists_among_texts_keep_their_places)
{
    static const char body[] = "{\"prompt\":[[1],\"[2]\",[],[3,4],[-5],[6,7,8]]}";
    static const int sizes[] = {1, -1, 0, 2, -1, 3};
    static const uint32_t firsts[] = {1, 0, 0, 3, 0, 6};
    json_t *root = NULL, *list;
    struct body_ids ids = {.field = "prompt"};
    assert_int_equal(body_measure_load(body, strlen(body), &ids, &root, NULL, NULL), 0);
    list = json_object_get(root, "prompt");
    assert_false(body_ids_whole(&ids));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t got[4] = {0};
        assert_int_equal(ids_of(&ids, i, json_array_get(list, i), got), sizes[i]);
        assert_int_equal(got[0], firsts[i]);
    }
    json_decref(root);
    body_ids_free(&ids);
}

/* What JSON has elsewhere is as it was, and what is no JSON is no JSON without its ids either. */
TEST(what_is_no_list_of_ids_is_left_to_the_tree)
{
    static const struct {
        const char *body;
        int code;
        size_t lists;
    } cases[] = {
        {"{\"prompt\":[1,-2]}", 0, 0},
        {"{\"prompt\":[1,2.5]}", 0, 0},
        {"{\"prompt\":[1,2e3]}", 0, 0},
        {"{\"prompt\":[4294967296]}", 0, 0},
        {"{\"prompt\":[1,\"x\"]}", 0, 0},
        {"{\"prompt\":[[[1]]]}", 0, 0},
        {"{\"\\u0070rompt\":[1]}", 0, 0},
        {"{\"x\":{\"prompt\":[1]}}", 0, 0},
        {"[{\"prompt\":[1]}]", 0, 0},
        {"{\"prompt\":\"[1]\"}", 0, 0},
        {"{\"prompt\":[1],\"prompt\":[2]}", HP_EINVAL, 2},
        {"{\"prompt\":[01]}", HP_EINVAL, 0},
        {"{\"prompt\":[1,]}", HP_EINVAL, 0},
        {"{\"prompt\":[1", HP_EINVAL, 0},
        {"{\"prompt\":[1 2]}", HP_EINVAL, 0},
        {"{\"prompt\":[1]]}", HP_EINVAL, 1},
        {"{\"prompt\":3[1]}", HP_EINVAL, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = NULL;
        struct body_ids ids = {.field = "prompt"};
        struct err e = {0};
        int rc = body_measure_load(cases[i].body, strlen(cases[i].body), &ids, &root, NULL, &e);
        if (rc != cases[i].code || ids.n != cases[i].lists)
            fail_msg("%s: %d, %zu lists: %s", cases[i].body, rc, ids.n, e.text);
        json_decref(root);
        body_ids_free(&ids);
    }
}

/* ---- long texts ---- */

#define SIXTY "sixty bytes of a text, which is more or less what a line has "

/* The same tree as the parser alone makes of it. */
TEST(long_texts_are_what_they_are_to_a_parser)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"" SIXTY SIXTY "\"}",
        "{\"a\":[\"short\",{\"" SIXTY SIXTY "\" : [\"" SIXTY SIXTY "\",1]},\"" SIXTY
        "end\"],\"b\":\"" SIXTY SIXTY "\"}",
        "[\"" SIXTY "\\\"quoted\\\" \\\\ \\/ \\b\\f\\n\\r\\t\",\"" SIXTY
        "\\u00e9\\u20AC\\ud83d\\ude00\"]",
        "[\"" SIXTY "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 ,:[]{}\",[],{\"x\":{}},\"" SIXTY SIXTY
        "\"]",
        "\"" SIXTY SIXTY "\"",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        json_t *root = NULL, *wanted = json_loads(bodies[i], JSON_DECODE_ANY, NULL);
        struct body_ids ids = {.field = "prompt"};
        struct err e = {0};
        int rc = body_measure_load(bodies[i], strlen(bodies[i]), &ids, &root, NULL, &e);
        if (json_is_string(wanted)) /* no body at all */
            assert_int_equal(rc, HP_EINVAL);
        else if (rc < 0 || !json_equal(root, wanted))
            fail_msg("%s: %d %s", bodies[i], rc, e.text);
        json_decref(root);
        json_decref(wanted);
        body_ids_free(&ids);
    }
}

TEST(what_is_no_text_is_none_however_long)
{
    static const char *const ends[] = {"\\x",     "\\u12g4",      "\\ud83d",  "\\ud83d\\u0041",
                                       "\\ude00", "a\nb",         "\x1F",     "\\u0000",
                                       "\xC3",    "\xED\xA0\x80", "\xC0\xAF", "\\"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char body[400];
        json_t *root = NULL;
        struct err e = {0};
        snprintf(body, sizeof body, "{\"a\":\"%s%s\",\"b\":\"%s\"}", SIXTY SIXTY, ends[i],
                 SIXTY SIXTY);
        if (body_measure_load(body, strlen(body), NULL, &root, NULL, &e) != HP_EINVAL)
            fail_msg("%s", body);
        assert_null(root);
    }
}

/* Where it is wrong is said of the body as it came. */
TEST(what_is_wrong_beside_a_long_text_is_found_in_its_column)
{
    static const char body[] = "{\"a\":\"" SIXTY SIXTY "\",}";
    json_t *root = NULL;
    struct err e = {0};
    char place[40];
    snprintf(place, sizeof place, "the body:1:%zu:", strlen(body));
    assert_int_equal(body_measure_load(body, strlen(body), NULL, &root, NULL, &e), HP_EINVAL);
    assert_memory_equal(e.text, place, strlen(place));
}

TEST(token_ids_and_long_texts_stand_beside_each_other)
{
    static const char body[] = "{\"x\":\"" SIXTY SIXTY "\",\"prompt\":[[1,2],\"" SIXTY SIXTY
                               "\",[3]],\"y\":\"" SIXTY SIXTY "\"}";
    uint32_t got[4];
    json_t *root = NULL;
    struct body_ids ids = {.field = "prompt"};
    assert_int_equal(body_measure_load(body, strlen(body), &ids, &root, NULL, NULL), 0);
    json_t *list = json_object_get(root, "prompt");
    assert_int_equal(ids_of(&ids, 0, json_array_get(list, 0), got), 2);
    assert_string_equal(json_string_value(json_array_get(list, 1)), SIXTY SIXTY);
    assert_int_equal(ids_of(&ids, 2, json_array_get(list, 2), got), 1);
    assert_string_equal(json_string_value(json_object_get(root, "x")), SIXTY SIXTY);
    assert_string_equal(json_string_value(json_object_get(root, "y")), SIXTY SIXTY);
    json_decref(root);
    body_ids_free(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_body_may_hold_is_told_with_the_member_that_it_is_in),
        cmocka_unit_test(what_costs_too_much_is_refused_by_its_field_and_less_is_not),
        cmocka_unit_test(several_texts_cost_together_what_one_may),
        cmocka_unit_test(texts_are_not_measured_as_structure),
        cmocka_unit_test(tensors_are_counted_by_their_values_alone),
        cmocka_unit_test(token_ids_are_read_and_leave_an_empty_list),
        cmocka_unit_test(lists_among_texts_keep_their_places),
        cmocka_unit_test(what_is_no_list_of_ids_is_left_to_the_tree),
        cmocka_unit_test(long_texts_are_what_they_are_to_a_parser),
        cmocka_unit_test(what_is_no_text_is_none_however_long),
        cmocka_unit_test(what_is_wrong_beside_a_long_text_is_found_in_its_column),
        cmocka_unit_test(token_ids_and_long_texts_stand_beside_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
