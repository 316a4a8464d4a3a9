#include <math.h>
#include <stdlib.h>

#include "agent/engine/made_up.h"
#include "model/dtype/dtype.h"
#include "tests/test.h"

enum { ROWS = 700, COLUMNS = 1024 };

static struct weight weight_of(enum dtype t, int n_dims, const uint8_t *data)
{
    uint64_t n = n_dims == 1 ? COLUMNS : (uint64_t)ROWS * COLUMNS;
    return (struct weight){.name = "w",
                           .dtype = t,
                           .n_dims = n_dims,
                           .shape = {n_dims == 1 ? COLUMNS : ROWS, COLUMNS},
                           .bytes = dtype_bytes(t, n),
                           .data = data};
}

TEST(matrices_of_zeros_become_numbers_that_keep_their_inputs_size)
{
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++) {
        if (dtype_info((enum dtype)t)->block_elements == 1)
            continue;
        struct weight w = weight_of((enum dtype)t, 2, NULL);
        struct made_up m;
        uint8_t *zeros = calloc(1, w.bytes);
        float *row = malloc(COLUMNS * sizeof *row), *other = malloc(COLUMNS * sizeof *other);
        size_t row_bytes = w.bytes / ROWS;
        w.data = zeros;
        made_up_make(&w, &m);
        assert_non_null(m.memory);
        assert_int_equal(m.weight.bytes, w.bytes);
        for (size_t r = 0; r + 1 < ROWS; r += 233) {
            double squares = 0;
            dtype_info(w.dtype)->to_f32(m.weight.data + r * row_bytes, COLUMNS, row);
            dtype_info(w.dtype)->to_f32(m.weight.data + (r + 1) * row_bytes, COLUMNS, other);
            for (int i = 0; i < COLUMNS; i++)
                squares += (double)row[i] * row[i];
            assert_true(squares > 0.7 && squares < 1.3);
            assert_memory_not_equal(row, other, COLUMNS * sizeof *row);
        }
        made_up_free(&m);
        free(zeros);
        free(row);
        free(other);
    }
}

TEST(vectors_of_zeros_become_ones)
{
    struct weight w = weight_of(DTYPE_F32, 1, NULL);
    struct made_up m;
    uint8_t *zeros = calloc(1, w.bytes);
    w.data = zeros;
    made_up_make(&w, &m);
    for (int i = 0; i < COLUMNS; i++)
        assert_true(((const float *)(const void *)m.weight.data)[i] == 1);
    made_up_free(&m);
    free(zeros);
}

TEST(what_is_there_stays)
{
    struct weight w = weight_of(DTYPE_Q8_0, 2, NULL), part = w;
    const struct weight *parts[1] = {&part};
    struct made_up m;
    uint8_t *data = calloc(1, w.bytes);
    data[100] = 1;
    w.data = data;
    made_up_make(&w, &m);
    assert_null(m.memory);
    data[100] = 0;
    w.parts = parts; /* experts that lie apart */
    w.n_parts = 1;
    made_up_make(&w, &m);
    assert_null(m.memory);
    w.n_parts = 0;
    w.dtype = DTYPE_F16; /* read where it lies, and as quick with zeros */
    made_up_make(&w, &m);
    assert_null(m.memory);
    made_up_free(&m);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_zeros_become_numbers_that_keep_their_inputs_size),
        cmocka_unit_test(vectors_of_zeros_become_ones),
        cmocka_unit_test(what_is_there_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
