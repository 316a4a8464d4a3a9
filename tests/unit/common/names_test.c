#include <string.h>

#include "common/names.h"
#include "tests/test.h"

TEST(names_are_letters_digits_and_three_marks)
{
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {
        {"a", true},          {"A0-b_c.d", true}, {".hidden", true}, {"..", true},
        {"", false},          {"a b", false},     {"a/b", false},    {"a\n", false},
        {"\xC3\xA9", false},  {"a:b", false},     {"a\x7F", false},  {"a@b", false},
        {"a[b", false},       {"a`b", false},     {"a{b", false},    {"12345678", true},
        {"123456789", false}, {"-x", false},      {"_x", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(name_is_valid(cases[i].text, 8), cases[i].valid);
}

TEST(a_zero_byte_is_no_character_of_a_name)
{
    assert_false(name_has_character('\0'));
}

TEST(any_text_becomes_a_name_that_fits)
{
    char out[6];
    name_like(out, sizeof out, "a b/c");
    assert_string_equal(out, "a-b-c");
    name_like(out, sizeof out, "longer than that");
    assert_string_equal(out, "longe");
    name_like(out, sizeof out, "\xC3\xA9t");
    assert_string_equal(out, "_-t");
    name_like(out, sizeof out, "-x");
    assert_string_equal(out, "_x");
    name_like(out, sizeof out, "");
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_letters_digits_and_three_marks),
        cmocka_unit_test(a_zero_byte_is_no_character_of_a_name),
        cmocka_unit_test(any_text_becomes_a_name_that_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
