/* Bodies are refused for what their tree would cost before it is made, and by the field that has
 * it. */
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
    int rc = body_measure_load(buffer_cstr(b), b->size, &root, param, e);
    json_decref(root);
    buffer_free(b);
    return rc;
}

TEST(what_costs_too_much_is_refused_by_its_field_and_less_is_not)
{
    static const struct {
        const char *begin, *item, *end, *param;
        size_t taken, refused;
    } cases[] = {
        {"{\"messages\":[", "{\"role\":\"user\",\"content\":\"x\"}", "]}", "messages", 20000,
         30000},
        {"{\"n\":1,\"logit_bias\":{", "\"1\":1", "},\"stop\":[]}", "logit_bias", 0, 90000},
        {"{\"model\":\"stop\",\"stop\":[", "\"x\"", "]}", "stop", 240000, 260000},
        {"{\"prompt\":[", "1", "]}", "prompt", 999000, 1000001},
        {"{\"prompt\":[", "[1]", "]}", "prompt", 80000, 100000},
        {"{\"tools\":[{\"stop\":[", "{\"messages\":[]}", "]}]}", "tools", 20000, 60000},
        {"{\"nobody\":[", "{}", "]}", NULL, 80000, 110000},
        {"[", "{}", "]", NULL, 80000, 110000},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_costs_too_much_is_refused_by_its_field_and_less_is_not),
        cmocka_unit_test(texts_are_not_measured_as_structure),
        cmocka_unit_test(tensors_are_counted_by_their_values_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
