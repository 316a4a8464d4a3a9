/* Networks of language models: what of their weights a part holds and a profile counts, and what
 * comes from elsewhere and is not believed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/backend/cpu/threads.h"
#include "agent/engine/network/network_part.h"
#include "agent/engine/network/network_profile.h"
#include "agent/engine/network/network_rows.h"
#include "common/doubles.h"
#include "model/text_network.h"
#include "tests/test.h"
#include "tests/unit/model/tiny_gguf.h"

enum { TOKENS = 8, MATRICES = 2 * TINY_VOCABULARY * TINY_WIDTH + TINY_BLOCKS * 9216 };

static const struct network_dim tokens[] = {{"tokens", TOKENS}};

static struct onnx_network *tiny_open(enum dtype dtype)
{
    struct onnx_network *n = NULL;
    struct err e = {0};
    const char *path = tiny_llama_write(dtype);
    if (text_network_open(path, UINT32_MAX, &n, &e) < 0)
        fail_msg("%s", e.text);
    unlink(path);
    return n;
}

static double params_of(enum dtype dtype, int *n_layers)
{
    struct network_profile p;
    struct err e = {0};
    struct onnx_network *n = tiny_open(dtype);
    const struct network_profile_ask ask = {
        .env = &env_real, .batches = {1}, .n_batches = 1, .dims = tokens, .n_dims = 1, .spread = 1};
    if (network_profile_measure(n, &ask, &p, &e) < 0)
        fail_msg("%s", e.text);
    double bytes = 0;
    for (int i = 0; i < p.n_layers; i++) {
        bytes += (double)p.layers[i].param_bytes;
        assert_true(p.layers[i].activation_bytes > 0);
    }
    *n_layers = p.n_layers;
    network_profile_free(&p);
    network_close(&n);
    return bytes;
}

TEST(a_profile_counts_matrices_as_they_are_kept)
{
    int plain, blocks;
    double f32 = params_of(DTYPE_F32, &plain), f16 = params_of(DTYPE_F16, &blocks),
           q8 = params_of(DTYPE_Q8_0, &blocks);
    assert_true(f16 - q8 == MATRICES * (2 - 34.0 / 32));
    assert_true(f32 - q8 == MATRICES * (4 - 34.0 / 32));
    assert_true(plain > 10 && blocks > 10);
}

/* Of the weights half, and the values of a batch. */
static uint64_t half_of(const struct network_profile *p, uint64_t batch)
{
    uint64_t weights = 0, values = 0;
    for (int i = 0; i < p->n_layers; i++) {
        weights += p->layers[i].param_bytes;
        values = p->layers[i].activation_bytes > values ? p->layers[i].activation_bytes : values;
    }
    return weights / 2 + 2 * batch * values;
}

/* What is held of it at once is a part; what is said of it is the same. */
TEST(a_network_that_is_not_held_whole_is_measured_section_by_section)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_Q8_0};
    for (int d = 0; d < 2; d++) {
        const char *path = tiny_llama_write(dtypes[d]);
        struct network_profile made[2];
        struct err e = {0};
        uint64_t limit = UINT32_MAX;
        for (int i = 0; i < 2; i++) {
            struct onnx_network *n = NULL;
            const struct network_profile_ask ask = {.env = &env_real,
                                                    .batches = {1, 2},
                                                    .n_batches = 2,
                                                    .dims = tokens,
                                                    .n_dims = 1,
                                                    .spread = 1};
            if (text_network_open(path, limit, &n, &e) < 0 ||
                network_profile_measure(n, &ask, &made[i], &e) < 0)
                fail_msg("%s", e.text);
            network_close(&n);
            limit = half_of(&made[i], 2);
        }
        assert_int_equal(made[0].n_sections, 1);
        assert_true(made[1].n_sections > 1);
        assert_int_equal(made[0].n_layers, made[1].n_layers);
        for (int k = 0; k < made[0].n_layers; k++) {
            assert_true(made[0].layers[k].param_bytes == made[1].layers[k].param_bytes);
            assert_true(made[0].layers[k].output_bytes == made[1].layers[k].output_bytes);
            for (int b = 0; b < 2; b++)
                assert_true(made[1].seconds[k * 2 + b] > 0);
        }
        for (int b = 0; b < 2; b++)
            assert_true(made[1].runs[b].n_runs >= 11 && made[1].runs[b].whole_s > 0 &&
                        made[1].runs[b].sum_s > 0);
        for (int i = 0; i < 2; i++)
            network_profile_free(&made[i]);
        unlink(path);
    }
}

