/* One operator at a time on every backend that this CPU has: values come from the test, results go
 * back to it. */
#ifndef HP_TESTS_UNIT_AGENT_BACKEND_OPERATOR_FIXTURE_H
#define HP_TESTS_UNIT_AGENT_BACKEND_OPERATOR_FIXTURE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "common/env.h"
#include "tests/test.h"

/* The specification, and each set of the cpu backend's kernels. */
static const struct device_config op_devices[] = {
    {.backend = "plain"},
    {.backend = "cpu", .kernels = "avx2", .n_threads = 1},
    {.backend = "cpu", .kernels = "avx512", .n_threads = 3},
    {.backend = "cpu", .kernels = "avx512_bf16", .n_threads = 2},
};
enum { OP_DEVICES = sizeof op_devices / sizeof *op_devices };

/* NULL where the CPU lacks it. */
static inline struct device *op_device(int i)
{
    struct device *d = NULL;
    struct err e = {0};
    if (device_open(&op_devices[i], &d, &e) < 0 && e.code != HP_EDEVICE)
        fail_msg("%s", e.text);
    return d;
}

static inline float *op_random(size_t n, uint64_t seed, float scale)
{
    float *out = calloc(n + 1, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(random_unit(&seed) * 2 - 1) * scale;
    return out;
}

/* Rows of an input or of the result. */
struct op_rows {
    const float *data;
    size_t rows, width;
};

static inline struct tensor op_tensor(struct device *d, struct stream *s, const struct op_rows *r)
{
    struct memory m;
    struct err e = {0};
    if (d->backend->memory_alloc(d, r->rows * r->width * sizeof(float), &m, &e) < 0)
        fail_msg("%s", e.text);
    struct tensor t = tensor_rows(m, DTYPE_F32, r->rows, r->width),
                  host = tensor_on_host(r->data, DTYPE_F32, r->rows, r->width);
    if (r->data)
        d->backend->copy(s, &t, &host);
    return t;
}

struct op_weight {
    const struct weight *w;
    enum weight_use use;
};

/* Runs the operator once on inputs [n_inputs] and weights [OP_WEIGHTS_MAX] (NULL: none); `out`
 * takes the result. Products are in float32. */
static inline void op_run_once(struct device *d, const struct graph_op *op,
                               const struct op_rows *inputs, const struct op_weight *weights,
                               const struct op_batch *batch, float *out, size_t rows, size_t width)
{
    const struct backend *b = d->backend;
    struct stream *s;
    struct err e = {0};
    struct device_weight *loaded[OP_WEIGHTS_MAX] = {0};
    const struct weight *list[OP_WEIGHTS_MAX] = {0};
    struct graph_op row = *op; /* as a graph would have it */
    struct op_request request = {.op = &row};
    struct device_op *ready;
    struct tensor in[OP_INPUTS_MAX];
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    for (int i = 0; weights && i < OP_WEIGHTS_MAX; i++) {
        if (weights[i].w &&
            b->weight_load(d, weights[i].w, weights[i].use, true, &loaded[i], &e) < 0)
            fail_msg("%s", e.text);
        request.weights[i] = loaded[i];
        list[i] = weights[i].w;
    }
    row.weights = list;
    for (int i = 0; i < op->n_inputs; i++)
        in[i] = op_tensor(d, s, &inputs[i]);
    struct tensor to = op_tensor(d, s, &(struct op_rows){NULL, rows, width});
    if (b->op_prepare(d, &request, &ready, &e) < 0)
        fail_msg("%s", e.text);
    b->op_run(s, ready, in, &to, batch);
    struct tensor host = tensor_on_host(out, DTYPE_F32, rows, width);
    b->copy(s, &host, &to);
    if (b->stream_wait(s, &e) < 0)
        fail_msg("%s", e.text);
    b->op_release(&ready);
    b->memory_release(d, &to.memory);
    for (int i = 0; i < op->n_inputs; i++)
        b->memory_release(d, &in[i].memory);
    for (int i = 0; i < OP_WEIGHTS_MAX; i++)
        if (loaded[i])
            b->weight_free(d, &loaded[i]);
    b->stream_destroy(&s);
}

/* Within `bound` of the greatest of what is wanted, or of 1. */
static inline void op_near(const struct device *d, const float *got, const double *want, size_t n,
                           double bound)
{
    double greatest = 1;
    for (size_t i = 0; i < n; i++)
        greatest = fmax(greatest, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= bound * greatest))
            fail_msg("%s: element %zu is %g instead of %g", d->backend->device_describe(d), i,
                     (double)got[i], want[i]);
}

#endif
