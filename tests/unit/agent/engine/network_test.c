/* The engine for networks against the reference in plain loops: whole, cut, in several sizes; and
 * its loops on every set of instructions against plain ones. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/nn_loops.h"
#include "agent/backend/cpu/threads.h"
#include "agent/engine/network/network_profile.h"
#include "tests/unit/agent/engine/small_network.h"

enum { OUTPUTS = 3 };

static struct network_engine *engine_of(const struct buffer *file)
{
    struct onnx_network *n = network_of(file, UINT32_MAX);
    struct network_engine *g = NULL;
    struct err e = {0};
    if (network_engine_open(&n, NULL, NULL, &g, &e) < 0)
        fail_msg("%s", e.text);
    return g;
}

static void outputs_free(struct ndarray *outputs, int n)
{
    for (int i = 0; i < n; i++)
        ndarray_free(&outputs[i]);
}

static void arrays_close(const struct ndarray *got, const struct ndarray *wanted, double close)
{
    double most = 0, off = 0;
    assert_int_equal(got->type, wanted->type);
    assert_true(ndarray_same_shape(got, wanted));
    for (int64_t i = 0; i < wanted->count; i++) {
        most = fmax(most, fabs(ndarray_f64(wanted, i)));
        off = fmax(off, fabs(ndarray_f64(wanted, i) - ndarray_f64(got, i)));
    }
    assert_true(most > 0);
    if (!(off <= close * most))
        fail_msg("%g of the largest value %g", off / most, most);
}

static void arrays_equal(const struct ndarray *a, const struct ndarray *b)
{
    assert_true(ndarray_same_shape(a, b));
    assert_memory_equal(a->data, b->data, ndarray_bytes(a));
}

TEST(engine_agrees_with_the_reference_in_every_size)
{
    static const int64_t sizes[][3] = {{1, 32, 32}, {2, 20, 28}, {1, 32, 32}, {3, 9, 13}};
    struct buffer file = small_network_file();
    struct network_engine *g = engine_of(&file);
    struct onnx_network *reference = network_of(&file, UINT32_MAX);
    struct err e = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ndarray x = random_picture(sizes[i][0], sizes[i][1], sizes[i][2]);
        const struct ndarray *inputs[] = {&x};
        struct ndarray got[OUTPUTS] = {0}, wanted[OUTPUTS] = {0};
        if (network_engine_run(g, 1, inputs, got, &e) < 0 ||
            network_run(reference, 1, inputs, wanted, &e) < 0)
            fail_msg("%s", e.text);
        for (int o = 0; o < OUTPUTS; o++)
            arrays_close(&got[o], &wanted[o], 2e-5);
        outputs_free(got, OUTPUTS);
        outputs_free(wanted, OUTPUTS);
        ndarray_free(&x);
    }
    struct network_plan_facts f = network_engine_describe(g);
    assert_int_equal(f.reference_steps, 1); /* Erf alone */
    assert_true(f.steps < network_run_nodes(reference));
    network_close(&reference);
    network_engine_close(&g);
    buffer_free(&file);
}

TEST(a_cut_graph_gives_the_same_bits)
{
    struct buffer file = small_network_file();
    struct network_engine *g = engine_of(&file);
    struct ndarray x = random_picture(2, 24, 24), whole[OUTPUTS] = {0};
    const struct ndarray *inputs[] = {&x};
    struct err e = {0};
    assert_int_equal(network_engine_run(g, 1, inputs, whole, &e), 0);
    int steps = network_engine_describe(g).steps;
    assert_true(steps > 15);
    for (int stages = 2; stages <= steps; stages++) {
        struct ndarray cut[OUTPUTS] = {0};
        assert_int_equal(network_engine_run(g, stages, inputs, cut, &e), 0);
        for (int o = 0; o < OUTPUTS; o++)
            arrays_equal(&cut[o], &whole[o]);
        outputs_free(cut, OUTPUTS);
    }
    struct ndarray none[OUTPUTS] = {0};
    assert_int_equal(network_engine_run(g, 1000, inputs, none, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "1000 stages"));
    outputs_free(whole, OUTPUTS);
    ndarray_free(&x);
    network_engine_close(&g);
    buffer_free(&file);
}

