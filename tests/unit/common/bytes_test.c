#include "common/bytes.h"
#include "tests/test.h"

TEST(values_are_read_in_little_endian_order)
{
    static const uint8_t bytes[] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0xFF, 0xFF, 0xFF,
                                    0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x00, 0x00, 0x80, 0x3F};
    struct reader r = reader_of(bytes, sizeof bytes);
    assert_int_equal(reader_u8(&r), 0x01);
    assert_int_equal(reader_u16(&r), 0x0302);
    assert_int_equal(reader_u32(&r), 0x07060504);
    assert_int_equal(reader_i64(&r), -1);
    assert_true(reader_f32(&r) == 1.0f);
    assert_int_equal(r.at, r.size);
    assert_false(r.failed);
}

TEST(a_reader_that_ran_past_its_end_stays_failed_and_gives_zeros)
{
    static const uint8_t bytes[] = {1, 2, 3, 4, 5};
    struct reader r = reader_of(bytes, sizeof bytes);
    assert_int_equal(reader_u32(&r), 0x04030201);
    assert_int_equal(reader_u32(&r), 0);
    assert_true(r.failed);
    assert_int_equal(reader_u8(&r), 0); /* though a byte is left */
    assert_null(reader_take(&r, 0));
    r = reader_of(bytes, sizeof bytes);
    assert_null(reader_take(&r, SIZE_MAX));
    assert_true(r.failed);
}

TEST(a_buffer_grows_by_what_is_appended)
{
    struct buffer b = {0};
    assert_string_equal(buffer_cstr(&b), "");
    for (int i = 0; i < 1000; i++)
        buffer_printf(&b, "%d,", i % 10);
    assert_int_equal(b.size, 2000);
    assert_memory_equal(b.data, "0,1,2,", 6);
    buffer_append(&b, "end", 3);
    assert_string_equal(buffer_cstr(&b) + 2000, "end");
    buffer_append(&b, NULL, 0);
    assert_int_equal(b.size, 2003);
    buffer_free(&b);
    assert_null(b.data);
}

TEST(a_failed_buffer_drops_what_follows)
{
    struct buffer b = {0};
    buffer_append(&b, "kept", 4);
    assert_null(buffer_extend(&b, (size_t)1 << 60));
    assert_true(b.failed);
    buffer_append(&b, "more", 4);
    buffer_printf(&b, "%d", 1);
    assert_int_equal(b.size, 4);
    assert_string_equal(buffer_cstr(&b), "");
    buffer_free(&b);
    assert_false(b.failed);
}

TEST(a_size_that_overflows_fails)
{
    struct buffer b = {0};
    buffer_append(&b, "x", 1);
    assert_null(buffer_extend(&b, SIZE_MAX));
    assert_true(b.failed);
    buffer_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_in_little_endian_order),
        cmocka_unit_test(a_reader_that_ran_past_its_end_stays_failed_and_gives_zeros),
        cmocka_unit_test(a_buffer_grows_by_what_is_appended),
        cmocka_unit_test(a_failed_buffer_drops_what_follows),
        cmocka_unit_test(a_size_that_overflows_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
