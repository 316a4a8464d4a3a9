/* How operators are cut for several threads: every element of the output in one part, from the
 * input that it is made of. */
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/nn_task.h"
#include "tests/test.h"

static struct nn_view pictures(int64_t batch, int64_t channels, int64_t height, int64_t width)
{
    return (struct nn_view){.n_dims = 4,
                            .dims = {batch, channels, height, width},
                            .strides = {channels * height * width, 1, width * channels, channels}};
}

static uint64_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static struct nn_task conv_random(uint64_t *random)
{
    struct nn_task t = {.kind = NN_TASK_CONV};
    struct nn_conv *c = &t.u.conv;
    int64_t k = 1 + 2 * (int64_t)(random_next(random) % 3),
            pad = (int64_t)(random_next(random) % 4);
    int64_t stride = 1 + (int64_t)(random_next(random) % 3);
    int64_t dilation = 1 + (int64_t)(random_next(random) % 2);
    int64_t reach = (k - 1) * dilation + 1, in = reach + (int64_t)(random_next(random) % 40);
    int64_t out = (in + 2 * pad - reach) / stride + 1;
    *c = (struct nn_conv){.n_axes = 2, .groups = 1};
    c->x = pictures(1 + (int64_t)(random_next(random) % 6), 4, in, in);
    c->y = pictures(c->x.dims[0], 8, out, out);
    for (int d = 0; d < 2; d++) {
        c->kernel[d] = k;
        c->stride[d] = stride;
        c->dilation[d] = dilation;
        c->before[d] = pad;
        c->after[d] = (out - 1) * stride + reach - in - pad;
    }
    c->posts = (struct nn_posts){.n = 1, .list = {{.kind = NN_POST_ADD, .other = c->y}}};
    return t;
}

/* A part's row reads, from where the part's input begins, what the whole's row reads. */
static void conv_part_check(const struct nn_conv *whole, const struct nn_conv *part,
                            const int64_t offsets[NN_SLOTS], char *seen)
{
    int64_t plane = whole->y.strides[0], row = whole->y.strides[2];
    int64_t reach = (part->kernel[0] - 1) * part->dilation[0] + 1;
    assert_true(part->x.dims[2] > 0 && part->before[0] >= 0);
    assert_int_equal(
        (part->x.dims[2] + part->before[0] + part->after[0] - reach) / part->stride[0] + 1,
        part->y.dims[2]);
    assert_int_equal(offsets[NN_OTHER], offsets[NN_Y]);
    if (part->y.dims[0] == 1) { /* dense, as oneDNN wants it */
        assert_int_equal(part->x.strides[0], part->x.dims[2] * part->x.strides[2]);
        assert_int_equal(part->y.strides[0], part->y.dims[2] * part->y.strides[2]);
    }
    for (int64_t b = 0; b < part->y.dims[0]; b++)
        for (int64_t r = 0; r < part->y.dims[2]; r++) {
            int64_t at = offsets[NN_Y] + b * part->y.strides[0] + r * row;
            int64_t sample = at / plane, line = at % plane / row;
            assert_int_equal(at, sample * plane + line * row);
            seen[sample * whole->y.dims[2] + line]++;
            /* the first place of the window, in elements of the whole input */
            int64_t wanted = sample * whole->x.strides[0] +
                             (line * whole->stride[0] - whole->before[0]) * whole->x.strides[2];
            int64_t got = offsets[NN_X] + b * part->x.strides[0] +
                          (r * part->stride[0] - part->before[0]) * part->x.strides[2];
            assert_int_equal(got, wanted);
        }
}

TEST(parts_of_convolutions_make_every_row_once_from_the_rows_that_it_is_made_of)
{
    uint64_t random = 5;
    int cut_rows = 0, cut_samples = 0;
    for (int i = 0; i < 2000; i++) {
        struct nn_task whole = conv_random(&random), part;
        struct nn_cut cut = nn_task_cut(&whole, 1 + (int)(random_next(&random) % 9));
        const struct nn_conv *c = &whole.u.conv;
        size_t rows = (size_t)(c->y.dims[0] * c->y.dims[2]);
        char *seen = calloc(rows, 1);
        int64_t offsets[NN_SLOTS];
        bool told = true;
        for (int p = 0; p < cut.n_parts && told; p++) {
            told = nn_task_part(&whole, &cut, p, &part, offsets);
            if (told)
                conv_part_check(c, &part.u.conv, offsets, seen);
        }
        for (size_t r = 0; r < rows && told; r++)
            assert_int_equal(seen[r], 1);
        cut_rows += told && cut.ranges[1] > 1;
        cut_samples += told && cut.ranges[0] > 1;
        free(seen);
    }
    assert_true(cut_rows > 500 && cut_samples > 500);
}