static struct network_part *part_of(enum dtype dtype, int n_blocks, int first, int end,
                                    struct threads *threads)
{
    const struct network_part_ask ask = {tokens, 1, n_blocks, NULL, first, end,
                                         2,      1, threads,  NULL, NULL};
    struct onnx_network *n = tiny_open(dtype);
    struct network_part *p = NULL;
    struct err e = {0};
    if (network_part_open(&n, &ask, &p, &e) < 0)
        fail_msg("%s", e.text);
    return p;
}

/* With values of 16 rows beside them, which are less than the matrices of one half. */
TEST(a_part_holds_the_matrices_of_its_blocks_alone)
{
    for (int i = 0; i < 2; i++) {
        enum dtype dtype = i ? DTYPE_Q8_0 : DTYPE_F16;
        struct network_part *whole = part_of(dtype, 8, 0, 8, NULL),
                            *some = part_of(dtype, 8, 3, 4, NULL);
        uint64_t all = i ? MATRICES * 34 / 32 : MATRICES * 2;
        assert_true(network_part_bytes(whole) > all);
        assert_true(network_part_bytes(some) < network_part_bytes(whole) - all / 2);
        network_part_close(&whole);
        network_part_close(&some);
    }
}

/* Of products by panels, and of those that the device does. */
TEST(products_on_several_threads_give_the_bits_of_one)
{
    enum { ROWS = 100, OUTPUTS = 700, INPUTS = 256 };
    static float weights[OUTPUTS * INPUTS], x[ROWS * INPUTS], made[2][ROWS * OUTPUTS];
    uint64_t random = 3;
    for (int i = 0; i < OUTPUTS * INPUTS; i++)
        weights[i] = (float)random_unit(&random) - 0.5F;
    for (int i = 0; i < ROWS * INPUTS; i++)
        x[i] = (float)random_unit(&random) - 0.5F;
    static uint16_t halves[OUTPUTS * INPUTS];
    for (int i = 0; i < OUTPUTS * INPUTS; i++)
        halves[i] = dtype_f32_to_bf16(weights[i]);
    const struct weight w = {.name = "w",
                             .dtype = DTYPE_BF16,
                             .n_dims = 2,
                             .shape = {OUTPUTS, INPUTS},
                             .bytes = sizeof halves,
                             .file = -1,
                             .data = (const uint8_t *)halves};
    const struct weight *list[] = {&w};
    static const struct graph_dim in_dims[] = {{0, 0}, {INPUTS, 0}},
                                  out_dims[] = {{0, 0}, {OUTPUTS, 0}};
    const struct graph_value values[] = {{"x", DTYPE_F32, VALUE_MADE, 2, in_dims, false},
                                         {"y", DTYPE_F32, VALUE_MADE, 2, out_dims, false}};
    static const int inputs[] = {0}, outputs[] = {1};
    const struct graph graph = {.values = values, .n_values = 2};
    const struct graph_op op = {.kind = OP_MATMUL,
                                .n_inputs = 1,
                                .n_outputs = 1,
                                .n_weights = 1,
                                .inputs = inputs,
                                .outputs = outputs,
                                .weights = list};
    const struct onnx_rows o = {&graph, &op};
    const void *in[] = {x};
    static const int64_t rows[] = {ROWS, 8, 1};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        for (int t = 0; t < 2; t++) {
            struct network_rows *r = NULL;
            struct threads *threads = NULL;
            struct nn *nn;
            struct err e = {0};
            assert_int_equal(threads_create(t ? 3 : 1, NULL, 0, &threads, &e), 0);
            assert_int_equal(nn_create(threads, &nn, &e), 0);
            assert_int_equal(network_rows_create(UINT32_MAX, NULL, NULL, &r, &e), 0);
            assert_int_equal(network_rows_load(r, nn, &o, &e), 0);
            assert_int_equal(network_rows_run(r, nn, &o, in, rows[k], made[t], &e), 0);
            network_rows_destroy(&r);
            nn_destroy(&nn);
            threads_destroy(&threads);
        }
        assert_memory_equal(made[0], made[1], (size_t)rows[k] * OUTPUTS * sizeof(float));
        double sum = 0;
        for (int i = 0; i < INPUTS; i++) {
            uint32_t bits = (uint32_t)halves[(OUTPUTS - 1) * INPUTS + i] << 16;
            float f;
            memcpy(&f, &bits, sizeof f);
            sum += (double)x[(rows[k] - 1) * INPUTS + i] * (double)f;
        }
        assert_true(fabs(sum - (double)made[0][rows[k] * OUTPUTS - 1]) < 1e-4);
    }
}