/* Several numbers of threads, each with every operator cut that can be, however small. */
TEST(any_number_of_threads_gives_the_same_bits_whole_and_cut)
{
    static const int64_t sizes[][3] = {{1, 64, 48}, {2, 40, 56}, {3, 9, 13}, {5, 16, 16}};
    struct buffer file = small_network_file();
    struct network_engine *alone = engine_of(&file);
    struct err e = {0};
    setenv("HP_TEST_LEAST_WORK", "1", 1);
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        struct onnx_network *n = network_of(&file, UINT32_MAX);
        struct threads *threads;
        struct network_engine *g;
        assert_int_equal(threads_create(n_threads, NULL, 0, &threads, &e), 0);
        assert_int_equal(network_engine_open(&n, threads, NULL, &g, &e), 0);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct ndarray x = random_picture(sizes[i][0], sizes[i][1], sizes[i][2]);
            const struct ndarray *inputs[] = {&x};
            struct ndarray one[OUTPUTS] = {0}, many[OUTPUTS] = {0};
            assert_int_equal(network_engine_run(alone, 1, inputs, one, &e), 0);
            for (int stages = 1; stages <= 3; stages++) {
                assert_int_equal(network_engine_run(g, stages, inputs, many, &e), 0);
                for (int o = 0; o < OUTPUTS; o++)
                    arrays_equal(&many[o], &one[o]);
            }
            assert_true(network_engine_describe(g).cut_steps > 3);
            assert_int_equal(network_engine_describe(alone).cut_steps, 0);
            outputs_free(one, OUTPUTS);
            outputs_free(many, OUTPUTS);
            ndarray_free(&x);
        }
        network_engine_close(&g);
        threads_destroy(&threads);
    }
    unsetenv("HP_TEST_LEAST_WORK");
    network_engine_close(&alone);
    buffer_free(&file);
}

TEST(a_graph_cut_before_any_step_or_all_of_them_gives_the_same_bits)
{
    struct buffer file = small_network_file();
    struct onnx_network *n = network_of(&file, UINT32_MAX);
    struct network_facts facts;
    struct network_plan *p;
    struct nn *nn;
    struct err e = {0};
    struct ndarray x = random_picture(1, 18, 22), whole[OUTPUTS] = {0}, cut[OUTPUTS] = {0};
    const struct ndarray *inputs[] = {&x};
    assert_int_equal(nn_create(NULL, &nn, &e), 0);
    assert_int_equal(network_facts_make(n, NULL, NULL, &facts, &e), 0);
    assert_int_equal(network_plan_make(&facts, nn, inputs, &p, &e), 0);
    assert_int_equal(network_plan_run(p, inputs, whole, &e), 0);
    int n_steps = network_plan_describe(p).steps;
    int *cuts = calloc((size_t)n_steps, sizeof *cuts);
    for (int at = 1; at <= n_steps; at++) { /* the last time all of them */
        cuts[at - 1] = at;
        const int *some = at < n_steps ? &cuts[at - 1] : cuts;
        int n_some = at < n_steps ? 1 : n_steps - 1;
        assert_int_equal(network_plan_run_at(p, some, n_some, inputs, cut, &e), 0);
        for (int o = 0; o < OUTPUTS; o++)
            arrays_equal(&cut[o], &whole[o]);
    }
    free(cuts);
    outputs_free(cut, OUTPUTS);
    outputs_free(whole, OUTPUTS);
    ndarray_free(&x);
    network_plan_free(&p);
    network_facts_free(&facts);
    nn_destroy(&nn);
    network_close(&n);
    buffer_free(&file);
}

/* A clock that goes on by a microsecond with every look at it. */
static uint64_t counted_ns(void *ctx)
{
    uint64_t *looks = ctx;
    return ++*looks * 1000;
}

