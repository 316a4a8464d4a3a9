/* Texts that go on to people and into JSON: UTF-8, and cut between characters. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/status.h"
#include "common/utf8.h"
#include "tests/test.h"

TEST(a_copy_is_cut_between_characters)
{
    static const struct {
        const char *text;
        size_t size;
        const char *copy;
    } cases[] = {
        {"abc", 4, "abc"},
        {"abc", 3, "ab"},
        {"ab\xc3\xa9", 5, "ab\xc3\xa9"},
        {"ab\xc3\xa9", 4, "ab"},
        {"ab\xe2\x82\xac", 5, "ab"},
        {"\xf0\x9f\x98\x80", 4, ""},
        {"caf\xe9", 8, "caf?"},
        {"\xe9\xe9\xe9", 3, "?"},
        {"x", 1, ""},
        {NULL, 4, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[8];
        utf8_copy(out, cases[i].size, cases[i].text);
        assert_string_equal(out, cases[i].copy);
    }
}

TEST(an_error_that_quotes_bytes_is_text)
{
    struct err e = {0};
    err_set(&e, HP_ENOENT, "no file \"caf\xe9\"");
    err_hint(&e, "rename \xff");
    err_at(&e, "\xfe");
    assert_string_equal(e.text, "?: no file \"caf?\"");
    assert_string_equal(e.hint, "rename ?");
}

TEST(a_long_error_ends_with_a_whole_character)
{
    struct err e = {0};
    char text[sizeof e.text + 2];
    memset(text, 'x', sizeof text);
    memcpy(text + sizeof e.text - 2, "\xc3\xa9", 3);
    err_set(&e, HP_ENOENT, "%s", text);
    assert_int_equal(strlen(e.text), sizeof e.text - 2);
    err_set(&e, HP_ENOENT, "%.*s", (int)sizeof e.text - 2, text);
    e.text[sizeof e.text - 5] = '\xc3';
    e.text[sizeof e.text - 4] = '\xa9';
    err_at(&e, "a");
    assert_int_equal(utf8_valid_prefix(e.text, strlen(e.text)), strlen(e.text));
}

TEST(json_is_made_of_any_text)
{
    json_t *good = json_text("caf\xc3\xa9"), *bad = json_text("caf\xe9"), *none = json_text(NULL);
    assert_string_equal(json_string_value(good), "caf\xc3\xa9");
    assert_string_equal(json_string_value(bad), "caf?");
    assert_string_equal(json_string_value(none), "");
    json_decref(good);
    json_decref(bad);
    json_decref(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_cut_between_characters),
        cmocka_unit_test(an_error_that_quotes_bytes_is_text),
        cmocka_unit_test(a_long_error_ends_with_a_whole_character),
        cmocka_unit_test(json_is_made_of_any_text),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