static struct nn_view dense(int n_dims, const int64_t *dims)
{
    struct nn_view v = {.n_dims = n_dims};
    int64_t step = 1;
    for (int d = n_dims - 1; d >= 0; d--) {
        v.dims[d] = dims[d];
        v.strides[d] = step;
        step *= dims[d];
    }
    return v;
}

TEST(parts_of_products_cut_heads_before_rows_and_take_the_matrices_of_their_heads)
{
    const int64_t x[] = {1, 12, 32, 64}, w[] = {1, 12, 64, 40}, y[] = {1, 12, 32, 40};
    struct nn_task t = {.kind = NN_TASK_MATMUL}, part;
    int64_t offsets[NN_SLOTS], rows = 0;
    t.u.matmul = (struct nn_matmul){.x = dense(4, x), .w = dense(4, w), .y = dense(4, y)};
    struct nn_cut cut = nn_task_cut(&t, 4);
    assert_int_equal(cut.n_parts, 4);
    for (int p = 0; p < 4; p++) {
        assert_true(nn_task_part(&t, &cut, p, &part, offsets));
        assert_int_equal(part.u.matmul.y.dims[1], 3);
        assert_int_equal(part.u.matmul.w.dims[1], 3);
        assert_int_equal(offsets[NN_X], p * 3 * 32 * 64);
        assert_int_equal(offsets[NN_WEIGHTS], p * 3 * 64 * 40);
        assert_int_equal(offsets[NN_Y], p * 3 * 32 * 40);
    }
    const int64_t m[] = {33, 64}, k[] = {64, 40}, n[] = {33, 40};
    t.u.matmul =
        (struct nn_matmul){.x = dense(2, m), .w = dense(2, k), .y = dense(2, n), .packs = true};
    cut = nn_task_cut(&t, 3);
    assert_int_equal(cut.n_parts, 3);
    for (int p = 0; p < 3; p++) {
        assert_true(nn_task_part(&t, &cut, p, &part, offsets));
        assert_int_equal(offsets[NN_X], rows * 64);
        assert_int_equal(offsets[NN_Y], rows * 40);
        assert_int_equal(offsets[NN_WEIGHTS], 0);
        assert_int_equal(part.u.matmul.w.dims[0], 64);
        rows += part.u.matmul.y.dims[0];
    }
    assert_int_equal(rows, 33);
}

TEST(flat_arrays_go_in_lines_of_the_cache)
{
    const int64_t n[] = {1000};
    struct nn_task t = {.kind = NN_TASK_ELEMENTS, .u.elements.x = dense(1, n)}, part;
    struct nn_cut cut = nn_task_cut(&t, 3);
    int64_t offsets[NN_SLOTS], all = 0;
    assert_true(cut.n_parts >= 3);
    for (int p = 0; p < cut.n_parts; p++) {
        assert_true(nn_task_part(&t, &cut, p, &part, offsets));
        assert_int_equal(offsets[NN_X], all);
        assert_int_equal(offsets[NN_Y] % 64, 0);
        all += part.u.elements.x.dims[0];
    }
    assert_int_equal(all, 1000);
}

TEST(threads_are_kept_about_equally_busy)
{
    static const struct {
        int64_t batch, rows;
        int threads, parts;
    } cases[] = {
        {1, 56, 2, 2}, {1, 56, 4, 4}, {2, 56, 2, 2}, {3, 56, 2, 6}, {8, 7, 4, 4},
        {4, 7, 3, 8},  {1, 1, 4, 1},  {1, 7, 1, 1},  {16, 1, 4, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nn_task t = {.kind = NN_TASK_CONV};
        t.u.conv = (struct nn_conv){.n_axes = 2, .groups = 1};
        t.u.conv.y = pictures(cases[i].batch, 8, cases[i].rows, 5);
        struct nn_cut cut = nn_task_cut(&t, cases[i].threads);
        if (cut.n_parts != cases[i].parts)
            fail_msg("%d samples of %d rows on %d threads: %d parts", (int)cases[i].batch,
                     (int)cases[i].rows, cases[i].threads, cut.n_parts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            parts_of_convolutions_make_every_row_once_from_the_rows_that_it_is_made_of),
        cmocka_unit_test(
            parts_of_products_cut_heads_before_rows_and_take_the_matrices_of_their_heads),
        cmocka_unit_test(flat_arrays_go_in_lines_of_the_cache),
        cmocka_unit_test(threads_are_kept_about_equally_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
