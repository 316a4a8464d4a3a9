/* What a stage holds because it is part of a pipeline. */
#include "tests/test.h"
#include "transport/data.h"
#include "transport/stage_bytes.h"

enum { BATCH = 512, WIDTH = 4096, VOCABULARY = 32000, SEQUENCES = 32 };

static struct stage_shape shape(bool last, enum frame_dtype wire)
{
    return (struct stage_shape){last, BATCH, SEQUENCES, {WIDTH, 0}, VOCABULARY, wire};
}

TEST(exact_numbers_of_a_row_cross_as_float32_in_every_format)
{
    static const struct {
        enum frame_dtype wire;
        uint64_t others_bytes;
    } cases[] = {
        {FRAME_F32, 128 * 4}, {FRAME_F16, 128 * 2}, {FRAME_BF16, 128 * 2}, {FRAME_Q8, 2 * 72}};
    const struct frame_row row = {128 + 6, 6};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage_shape s = shape(false, cases[i].wire);
        uint64_t rows = 3 * (cases[i].others_bytes + 6 * 4);
        assert_int_equal(frame_rows_bytes(cases[i].wire, row, 3), rows);
        s.row = row;
        s.max_batch_tokens = 3 << 10;
        assert_int_equal(stage_output_bytes(&s), SEQUENCES * FRAME_RUN_BYTES + (rows << 10));
        assert_int_equal(stage_inputs_bytes(1, 3, row, cases[i].wire),
                         3 * (rows + 3 * FRAME_RUN_BYTES));
    }
}

TEST(each_place_in_a_pipeline_holds_what_it_needs)
{
    const uint64_t table = (uint64_t)SEQUENCES * FRAME_RUN_BYTES, rows = (uint64_t)BATCH * WIDTH;
    struct stage_shape first = shape(false, FRAME_F32), middle = shape(false, FRAME_F16),
                       last = shape(true, FRAME_F16);
    assert_int_equal(stage_beside_bytes(&first), DATA_STAGE_OUTPUTS * (table + rows * 4));
    assert_int_equal(stage_beside_bytes(&middle), DATA_STAGE_OUTPUTS * (table + rows * 2));
    assert_int_equal(stage_beside_bytes(&last),
                     (uint64_t)STAGE_BATCHES * SEQUENCES * VOCABULARY * 4);
}

TEST(outputs_that_never_wait_have_no_buffers_of_their_own)
{
    struct stage_shape s = shape(false, FRAME_F32);
    s.row.width = (DATA_CONTROL_BYTES - SEQUENCES * FRAME_RUN_BYTES) / 4 / BATCH;
    assert_int_equal(stage_output_bytes(&s), 0);
    s.row.width++;
    assert_true(stage_output_bytes(&s) > DATA_CONTROL_BYTES);
}

TEST(what_comes_beyond_the_pool_is_paid_by_stages)
{
    const struct frame_row row = {WIDTH, 0};
    uint64_t inputs = stage_inputs_bytes(3, BATCH, row, FRAME_F16);
    assert_int_equal(inputs, (uint64_t)(2 * 3 + 1) * BATCH * (2 * WIDTH + FRAME_RUN_BYTES));
    assert_int_equal(stage_receiving_bytes(inputs, inputs + STAGE_KV_BYTES), 0);
    assert_int_equal(stage_receiving_bytes(inputs, 1 << 30), 0);
    assert_int_equal(stage_receiving_bytes(inputs, inputs + STAGE_KV_BYTES - 4096), 5 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_numbers_of_a_row_cross_as_float32_in_every_format),
        cmocka_unit_test(each_place_in_a_pipeline_holds_what_it_needs),
        cmocka_unit_test(outputs_that_never_wait_have_no_buffers_of_their_own),
        cmocka_unit_test(what_comes_beyond_the_pool_is_paid_by_stages),
    };
    return cmocka_run_group_tests_name("stage_bytes", tests, NULL, NULL);
}
