/* The plain backend's operators: one row a kind, one loop an operator. */
#include <stdlib.h>
#include <string.h>

#include "agent/backend/plain/loops.h"
#include "agent/backend/plain/plain_int.h"

typedef void (*plain_op_fn)(const struct plain_op *op, const struct tensor *in,
                            const struct tensor *out, const struct op_batch *batch);

static const struct plain_weight *weight_of(const struct plain_op *op, int i)
{
    return (const struct plain_weight *)op->request.weights[i];
}

static uint32_t index_of(const struct tensor *t, uint64_t r)
{
    return *(const uint32_t *)tensor_row(t, r);
}

static void run_embed(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                      const struct op_batch *batch)
{
    const struct weight *table = weight_of(op, 0)->source;
    const struct op_embed *how = &op->request.op->u.embed;
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++) {
        uint64_t row = (uint64_t)how->first + (how->same ? 0 : index_of(&in[0], r));
        dtype_info(table->dtype)
            ->to_f32(table->data + row * (table->bytes / table->shape[0]), tensor_width(out),
                     tensor_row(out, r));
    }
}

static void run_rows(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                     const struct op_batch *batch)
{
    (void)op, (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        memcpy(tensor_row(out, r), tensor_row(&in[0], index_of(&in[1], r)),
               tensor_width(out) * sizeof(float));
}

static void run_rms_norm(const struct plain_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    uint64_t part = weight_of(op, 0)->source->shape[0];
    for (uint64_t r = 0; r < out->shape[0]; r++)
        for (uint64_t i = 0; i < tensor_width(out); i += part)
            loop_rms_norm((const float *)tensor_row(&in[0], r) + i, weight_of(op, 0)->vector,
                          op->request.op->u.norm.epsilon, part, (float *)tensor_row(out, r) + i);
}

static void run_layer_norm(const struct plain_op *op, const struct tensor *in,
                           const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        loop_layer_norm(tensor_row(&in[0], r), weight_of(op, 0)->vector, weight_of(op, 1)->vector,
                        op->request.op->u.norm.epsilon, tensor_width(out), tensor_row(out, r));
}

/* Output c of a matrix that lies as [inputs, outputs]. */
static void turned_dot(const struct weight *w, uint64_t c, const float *x, float *sum)
{
    float value, part = 0;
    size_t bytes = dtype_info(w->dtype)->block_bytes;
    for (uint64_t i = 0; i < w->shape[0]; i++) {
        dtype_info(w->dtype)->to_f32(w->data + (i * w->shape[1] + c) * bytes, 1, &value);
        part += x[i] * value;
    }
    *sum += part;
}

/* One output: product, addend and bias are added in this order. */
static void run_matmul(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                       const struct op_batch *batch)
{
    const struct weight *w = weight_of(op, 0)->source;
    const float *bias = weight_of(op, 1) ? weight_of(op, 1)->vector : NULL;
    bool adds = op->request.op->n_inputs > 1;
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++) {
        float *to = tensor_row(out, r);
        for (uint64_t c = 0; c < tensor_width(out); c++) {
            float sum = adds ? ((const float *)tensor_row(&in[1], r))[c] : 0;
            if (weight_of(op, 0)->use == WEIGHT_MATMUL_TURNED)
                turned_dot(w, c, tensor_row(&in[0], r), &sum);
            else
                loop_dot(w->dtype, tensor_row(&in[0], r), w->data + c * (w->bytes / w->shape[0]),
                         tensor_width(&in[0]), &sum);
            to[c] = bias ? sum + bias[c] : sum;
        }
    }
}

static void run_rope_angles(const struct plain_op *op, const struct tensor *in,
                            const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    loop_rope_angles(op->request.op->u.rope.config, tensor_row(&in[0], 0), out->shape[0],
                     tensor_row(out, 0));
}

static void run_rope(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                     const struct op_batch *batch)
{
    const struct op_rope *rope = &op->request.op->u.rope;
    size_t width = tensor_width(out);
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++) {
        memmove(tensor_row(out, r), tensor_row(&in[0], r), width * sizeof(float));
        loop_rope(rope->config, tensor_row(&in[1], r), (int)width / rope->head_dim, rope->head_dim,
                  (float *)tensor_row(out, r) + rope->first);
    }
}

