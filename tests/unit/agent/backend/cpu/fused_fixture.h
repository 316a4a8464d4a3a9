/* A device with matrices in two formats, norms and memory for values, of a small layer. */
#ifndef HP_TESTS_UNIT_AGENT_BACKEND_CPU_FUSED_FIXTURE_H
#define HP_TESTS_UNIT_AGENT_BACKEND_CPU_FUSED_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "common/env.h"
#include "tests/test.h"
#include "tests/unit/agent/backend/weights.h"

enum {
    ROWS_MOST = 70,
    WIDTH = 256,
    HEAD_DIM = 64,
    HEADS = 4,
    KV_HEADS = 2,
    KV_WIDTH = KV_HEADS * HEAD_DIM,
    MLP = 512
};

enum together_value { X, NORMED, Q, K, V, ANGLES, MIXED, GATE, UP, QKV, KEYS, VALUES };
static const size_t widths[VALUES] = {WIDTH, WIDTH, WIDTH, KV_WIDTH, KV_WIDTH, HEAD_DIM,
                                      WIDTH, MLP,   MLP,   MLP,      KV_WIDTH};

enum together_matrix {
    NO_MATRIX,
    TO_Q,
    TO_K,
    TO_V,
    TO_O,
    TO_GATE,
    TO_UP,
    TO_DOWN,
    TO_QKV,
    MATRICES
};
static const struct {
    size_t outputs, inputs;
    int format; /* which of the two that a file mixes */
} matrices[MATRICES] = {
    [TO_Q] = {WIDTH, WIDTH, 0},  [TO_K] = {KV_WIDTH, WIDTH, 0}, [TO_V] = {KV_WIDTH, WIDTH, 1},
    [TO_O] = {WIDTH, WIDTH, 0},  [TO_GATE] = {MLP, WIDTH, 0},   [TO_UP] = {MLP, WIDTH, 0},
    [TO_DOWN] = {WIDTH, MLP, 1}, [TO_QKV] = {MLP, WIDTH, 0}};

static inline void floats_fill(float *out, size_t n, uint64_t seed, float size)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(random_unit(&seed) * 2 - 1) * size * (i % 97 == 5 ? 20 : 1);
}

/* Any bytes with scales that are sound. */
static inline void matrix_fill(enum dtype t, uint8_t *data, size_t n, uint64_t seed)
{
    const struct dtype_info *info = dtype_info(t);
    size_t bytes = dtype_bytes(t, n);
    if (info->block_elements == 1) {
        float *values = calloc(n, sizeof *values);
        assert_non_null(values);
        floats_fill(values, n, seed, 0.05f);
        info->from_f32(values, n, data);
        free(values);
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(random_unit(&seed) * 256);
    for (size_t at = 0; at < bytes; at += info->block_bytes)
        for (int i = 0; i < info->n_scales; i++) {
            uint16_t half = dtype_f32_to_f16((float)(random_unit(&seed) * 0.01));
            memcpy(data + at + info->scales_at + 2 * i, &half, sizeof half);
        }
}

/* ---- a device with all that operators read ---- */

struct together_bench {
    struct device *device;
    const struct backend *backend;
    struct stream *stream;
    struct device_weight *matrices[MATRICES], *norm, *head_norm, *bias;
    uint8_t *bytes[MATRICES];
    float numbers[MLP];
    struct memory values[VALUES];
};

static inline struct device_weight *loaded(const struct together_bench *b, const struct weight *w,
                                           enum weight_use use, bool f32)
{
    struct device_weight *out = NULL;
    struct err e = {0};
    if (b->backend->weight_load(b->device, w, use, f32, &out, &e) < 0)
        fail_msg("%s", e.text);
    return out;
}

static inline void bench_open(struct together_bench *b, struct device *d,
                              const enum dtype formats[2], bool f32)
{
    struct err e = {0};
    *b = (struct together_bench){.device = d, .backend = d->backend};
    floats_fill(b->numbers, MLP, 3, 1);
    for (int i = NO_MATRIX + 1; i < MATRICES; i++) {
        enum dtype t = formats[matrices[i].format];
        size_t n = matrices[i].outputs * matrices[i].inputs;
        b->bytes[i] = malloc(dtype_bytes(t, n));
        assert_non_null(b->bytes[i]);
        matrix_fill(t, b->bytes[i], n, (uint64_t)i);
        struct weight w = {.name = "matrix",
                           .dtype = t,
                           .format = dtype_info(t)->name,
                           .n_dims = 2,
                           .shape = {matrices[i].outputs, matrices[i].inputs},
                           .bytes = dtype_bytes(t, n),
                           .file = -1,
                           .data = b->bytes[i]};
        b->matrices[i] = loaded(b, &w, WEIGHT_MATMUL, f32);
    }
    struct weight norm = vector_make(b->numbers, WIDTH), head = vector_make(b->numbers, HEAD_DIM),
                  bias = vector_make(b->numbers, MLP);
    b->norm = loaded(b, &norm, WEIGHT_VECTOR, f32);
    b->head_norm = loaded(b, &head, WEIGHT_VECTOR, f32);
    b->bias = loaded(b, &bias, WEIGHT_VECTOR, f32);
    for (int i = 0; i < VALUES; i++)
        assert_int_equal(
            b->backend->memory_alloc(d, ROWS_MOST * widths[i] * sizeof(float), &b->values[i], &e),
            0);
    assert_int_equal(b->backend->stream_create(d, &b->stream, &e), 0);
}

static inline void bench_close(struct together_bench *b)
{
    for (int i = NO_MATRIX + 1; i < MATRICES; i++) {
        b->backend->weight_free(b->device, &b->matrices[i]);
        free(b->bytes[i]);
    }
    b->backend->weight_free(b->device, &b->norm);
    b->backend->weight_free(b->device, &b->head_norm);
    b->backend->weight_free(b->device, &b->bias);
    for (int i = 0; i < VALUES; i++)
        b->backend->memory_release(b->device, &b->values[i]);
    b->backend->stream_destroy(&b->stream);
}

#endif
