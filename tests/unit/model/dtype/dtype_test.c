#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* A whole file of blocks' `bin`, and of an `npy` what follows its header. */
static uint8_t *file_read(const char *folder, const char *name, const char *kind, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, kind);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    uint8_t *all = malloc(1 << 20);
    assert_non_null(all);
    *size = fread(all, 1, 1 << 20, f);
    fclose(f);
    size_t skip = strcmp(kind, "npy") == 0 ? 10 + (size_t)(all[8] | all[9] << 8) : 0;
    assert_true(*size > skip);
    memmove(all, all + skip, *size - skip);
    *size -= skip;
    return all;
}

/* $HP_GOLDEN/blocks: random blocks as others made them, and their values as others read them. */
TEST(random_blocks_have_the_values_that_others_say)
{
    const char *golden = getenv("HP_GOLDEN");
    char folder[256];
    snprintf(folder, sizeof folder, "%s/blocks", golden ? golden : "../shared/golden");
    int n_read = 0;
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++) {
        const struct dtype_info *info = dtype_info((enum dtype)t);
        size_t bytes, value_bytes;
        uint8_t *blocks = file_read(folder, info->name, "bin", &bytes),
                *values = blocks ? file_read(folder, info->name, "npy", &value_bytes) : NULL;
        if (!values)
            continue;
        size_t n = bytes / info->block_bytes * info->block_elements;
        assert_int_equal(value_bytes, n * sizeof(float));
        float *got = malloc(n * sizeof *got);
        assert_non_null(got);
        info->to_f32(blocks, n, got);
        for (size_t i = 0; i < n; i++) {
            float want;
            memcpy(&want, values + i * sizeof want, sizeof want);
            if (!(fabsf(got[i] - want) <= 1e-6f * fabsf(want)) && !(isnan(want) && isnan(got[i])))
                fail_msg("%s: element %zu is %g, expected %g", info->name, i, (double)got[i],
                         (double)want);
        }
        n_read++;
        free(got);
        free(values);
        free(blocks);
    }
    if (!n_read) {
        print_message("# no blocks in %s\n", folder);
        skip();
    }
    assert_true(n_read >= 11);
}

TEST(iq4_xs_blocks_have_scales_of_six_bits_in_two_places)
{
    uint8_t block[IQ4_XS_BYTES] = {0x00, 0x40}; /* 2 */
    float out[256];
    block[2 + 1] = 2 << 2; /* run 5: high two bits 2 */
    block[4 + 2] = 7 << 4; /* its low four bits 7: 39 - 32 = 7 */
    block[8 + 5 * 16 + 3] = 0x1f;
    dtype_info(DTYPE_IQ4_XS)->to_f32(block, 256, out);
    assert_true(out[5 * 32 + 3] == 2 * 7 * 113.0f && out[5 * 32 + 19] == 2 * 7 * -104.0f);
    assert_true(out[0] == 2 * -32 * -127.0f);
}

/* OCP microscaling formats: E2M1 values times a power of two. */
TEST(mxfp4_blocks_are_powers_of_two_times_e2m1)
{
    static const float values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    for (int e = 0; e < 255; e++) {
        uint8_t block[MXFP4_BYTES] = {(uint8_t)e};
        float out[32], scale = ldexpf(1, e - 127);
        for (int i = 0; i < 16; i++)
            block[1 + i] = (uint8_t)(i | (15 - i) << 4);
        dtype_info(DTYPE_MXFP4)->to_f32(block, 32, out);
        for (int i = 0; i < 16; i++)
            assert_true(out[i] == scale * values[i] && out[16 + i] == scale * values[15 - i]);
    }
}

