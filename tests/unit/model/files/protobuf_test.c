#include "model/files/protobuf.h"
#include "tests/test.h"

static bool next(const char *bytes, size_t size, struct pb_field *f, bool *failed)
{
    struct pb p = pb_of(bytes, size);
    bool there = pb_next(&p, f);
    *failed = p.failed;
    return there;
}
#define NEXT(text) next(text, sizeof(text) - 1, &f, &failed)

TEST(fields_of_every_wire_type_are_read)
{
    struct pb_field f;
    bool failed;
    assert_true(NEXT("\x08\x96\x01"));
    assert_int_equal(f.number, 1);
    assert_int_equal(f.value, 150);
    assert_true(NEXT("\x15\0\0\x80\x3f"));
    assert_int_equal(f.wire, PB_FIXED32);
    assert_true(pb_float((uint32_t)f.value) == 1.0f);
    assert_true(NEXT("\x19\0\0\0\0\0\0\xf0\x3f"));
    assert_true(pb_double(f.value) == 1.0);
    assert_true(NEXT("\x22\x03"
                     "abc"));
    assert_int_equal(pb_size(&f.bytes), 3);
    assert_true(NEXT("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
    assert_true(f.value == UINT64_MAX);
}

TEST(the_end_is_no_failure_and_half_a_field_is_one)
{
    struct pb_field f;
    bool failed;
    assert_false(next("", 0, &f, &failed));
    assert_false(failed);
    static const struct {
        const char *bytes;
        size_t size;
    } halves[] = {
        {"\x08", 1},
        {"\x08\x80", 2},
        {"\x15\0\0", 3},
        {"\x19\0\0\0\0", 5},
        {"\x22\x03"
         "ab",
         4},
        {"\x22\xff\xff\xff\xff\x0f", 6},                              /* 4 GiB of it */
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11},         /* 65 bits */
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13}, /* twelve bytes */
        {"\x0b\x0c", 2},                                              /* a group */
        {"\x00\x01", 2},                                              /* field 0 */
        {"\x0f", 1},                                                  /* wire type 7 */
    };
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        assert_false(next(halves[i].bytes, halves[i].size, &f, &failed));
        assert_true(failed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_every_wire_type_are_read),
        cmocka_unit_test(the_end_is_no_failure_and_half_a_field_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