static const struct onnx_rows *rows_find(const struct onnx_network *n, enum op_kind kind)
{
    const struct onnx *o = network_onnx(n);
    for (int i = 0; i < o->n_values; i++) {
        const struct onnx_rows *r = onnx_rows_of(o->values[i].weight);
        if (r && r->op->kind == kind)
            return r;
    }
    fail_msg("no such operator");
    return NULL;
}

/* Operators by themselves, on one thread. */
struct rows_scene {
    struct nn *nn;
    struct network_rows *rows;
};

static struct rows_scene rows_scene_open(uint64_t limit_bytes)
{
    struct rows_scene s;
    struct err e = {0};
    assert_int_equal(nn_create(NULL, &s.nn, &e), 0);
    assert_int_equal(network_rows_create(limit_bytes, NULL, NULL, &s.rows, &e), 0);
    return s;
}

static void rows_scene_close(struct rows_scene *s)
{
    network_rows_destroy(&s->rows);
    nn_destroy(&s->nn);
}

TEST(weights_beyond_the_limit_are_refused_with_the_bytes_that_are_missing)
{
    struct onnx_network *n = tiny_open(DTYPE_Q8_0);
    struct err e = {0};
    struct rows_scene s = rows_scene_open(100);
    assert_int_equal(network_rows_load(s.rows, s.nn, rows_find(n, OP_MATMUL), &e), HP_ENOMEM);
    if (!strstr(e.text, "bytes"))
        fail_msg("\"%s\" says nothing of bytes", e.text);
    assert_int_equal(network_rows_bytes(s.rows), 0);
    rows_scene_close(&s);
    network_close(&n);
}

TEST(ids_that_are_none_and_operators_of_another_part_are_refused)
{
    static const int64_t ids[] = {1, TINY_VOCABULARY, -1};
    float row[TINY_WIDTH];
    struct onnx_network *n = tiny_open(DTYPE_Q8_0);
    struct err e = {0};
    struct rows_scene s = rows_scene_open(UINT32_MAX);
    const struct onnx_rows *table = rows_find(n, OP_EMBED);
    const void *in[] = {ids};
    assert_int_equal(network_rows_run(s.rows, s.nn, table, in, 1, row, &e), HP_EBUG);
    assert_int_equal(network_rows_load(s.rows, s.nn, table, &e), 0);
    assert_int_equal(network_rows_run(s.rows, s.nn, table, in, 1, row, &e), 0);
    for (int i = 1; i < 3; i++) {
        in[0] = &ids[i];
        assert_int_equal(network_rows_run(s.rows, s.nn, table, in, 1, row, &e), HP_EINVAL);
    }
    rows_scene_close(&s);
    network_close(&n);
}

/* What rows take may come from another machine. */
TEST(experts_that_there_are_not_are_refused)
{
    static const float routes[][2] = {{2, 1}, {-1, 1}, {NAN, 1}, {1e30F, 1}};
    struct weight part = {.name = "p", .dtype = DTYPE_F32, .n_dims = 2, .shape = {4, 4}};
    float zeros[16] = {0}, out[4];
    part.data = (const uint8_t *)zeros;
    part.file = -1;
    part.bytes = sizeof zeros;
    const struct weight *parts[] = {&part, &part};
    struct weight stack = {.name = "s",
                           .dtype = DTYPE_F32,
                           .n_dims = 3,
                           .shape = {2, 4, 4},
                           .parts = parts,
                           .n_parts = 2,
                           .n_parts_used = 1};
    const struct weight *weights[] = {&stack};
    static const struct graph_dim four[] = {{0, 0}, {4, 0}}, two[] = {{0, 0}, {2, 0}};
    const struct graph_value values[] = {{"x", DTYPE_F32, VALUE_MADE, 2, four, false},
                                         {"route", DTYPE_F32, VALUE_MADE, 2, two, true},
                                         {"y", DTYPE_F32, VALUE_MADE, 2, four, false}};
    static const int inputs[] = {0, 1}, outputs[] = {2};
    const struct graph graph = {.values = values, .n_values = 3};
    const struct graph_op op = {.kind = OP_EXPERT_MATMUL,
                                .n_inputs = 2,
                                .n_outputs = 1,
                                .n_weights = 1,
                                .inputs = inputs,
                                .outputs = outputs,
                                .weights = weights,
                                .u.experts.used = 1};
    const struct onnx_rows o = {&graph, &op};
    struct err e = {0};
    struct rows_scene s = rows_scene_open(UINT32_MAX);
    assert_int_equal(network_rows_load(s.rows, s.nn, &o, &e), 0);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const void *in[] = {zeros, routes[i]};
        assert_int_equal(network_rows_run(s.rows, s.nn, &o, in, 1, out, &e), HP_EINVAL);
    }
    const void *in[] = {zeros, (const float[]){1, 1}};
    assert_int_equal(network_rows_run(s.rows, s.nn, &o, in, 1, out, &e), 0);
    rows_scene_close(&s);
}

