#include <math.h>
#include <string.h>

#include "model/dtype/dtype.h"
#include "tests/test.h"

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

TEST(every_half_survives_the_round_trip)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = dtype_f16_to_f32((uint16_t)h), b = dtype_bf16_to_f32((uint16_t)h);
        if (isnan(f))
            assert_true(isnan(dtype_f16_to_f32(dtype_f32_to_f16(f))));
        else
            assert_int_equal(dtype_f32_to_f16(f), h);
        if (isnan(b))
            assert_true(isnan(dtype_bf16_to_f32(dtype_f32_to_bf16(b))));
        else
            assert_int_equal(dtype_f32_to_bf16(b), h);
    }
}

TEST(halves_have_their_known_values)
{
    static const struct {
        uint16_t bits;
        float value;
    } cases[] = {{0x3c00, 1},
                 {0xc000, -2},
                 {0x7bff, 65504},
                 {0x0001, 0x1p-24f},
                 {0x03ff, 0x1.ff8p-15f},
                 {0x0400, 0x1p-14f},
                 {0x3555, 0.333251953125f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(dtype_f16_to_f32(cases[i].bits) == cases[i].value);
    assert_true(isinf(dtype_f16_to_f32(0x7c00)) && isnan(dtype_f16_to_f32(0x7e00)) &&
                signbit(dtype_f16_to_f32(0x8000)));
}

TEST(rounding_goes_to_nearest_even)
{
    static const struct {
        float value;
        uint16_t bits;
    } halves[] = {
        {1 + 0x1p-11f, 0x3c00}, {1 + 0x3p-11f, 0x3c02}, {1 + 0x1.002p-11f, 0x3c01},
        {65519.996f, 0x7bff},   {65520, 0x7c00},        {1e30f, 0x7c00},
        {-1e30f, 0xfc00},       {0x1p-25f, 0x0000},     {0x1.8p-25f, 0x0001},
        {0x1.ffcp-15f, 0x0400}, {0x1p-30f, 0x0000},     {-0.0f, 0x8000},
    };
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
        assert_int_equal(dtype_f32_to_f16(halves[i].value), halves[i].bits);
    assert_int_equal(dtype_f32_to_bf16(float_of_bits(0x3f808000)), 0x3f80);
    assert_int_equal(dtype_f32_to_bf16(float_of_bits(0x3f818000)), 0x3f82);
    assert_int_equal(dtype_f32_to_bf16(float_of_bits(0x3f808001)), 0x3f81);
    assert_int_equal(dtype_f32_to_bf16(float_of_bits(0x7f7fffff)), 0x7f80);
}

TEST(q8_0_blocks_are_scale_times_byte_at_any_alignment)
{
    uint8_t bytes[1 + 2 * 34];
    uint8_t *blocks = bytes + 1;
    const uint16_t scales[2] = {0x3800, 0xc000}; /* 0.5 and -2 */
    for (int b = 0; b < 2; b++) {
        memcpy(blocks + b * 34, &scales[b], 2);
        for (int i = 0; i < 32; i++)
            blocks[b * 34 + 2 + i] = (uint8_t)(int8_t)(i - 16 - 112 * (i == 0));
    }
    float out[64];
    dtype_info(DTYPE_Q8_0)->to_f32(blocks, 64, out);
    assert_true(out[0] == -64 && out[1] == -7.5f && out[31] == 7.5f);
    assert_true(out[32] == 256 && out[33] == 30 && out[63] == -30);
}

TEST(q4_0_blocks_are_scale_times_four_bits_less_eight)
{
    uint8_t block[18] = {0x00, 0x38}; /* 0.5 */
    for (int i = 0; i < 16; i++)
        block[2 + i] = (uint8_t)(i | (15 - i) << 4);
    float out[32];
    dtype_info(DTYPE_Q4_0)->to_f32(block, 32, out);
    for (int i = 0; i < 16; i++)
        assert_true(out[i] == 0.5f * (float)(i - 8) && out[16 + i] == 0.5f * (float)(7 - i));
}

TEST(q6_k_blocks_are_two_scales_times_six_bits_less_32)
{
    uint8_t block[210] = {0};
    float out[256];
    for (int i = 0; i < 16; i++)
        block[192 + i] = (uint8_t)(int8_t)(i - 8); /* scales */
    block[209] = 0x40;                             /* 2 */
    block[5] = 0x93;                               /* elements 5 and 69: low bits 3 and 9 */
    block[128 + 5] = 0x21; /* their high bits: 1 and 2 (and those of 37 and 101: 0) */
    dtype_info(DTYPE_Q6_K)->to_f32(block, 256, out);
    assert_true(out[5] == 2 * -8 * (float)((3 | 1 << 4) - 32));
    assert_true(out[69] == 2 * -4 * (float)((9 | 2 << 4) - 32));
    assert_true(out[37] == 2 * -6 * -32.0f && out[255] == 2 * 7 * -32.0f);
}

TEST(every_format_is_found_by_its_names)
{
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++) {
        const struct dtype_info *info = dtype_info((enum dtype)t);
        assert_int_equal(dtype_of_gguf(info->gguf_type), t);
        assert_string_equal(dtype_gguf_name(info->gguf_type), info->name);
        if (info->safetensors)
            assert_int_equal(dtype_of_safetensors(info->safetensors), t);
    }
    assert_int_equal(dtype_of_gguf(9999), -1);
    assert_int_equal(dtype_of_safetensors("I64"), -1);
    char names[64], few[6];
    assert_string_equal(dtype_known(names, sizeof names), "F32, F16, BF16, Q8_0, Q4_0, Q6_K");
    assert_string_equal(dtype_known(few, sizeof few), "F32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_survives_the_round_trip),
        cmocka_unit_test(halves_have_their_known_values),
        cmocka_unit_test(rounding_goes_to_nearest_even),
        cmocka_unit_test(q8_0_blocks_are_scale_times_byte_at_any_alignment),
        cmocka_unit_test(q4_0_blocks_are_scale_times_four_bits_less_eight),
        cmocka_unit_test(q6_k_blocks_are_two_scales_times_six_bits_less_32),
        cmocka_unit_test(every_format_is_found_by_its_names),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
