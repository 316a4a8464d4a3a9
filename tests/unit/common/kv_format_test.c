/* Number formats of keys and values: words, and bytes. */
#include <string.h>

#include "common/kv_format.h"
#include "tests/test.h"

TEST(a_word_names_a_format_and_none_follows_the_arithmetic)
{
    static const struct {
        const char *word;
        bool f32, good;
        enum kv_format want;
    } cases[] = {
        {NULL, false, true, KV_F16},    {"", true, true, KV_F32},
        {"auto", true, true, KV_F32},   {"auto", false, true, KV_F16},
        {"f16", true, true, KV_F16},    {"f32", false, true, KV_F32},
        {"q8_0", true, true, KV_Q8_0},  {"Q8_0", true, false, KV_F32},
        {"int8", false, false, KV_F16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum kv_format got;
        assert_int_equal(kv_format_of_word(cases[i].word, cases[i].f32, &got), cases[i].good);
        assert_int_equal(got, cases[i].want);
    }
    for (int f = KV_F16; f <= KV_Q8_0; f++) {
        enum kv_format got;
        assert_true(kv_format_of_word(kv_format_word((enum kv_format)f), false, &got));
        assert_int_equal(got, f);
    }
}

TEST(blocks_count_their_scales)
{
    assert_int_equal(kv_format_bytes(KV_F32, 192), 768);
    assert_int_equal(kv_format_bytes(KV_F16, 192), 384);
    assert_int_equal(kv_format_bytes(KV_Q8_0, 192), 204);
    assert_int_equal(kv_format_bytes(KV_Q8_0, (uint64_t)1 << 40), ((uint64_t)1 << 35) * 34);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_names_a_format_and_none_follows_the_arithmetic),
        cmocka_unit_test(blocks_count_their_scales),
    };
    return cmocka_run_group_tests_name("kv_format", tests, NULL, NULL);
}
