#include <stddef.h>
#include <string.h>

#include "common/status.h"
#include "tests/test.h"

TEST(failure_stays_one_when_nobody_wants_its_text)
{
    struct err e = {0};
    assert_int_equal(err_set(&e, HP_ENOSPACE, "the disk is full"), HP_ENOSPACE);
    assert_int_equal(err_hint(&e, "free some"), HP_ENOSPACE);
    assert_int_equal(err_at(&e, "store"), HP_ENOSPACE);
    assert_string_equal(e.text, "store: the disk is full");
    assert_string_equal(e.hint, "free some");
    assert_int_equal(err_set(NULL, HP_ENOSPACE, "the disk is full"), HP_ENOSPACE);
    assert_true(err_hint(NULL, "free some") < 0);
    assert_true(err_at(NULL, "store") < 0);
}

TEST(what_a_terminal_would_obey_is_no_part_of_a_text)
{
    struct err e = {0};
    err_set(&e, HP_EPARSE, "%s is no name\n\tbut a \xc3\xa9 is", "\x1b[2J\r\x7f\xc2\x9b\xc2");
    assert_string_equal(e.text, "?[2J????? is no name\n\tbut a \xc3\xa9 is");
    err_hint(&e, "%s", "\x1b]0;x\a");
    assert_string_equal(e.hint, "?]0;x?");
}

TEST(a_path_at_the_beginning_is_named_otherwise)
{
    struct err e = {0};
    err_set(&e, HP_EIO, "/a/b/files/x: no");
    err_rename(&e, "/a/b/files", "m");
    assert_string_equal(e.text, "m/x: no");
    err_rename(&e, "/a", "n");
    assert_string_equal(e.text, "m/x: no");
    char longer[sizeof e.text];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    err_rename(&e, "m", longer);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    err_rename(NULL, "m", "n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_stays_one_when_nobody_wants_its_text),
        cmocka_unit_test(what_a_terminal_would_obey_is_no_part_of_a_text),
        cmocka_unit_test(a_path_at_the_beginning_is_named_otherwise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