TEST(blocks_whose_scale_is_no_finite_number_are_found)
{
    static uint8_t blocks[5 * 256];
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++) {
        const struct dtype_info *info = dtype_info((enum dtype)t);
        size_t n = 3 * info->block_elements, bytes = info->block_bytes;
        memset(blocks, 0x55, sizeof blocks);
        assert_int_equal(dtype_bad_block((enum dtype)t, blocks, n), -1);
        for (int i = 0; i < info->n_scales; i++) {
            memset(blocks, 0x55, sizeof blocks);
            blocks[2 * bytes + info->scales_at + 2 * (size_t)i + 1] = i ? 0xfe : 0x7c;
            assert_int_equal(dtype_bad_block((enum dtype)t, blocks, n), 2);
            blocks[info->scales_at + 1] = 0x7e;
            assert_int_equal(dtype_bad_block((enum dtype)t, blocks, n), 0);
        }
        assert_int_equal(info->n_scales > 0, info->block_elements > 1 && t != DTYPE_MXFP4);
    }
    memset(blocks, 0x55, sizeof blocks);
    blocks[MXFP4_BYTES] = 0xff;
    assert_int_equal(dtype_bad_block(DTYPE_MXFP4, blocks, 64), 1);
    static const uint32_t scales[] = {0x7f800000, 0x7fc00000, 0xff800000, 0xbf800000};
    memset(blocks, 0, sizeof blocks);
    assert_int_equal(dtype_bad_block(DTYPE_Q8_WIRE, blocks, 2 * Q8_WIRE_ELEMENTS), -1);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        memcpy(blocks + Q8_WIRE_BYTES, &scales[i], sizeof scales[i]);
        assert_int_equal(dtype_bad_block(DTYPE_Q8_WIRE, blocks, 2 * Q8_WIRE_ELEMENTS), 1);
    }
}

TEST(values_that_are_no_finite_numbers_are_found_wherever_they_lie)
{
    enum { N = 3 * 1024 + 7 };
    static const struct {
        enum dtype t;
        uint32_t bad[3], good[2];
    } cases[] = {{DTYPE_F32, {0x7f800000, 0xff800000, 0x7f800001}, {0x7f7fffff, 0xff7fffff}},
                 {DTYPE_F16, {0x7c00, 0xfc00, 0x7c01}, {0x7bff, 0xfbff}},
                 {DTYPE_BF16, {0x7f80, 0xff80, 0x7fc0}, {0x7f7f, 0xff7f}}};
    static const size_t places[] = {0, 1, 511, 512, 1023, 1024, 2500, 3071, 3072, N - 1};
    static uint8_t values[4 * N + 1];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t size = dtype_info(cases[c].t)->block_bytes;
        uint8_t *at = values + 1; /* where no value is aligned */
        memset(values, 0, sizeof values);
        for (size_t i = 0; i < N; i++)
            memcpy(at + i * size, &cases[c].good[i % 2], size);
        assert_int_equal(dtype_bad_block(cases[c].t, at, N), -1);
        for (size_t i = sizeof places / sizeof *places; i-- > 0;) {
            memcpy(at + places[i] * size, &cases[c].bad[i % 3], size);
            assert_int_equal(dtype_bad_block(cases[c].t, at, N), (int64_t)places[i]);
            assert_int_equal(dtype_bad_block(cases[c].t, at, places[i]), -1);
        }
    }
}

TEST(rows_on_the_wire_are_scale_times_byte_and_one_kept_value)
{
    uint8_t block[Q8_WIRE_BYTES] = {0};
    const float scale = 0.5f, kept = 1234.5f;
    float out[Q8_WIRE_ELEMENTS];
    memcpy(block, &scale, sizeof scale);
    memcpy(block + 4, &kept, sizeof kept);
    for (int i = 0; i < Q8_WIRE_ELEMENTS; i++)
        block[8 + i] = (uint8_t)(int8_t)(i == 7 ? Q8_WIRE_KEPT : 2 * i - 127);
    dtype_info(DTYPE_Q8_WIRE)->to_f32(block, Q8_WIRE_ELEMENTS, out);
    for (int i = 0; i < Q8_WIRE_ELEMENTS; i++)
        assert_true(out[i] == (i == 7 ? kept : scale * (float)(2 * i - 127)));
    assert_int_equal(dtype_bytes(DTYPE_Q8_WIRE, 2 * Q8_WIRE_ELEMENTS), 144);
    assert_int_equal(dtype_of_gguf(0), DTYPE_F32); /* it is no format of weights */
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
    char names[192], few[6];
    assert_string_equal(
        dtype_known(names, sizeof names),
        "F32, F16, BF16, Q8_0, Q4_0, Q6_K, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, "
        "IQ4_NL, IQ4_XS, MXFP4");
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
        cmocka_unit_test(random_blocks_have_the_values_that_others_say),
        cmocka_unit_test(iq4_xs_blocks_have_scales_of_six_bits_in_two_places),
        cmocka_unit_test(mxfp4_blocks_are_powers_of_two_times_e2m1),
        cmocka_unit_test(blocks_whose_scale_is_no_finite_number_are_found),
        cmocka_unit_test(values_that_are_no_finite_numbers_are_found_wherever_they_lie),
        cmocka_unit_test(rows_on_the_wire_are_scale_times_byte_and_one_kept_value),
        cmocka_unit_test(every_format_is_found_by_its_names),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