TEST(a_profile_has_what_each_layer_takes_and_hands_on)
{
    struct buffer file = small_network_file();
    struct onnx_network *n = network_of(&file, UINT32_MAX);
    uint64_t looks = 0, weights = 0;
    const struct env env = {.ctx = &looks, .now_ns = counted_ns};
    const struct network_dim side = {"", 24};
    struct network_profile_ask ask = {.env = &env,
                                      .batches = {1, 3},
                                      .n_batches = 2,
                                      .dims = &side,
                                      .n_dims = 1,
                                      .budget_s = 1,
                                      .spread = 0.02};
    struct network_profile p;
    struct err e = {0};
    if (network_profile_measure(n, &ask, &p, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(p.n_layers > 10);
    for (int b = 0; b < 2; b++) {
        double sum = 0;
        for (int i = 0; i < p.n_layers; i++) {
            /* Looks are all that takes time by this clock, and one a step is taken off: what is
             * left is the least that a step takes, and of the last, which has two, the other. */
            double most = i + 1 < p.n_layers ? 1e-7 : 1.1e-6;
            assert_true(b > 0 || (p.seconds[i * 2] >= 0.9e-9 && p.seconds[i * 2] < most));
            sum += p.seconds[i * 2 + b];
        }
        assert_true(fabs(sum - p.runs[b].sum_s) < 1e-12);
        assert_true(fabs(p.runs[b].whole_s - 1e-6) < 1e-12); /* two looks */
        assert_true(p.runs[b].spread < 1e-9);
        assert_int_equal(p.runs[b].n_runs, 11);
    }
    for (int i = 0; i < p.n_layers; i++) {
        assert_true(p.layers[i].output_bytes > 0);
        weights += p.layers[i].param_bytes;
    }
    assert_true(weights >= 4 * (3 * 24 * 9 + 24 * 9 + 24 * 8 * 2 + 24 * 24 + 24 * 10));
    network_profile_free(&p);
    ask.n_dims = 0;
    assert_int_equal(network_profile_measure(n, &ask, &p, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "input x: its dimension 2 (without a name) has no size"));
    network_close(&n);
    buffer_free(&file);
}

TEST(sizes_that_depend_on_what_inputs_hold_are_left_to_the_reference)
{
    struct onnx_writer w = {.random = 3};
    ow_end(&w, 11, "x", 4, (int64_t[]){-1, 3, -1, -1});
    ow_node(&w, "Relu", "x", "r");
    ow_node(&w, "NonZero", "r", "n"); /* [4, how many] */
    ow_begin(&w, "Cast", "n", "y");
    ow_int(&w, "to", ND_F32);
    ow_done(&w);
    ow_end(&w, 12, "y", 2, (int64_t[]){4, -1});
    struct buffer file = ow_finish(&w, 17);
    struct network_engine *g = engine_of(&file);
    struct ndarray x = random_picture(1, 4, 4), y = {0};
    const struct ndarray *inputs[] = {&x};
    int64_t positive = 0;
    struct err e = {0};
    for (int64_t i = 0; i < x.count; i++)
        positive += ndarray_f64(&x, i) > 0;
    assert_int_equal(network_engine_run(g, 1, inputs, &y, &e), 0);
    assert_int_equal(y.dims[0], 4);
    assert_int_equal(y.dims[1], positive);
    ndarray_free(&y);
    ndarray_free(&x);
    network_engine_close(&g);
    buffer_free(&file);
}

TEST(what_does_not_fit_is_named_and_leaves_no_output)
{
    struct buffer file = small_network_file();
    struct network_engine *g = engine_of(&file);
    struct ndarray x = {0}, out[OUTPUTS] = {0};
    const struct ndarray *inputs[] = {&x};
    struct err e = {0};
    assert_int_equal(ndarray_make(&x, ND_F32, 4, (int64_t[]){1, 4, 8, 8}, UINT64_MAX, NULL), 0);
    assert_int_equal(network_engine_run(g, 1, inputs, out, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "float32 1x4x8x8; the model wants float32 any x 3 x any x any"));
    assert_null(out[0].data);
    ndarray_free(&x);
    network_engine_close(&g);
    buffer_free(&file);
}

TEST(memory_beyond_the_limit_is_refused)
{
    struct buffer file = small_network_file();
    struct onnx_network *n = network_of(&file, 1 << 20);
    struct network_engine *g = NULL;
    struct err e = {0};
    assert_int_equal(network_engine_open(&n, NULL, NULL, &g, &e), 0);
    struct ndarray x = random_picture(1, 512, 512), out[OUTPUTS] = {0};
    const struct ndarray *inputs[] = {&x};
    assert_int_equal(network_engine_run(g, 1, inputs, out, &e), HP_ELIMIT);
    assert_null(out[0].data);
    ndarray_free(&x);
    network_engine_close(&g);
    buffer_free(&file);
}

/* ---- loops ---- */

enum { ROW = 77 };

static void kernels_check(const struct nn_kernels *k)
{
    struct onnx_writer w = {.random = 11};
    const struct nn_kernels *plain = &nn_kernels_plain;
    float x[ROW], y[ROW], a[ROW], b[ROW];
    for (int i = 0; i < ROW; i++) {
        x[i] = 8 * ow_random(&w);
        y[i] = ow_random(&w) + 1;
    }
    for (size_t n = 1; n <= ROW; n += 19) {
        for (int f = NN_ABS; f <= NN_SOFTPLUS; f++) {
            const float *in = f == NN_SQRT ? y : x;
            plain->unary((enum nn_unary)f, 0.3f, 0.6f, in, a, n);
            k->unary((enum nn_unary)f, 0.3f, 0.6f, in, b, n);
            for (size_t i = 0; i < n; i++)
                assert_true(fabsf(a[i] - b[i]) <= 1e-6f * (1 + fabsf(a[i])));
        }
        for (int f = NN_ADD; f <= NN_PRELU; f++)
            for (ptrdiff_t step = 0; step < 4; step++) {
                plain->binary((enum nn_binary)f, x, step & 1, y, step >> 1, a, n);
                k->binary((enum nn_binary)f, x, step & 1, y, step >> 1, b, n);
                assert_memory_equal(a, b, n * sizeof *a);
            }
        assert_true(fabsf(plain->sum(x, n) - k->sum(x, n)) < 1e-4f);
        assert_true(plain->largest(x, n) == k->largest(x, n));
        plain->normalise(x, y, x, 1e-5f, a, n);
        k->normalise(x, y, x, 1e-5f, b, n);
        for (size_t i = 0; i < n; i++)
            assert_true(fabsf(a[i] - b[i]) <= 1e-4f);
    }
}

TEST(softplus_keeps_the_bits_of_what_is_small_and_passes_on_what_is_no_number)
{
    const struct nn_kernels *tables[] = {&nn_kernels_plain, nn_kernels_choose()};
    const float odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 200, -200, 88};
    float x[4096], y[4096];
    for (int i = 0; i < 4096; i++)
        x[i] = (float)(i - 2048) / 32; /* -64 to 64 */
    for (int t = 0; t < 2; t++) {
        tables[t]->unary(NN_SOFTPLUS, 0, 0, x, y, 4096);
        for (int i = 0; i < 4096; i++) {
            double wanted = fmax((double)x[i], 0) + log1p(exp(-fabs((double)x[i])));
            if (fabs((double)y[i] - wanted) > 4e-7 * wanted)
                fail_msg("%g: %g and not %g", (double)x[i], (double)y[i], wanted);
        }
        tables[t]->unary(NN_SOFTPLUS, 0, 0, odd, y, 8);
        assert_true(isnan(y[0]) && isinf(y[1]) && y[2] < 1e-30f && y[5] == 200 && y[6] < 1e-30f);
        assert_true(fabsf(y[3] - 0.6931472f) < 1e-7f && y[3] == y[4] && y[7] == 88);
    }
}

/* Windows over rows of channels: the largest, sums, sums of products. */
static void windows_check(const struct nn_kernels *k)
{
    enum { ROWS = 5 };
    struct onnx_writer w = {.random = 13};
    float x[ROWS * ROW], by[ROWS * ROW], a[ROW], b[ROW];
    int64_t at[ROWS];
    const float *weights[ROWS];
    for (int i = 0; i < ROWS * ROW; i++) {
        x[i] = ow_random(&w);
        by[i] = ow_random(&w);
    }
    for (int r = 0; r < ROWS; r++) {
        at[r] = (r * 3 % ROWS) * ROW;
        weights[r] = by + r * ROW;
    }
    for (size_t n = 1; n <= ROW; n++)
        for (int kind = 0; kind < 4; kind++) {
            const float *const *given = kind >= 2 ? weights : NULL;
            const float *bias = kind == 3 ? by : NULL;
            nn_kernels_plain.window(x, at, ROWS, given, bias, kind == 0, 0.25f, a, n);
            k->window(x, at, ROWS, given, bias, kind == 0, 0.25f, b, n);
            for (size_t i = 0; i < n; i++) {
                float wanted = kind == 0 ? x[at[0] + (int64_t)i] : kind == 3 ? by[i] : 0;
                for (int r = 0; r < ROWS; r++) {
                    float v = x[at[r] + (int64_t)i];
                    wanted = kind == 0   ? fmaxf(wanted, v)
                             : kind == 1 ? wanted + v * 0.25f
                                         : wanted + v * weights[r][i];
                }
                assert_true(fabsf(a[i] - wanted) < 1e-5f && fabsf(b[i] - wanted) < 1e-5f);
            }
        }
    float rows[4 * 9] = {0};
    k->copy(x, ROW, rows, 9, 4, 9);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(rows + i * 9, x + i * ROW, 9 * sizeof *x);
}

TEST(all_sets_of_instructions_give_what_plain_loops_give)
{
    __builtin_cpu_init();
    kernels_check(nn_kernels_choose());
    windows_check(nn_kernels_choose());
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        kernels_check(&nn_kernels_avx2);
        windows_check(&nn_kernels_avx2);
    }
}

