#include <stdio.h>
#include <string.h>

#include "common/log_ring.h"
#include "tests/test.h"

TEST(the_last_lines_come_in_the_order_they_were_said)
{
    struct buffer b = {0};
    struct log_ring *r = log_ring_create();
    log_ring_read(r, 10, &b);
    assert_int_equal(b.size, 0);
    log_ring_add(r, "one");
    log_ring_add(r, "two");
    log_ring_add(r, "three");
    log_ring_read(r, 2, &b);
    assert_string_equal(buffer_cstr(&b), "two\nthree\n");
    buffer_free(&b);
    log_ring_read(r, 10, &b);
    assert_string_equal(buffer_cstr(&b), "one\ntwo\nthree\n");
    buffer_free(&b);
    log_ring_destroy(&r);
    assert_null(r);
}

TEST(a_full_ring_forgets_the_oldest)
{
    struct buffer b = {0};
    struct log_ring *r = log_ring_create();
    char line[32];
    for (int i = 0; i < LOG_RING_LINES + 5; i++) {
        snprintf(line, sizeof line, "line %d", i);
        log_ring_add(r, line);
    }
    log_ring_read(r, SIZE_MAX, &b);
    assert_memory_equal(b.data, "line 5\n", 7);
    size_t n = 0;
    for (size_t i = 0; i < b.size; i++)
        n += b.data[i] == '\n';
    assert_int_equal(n, LOG_RING_LINES);
    buffer_free(&b);
    log_ring_destroy(&r);
}

TEST(long_lines_are_cut)
{
    struct buffer b = {0};
    struct log_ring *r = log_ring_create();
    char line[2 * LOG_RING_LINE_BYTES];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    log_ring_add(r, line);
    log_ring_read(r, 1, &b);
    assert_int_equal(b.size, LOG_RING_LINE_BYTES);
    buffer_free(&b);
    log_ring_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_lines_come_in_the_order_they_were_said),
        cmocka_unit_test(a_full_ring_forgets_the_oldest),
        cmocka_unit_test(long_lines_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
