/* What the API sends, as the client reads it. */
#include <string.h>

#include "hpctl/http_client.h"
#include "tests/test.h"

TEST(an_answer_may_hold_any_character)
{
    static const char event[] = "{\"text\": \"a\\u0000b\", \"finish_reason\": null}";
    json_t *value = http_json(event, strlen(event));
    assert_non_null(value);
    const json_t *text = json_object_get(value, "text");
    assert_int_equal(json_string_length(text), 3);
    assert_memory_equal(json_string_value(text), "a\0b", 3);
    json_decref(value);
}

TEST(what_is_cut_short_or_no_json_is_nothing)
{
    static const char event[] = "{\"text\": \"a\"}";
    for (size_t n = 0; n + 1 < strlen(event); n++)
        assert_null(http_json(event, n));
    assert_null(http_json("data", 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_may_hold_any_character),
        cmocka_unit_test(what_is_cut_short_or_no_json_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