TEST(views_of_any_order_are_copied_and_summed)
{
    /* [3, 5, 40] read as [40, 3, 5], and summed over its middle. */
    enum { A = 3, B = 5, C = 40 };
    float x[A * B * C], out[A * B * C], sums[A * C];
    for (int i = 0; i < A * B * C; i++)
        x[i] = (float)i;
    struct nn_view from = {3, {C, A, B}, {1, B * C, C}}, to = {3, {C, A, B}, {0}};
    nn_view_dense(&to);
    const struct nn_view *views[] = {&to, &from};
    struct nn_loop loop = nn_loop_make(views, 2);
    nn_loop_copy(nn_kernels_choose(), &loop, out, x);
    for (int c = 0; c < C; c++)
        for (int a = 0; a < A; a++)
            for (int b = 0; b < B; b++)
                assert_true(out[(c * A + a) * B + b] == x[(a * B + b) * C + c]);
    struct nn_view whole = {3, {A, B, C}, {B * C, C, 1}}, few = {3, {A, 1, C}, {C, C, 1}};
    struct nn_reduction r = nn_reduction_make(&whole, &few, (bool[NN_DIMS]){false, true});
    r.scale = 0.5f;
    nn_reduce(nn_kernels_choose(), &r, sums, x);
    for (int a = 0; a < A; a++)
        for (int c = 0; c < C; c++) {
            float sum = 0;
            for (int b = 0; b < B; b++)
                sum += x[(a * B + b) * C + c];
            assert_true(sums[a * C + c] == sum / 2);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_agrees_with_the_reference_in_every_size),
        cmocka_unit_test(a_cut_graph_gives_the_same_bits),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits_whole_and_cut),
        cmocka_unit_test(softplus_keeps_the_bits_of_what_is_small_and_passes_on_what_is_no_number),
        cmocka_unit_test(a_graph_cut_before_any_step_or_all_of_them_gives_the_same_bits),
        cmocka_unit_test(a_profile_has_what_each_layer_takes_and_hands_on),
        cmocka_unit_test(sizes_that_depend_on_what_inputs_hold_are_left_to_the_reference),
        cmocka_unit_test(what_does_not_fit_is_named_and_leaves_no_output),
        cmocka_unit_test(memory_beyond_the_limit_is_refused),
        cmocka_unit_test(all_sets_of_instructions_give_what_plain_loops_give),
        cmocka_unit_test(views_of_any_order_are_copied_and_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