static void run_silu_mul(const struct plain_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch)
{
    (void)op, (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        loop_silu_mul(tensor_row(&in[0], r), tensor_row(&in[1], r), tensor_width(out),
                      tensor_row(out, r));
}

static void run_gelu(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                     const struct op_batch *batch)
{
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        (op->request.op->u.gelu.exact ? loop_gelu_exact : loop_gelu)(
            tensor_row(&in[0], r), tensor_width(out), tensor_row(out, r));
}

static void run_add(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                    const struct op_batch *batch)
{
    (void)op, (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++) {
        const float *a = tensor_row(&in[0], r), *b = tensor_row(&in[1], r);
        float *sum = tensor_row(out, r);
        for (uint64_t i = 0; i < tensor_width(out); i++)
            sum[i] = a[i] + b[i];
    }
}

static void run_mul(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                    const struct op_batch *batch)
{
    (void)op, (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++) {
        const float *a = tensor_row(&in[0], r), *b = tensor_row(&in[1], r);
        float *product = tensor_row(out, r);
        for (uint64_t i = 0; i < tensor_width(out); i++)
            product[i] = a[i] * b[i];
    }
}

static void run_scale(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                      const struct op_batch *batch)
{
    float factor = op->request.op->u.number.value;
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++) {
        const float *x = tensor_row(&in[0], r);
        float *to = tensor_row(out, r);
        for (uint64_t i = 0; i < tensor_width(out); i++)
            to[i] = x[i] * factor;
    }
}

static void run_soft_cap(const struct plain_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        loop_soft_cap(tensor_row(&in[0], r), op->request.op->u.number.value, tensor_width(out),
                      tensor_row(out, r));
}

static const plain_op_fn ops[OP_KIND_COUNT] = {
    [OP_EMBED] = run_embed,
    [OP_ROWS] = run_rows,
    [OP_RMS_NORM] = run_rms_norm,
    [OP_MATMUL] = run_matmul,
    [OP_ROPE_ANGLES] = run_rope_angles,
    [OP_ROPE] = run_rope,
    [OP_ATTENTION] = plain_attention,
    [OP_LAYER_NORM] = run_layer_norm,
    [OP_SILU_MUL] = run_silu_mul,
    [OP_GELU] = run_gelu,
    [OP_ADD] = run_add,
    [OP_MUL] = run_mul,
    [OP_SCALE] = run_scale,
    [OP_SOFT_CAP] = run_soft_cap,
    [OP_ROUTE] = plain_route,
    [OP_EXPERT_MATMUL] = plain_expert_matmul,
    [OP_HEAD_MATMUL] = plain_head_matmul,
    [OP_JOIN_HEADS] = plain_join_heads,
    [OP_EXPERT_SUM] = plain_expert_sum,
    [OP_GATE_ROWS] = plain_gate_rows,
    [OP_CLAMPED_SWIGLU] = plain_clamped_swiglu,
};

bool plain_op_supports(enum op_kind kind, enum dtype weight)
{
    return (unsigned)kind < OP_KIND_COUNT && ops[kind] && weight < DTYPE_WEIGHT_COUNT;
}

int plain_op_prepare(struct device *d, const struct op_request *r, struct device_op **out,
                     struct err *e)
{
    int rc = backend_require(d->backend, r->op, e);
    if (rc < 0)
        return rc;
    struct plain_op *op = malloc(sizeof *op);
    if (!op)
        return err_set(e, HP_ENOMEM, "no memory for an operator");
    op->request = *r;
    *out = (struct device_op *)op;
    return 0;
}

void plain_op_release(struct device_op **op)
{
    free(*op);
    *op = NULL;
}

void plain_op_run(struct stream *s, const struct device_op *op, const struct tensor *in,
                  const struct tensor *out, const struct op_batch *batch)
{
    (void)s;
    const struct plain_op *own = (const struct plain_op *)op;
    ops[own->request.op->kind](own, in, out, batch);
}
