#include <stddef.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_stays_one_when_nobody_wants_its_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