/* Whoever writes a file may name the operator, too. */
TEST(scores_are_hidden_behind_a_token_and_before_its_window_and_odd_ones_are_refused)
{
    static const struct {
        int64_t dims[4], window, group;
        int sinks, code;
    } cases[] = {
        {{1, 1, 6, 3}, 0, 2, 2, 0},          {{1, 1, 3, 3}, 2, 1, 0, 0},
        {{1, 1, 6, 3}, 0, 1, 0, -1},         {{1, 1, 3, 3}, -1, 1, 0, -1},
        {{0, 1, 3, 3}, 0, 1, 0, -1},         {{1, 1, 4, 4}, 0, INT64_MAX / 2, 0, -1},
        {{1, 1, 0, 0}, 0, INT64_MAX, 0, -1}, {{1, 1, 3, 3}, 0, 1, 2, -1},
    };
    float values[64], sinks[2] = {7, 8};
    for (int i = 0; i < 64; i++)
        values[i] = (float)i;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        struct ndarray x, s = {ND_F32, 1, {cases[i].sinks}, cases[i].sinks, sinks, false},
                          out = {0};
        assert_int_equal(ndarray_shape(&x, ND_F32, 4, cases[i].dims, &e), 0);
        x.data = values;
        const struct onnx_attribute how[] = {
            {.name = "window", .type = ONNX_INT, .u.i = cases[i].window},
            {.name = "group", .type = ONNX_INT, .u.i = cases[i].group}};
        const struct onnx_node node = {.op = "Causal", .attributes = how, .n_attributes = 2};
        const struct ndarray *in[] = {&x, cases[i].sinks ? &s : NULL};
        struct onnx_call c = {
            .node = &node, .in = in, .n_in = 2, .out = &out, .n_out = 1, .limit = 4096, .e = &e};
        int rc = onnx_run_causal(&c);
        assert_int_equal(rc < 0 ? -1 : 0, cases[i].code);
        const float *made = out.data;
        int64_t columns = cases[i].dims[3] + (cases[i].sinks ? 1 : 0);
        for (int64_t r = 0; rc == 0 && r < cases[i].dims[2]; r++)
            for (int64_t k = 0; k < columns; k++) {
                int64_t own = r % 3, first = onnx_causal_first(own, cases[i].window);
                float wanted = k == 3                   ? sinks[r / 3]
                               : k >= first && k <= own ? values[r * 3 + k]
                                                        : ONNX_CAUSAL_HIDDEN;
                assert_true(made[r * columns + k] == wanted);
            }
        ndarray_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_counts_matrices_as_they_are_kept),
        cmocka_unit_test(a_network_that_is_not_held_whole_is_measured_section_by_section),
        cmocka_unit_test(a_part_holds_the_matrices_of_its_blocks_alone),
        cmocka_unit_test(products_on_several_threads_give_the_bits_of_one),
        cmocka_unit_test(weights_beyond_the_limit_are_refused_with_the_bytes_that_are_missing),
        cmocka_unit_test(ids_that_are_none_and_operators_of_another_part_are_refused),
        cmocka_unit_test(experts_that_there_are_not_are_refused),
        cmocka_unit_test(
            scores_are_hidden_behind_a_token_and_before_its_window_and_odd_ones_are_refused),
    };
    return cmocka_run_group_tests_name("network_text", tests, NULL, NULL);
}
