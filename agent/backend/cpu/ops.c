/* The CPU's operators: one row a kind. Products and attention have files of their own; what goes
 * row by row is here. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/rows.h"
#include "agent/backend/plain/loops.h"

static const struct cpu_kernels *kernels_of(const struct rows_job *job)
{
    return job->stream->device->kernels;
}

/* ---- rows of tables ---- */

static void run_embed(struct stream *s, const struct device_op *op, const struct tensor *in,
                      const struct tensor *out, const struct op_batch *batch)
{
    const struct device_weight *table = op->weights[0];
    const struct op_embed *how = &op->op->u.embed;
    (void)batch;
    assert(table->form == FORM_IN_PLACE && tensor_width(out) == table->columns);
    for (uint64_t r = 0; r < out->shape[0]; r++) {
        uint32_t id = (uint32_t)how->first;
        id += how->same ? 0 : *(const uint32_t *)tensor_row(&in[0], r);
        assert(id < table->rows);
        kernels_unpack(s->device->kernels, table->dtype, table->data + id * table->row_bytes,
                       table->columns, tensor_row(out, r));
    }
}

static void run_rows(struct stream *s, const struct device_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    (void)s, (void)op, (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        memcpy(tensor_row(out, r), tensor_row(&in[0], *(const uint32_t *)tensor_row(&in[1], r)),
               tensor_width(out) * sizeof(float));
}

/* ---- norms ---- */

static void norm_rows(const struct rows_job *job, size_t begin, size_t end)
{
    for (size_t r = begin; r < end; r++)
        norm_row_make(kernels_of(job), job->op, tensor_row(&job->in[0], r), tensor_width(job->out),
                      tensor_row(job->out, r));
}

static void run_norm(struct stream *s, const struct device_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    rows_spread(s, op, in, out, batch, norm_rows);
}

/* ---- rotation ---- */

static void run_rope_angles(struct stream *s, const struct device_op *op, const struct tensor *in,
                            const struct tensor *out, const struct op_batch *batch)
{
    (void)s, (void)batch;
    loop_rope_angles(op->op->u.rope.config, tensor_row(&in[0], 0), out->shape[0],
                     tensor_row(out, 0));
}

static void rope_rows(const struct rows_job *job, size_t begin, size_t end)
{
    const struct op_rope *rope = &job->op->op->u.rope;
    size_t heads = tensor_width(job->out) / (size_t)rope->head_dim;
    for (size_t r = begin; r < end; r++)
        rope_row_make(kernels_of(job), rope, tensor_row(&job->in[1], r), heads,
                      tensor_row(&job->in[0], r), tensor_row(job->out, r));
}

static void run_rope(struct stream *s, const struct device_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    rows_spread(s, op, in, out, batch, rope_rows);
}

/* ---- element by element ---- */

static void silu_mul_elements(const struct rows_job *job, size_t begin, size_t end)
{
    const float *gate = tensor_row(&job->in[0], 0), *up = tensor_row(&job->in[1], 0);
    kernels_of(job)->silu_mul(gate + begin, up + begin, end - begin,
                              (float *)tensor_row(job->out, 0) + begin);
}

static void run_silu_mul(struct stream *s, const struct device_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    elements_spread(s, op, in, out, silu_mul_elements);
}

static void gelu_elements(const struct rows_job *job, size_t begin, size_t end)
{
    const struct cpu_kernels *k = kernels_of(job);
    (job->op->op->u.gelu.exact ? k->gelu_exact
                               : k->gelu)((const float *)tensor_row(&job->in[0], 0) + begin,
                                          end - begin, (float *)tensor_row(job->out, 0) + begin);
}

static void run_gelu(struct stream *s, const struct device_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    elements_spread(s, op, in, out, gelu_elements);
}

static void add_elements(const struct rows_job *job, size_t begin, size_t end)
{
    const float *a = tensor_row(&job->in[0], 0), *b = tensor_row(&job->in[1], 0);
    float *sum = tensor_row(job->out, 0);
    for (size_t i = begin; i < end; i++)
        sum[i] = a[i] + b[i];
}

static void run_add(struct stream *s, const struct device_op *op, const struct tensor *in,
                    const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    elements_spread(s, op, in, out, add_elements);
}

static void mul_elements(const struct rows_job *job, size_t begin, size_t end)
{
    const float *a = tensor_row(&job->in[0], 0), *b = tensor_row(&job->in[1], 0);
    float *product = tensor_row(job->out, 0);
    for (size_t i = begin; i < end; i++)
        product[i] = a[i] * b[i];
}

static void run_mul(struct stream *s, const struct device_op *op, const struct tensor *in,
                    const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    elements_spread(s, op, in, out, mul_elements);
}

static void scale_elements(const struct rows_job *job, size_t begin, size_t end)
{
    const float *x = tensor_row(&job->in[0], 0);
    float *to = tensor_row(job->out, 0), factor = job->op->op->u.number.value;
    for (size_t i = begin; i < end; i++)
        to[i] = x[i] * factor;
}

static void run_scale(struct stream *s, const struct device_op *op, const struct tensor *in,
                      const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    elements_spread(s, op, in, out, scale_elements);
}

static void soft_cap_elements(const struct rows_job *job, size_t begin, size_t end)
{
    kernels_of(job)->soft_cap((const float *)tensor_row(&job->in[0], 0) + begin,
                              job->op->op->u.number.value, end - begin,
                              (float *)tensor_row(job->out, 0) + begin);
}

static void run_soft_cap(struct stream *s, const struct device_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    elements_spread(s, op, in, out, soft_cap_elements);
}

/* ---- the table ---- */

static const cpu_op_fn ops[OP_KIND_COUNT] = {
    [OP_EMBED] = run_embed,
    [OP_ROWS] = run_rows,
    [OP_RMS_NORM] = run_norm,
    [OP_MATMUL] = cpu_matmul,
    [OP_ROPE_ANGLES] = run_rope_angles,
    [OP_ROPE] = run_rope,
    [OP_ATTENTION] = cpu_attention,
    [OP_LAYER_NORM] = run_norm,
    [OP_SILU_MUL] = run_silu_mul,
    [OP_GELU] = run_gelu,
    [OP_ADD] = run_add,
    [OP_MUL] = run_mul,
    [OP_SCALE] = run_scale,
    [OP_SOFT_CAP] = run_soft_cap,
    [OP_ROUTE] = cpu_route,
    [OP_EXPERT_MATMUL] = cpu_expert_matmul,
    [OP_HEAD_MATMUL] = cpu_head_matmul,
    [OP_JOIN_HEADS] = cpu_join_heads,
    [OP_EXPERT_SUM] = cpu_expert_sum,
    [OP_GATE_ROWS] = cpu_gate_rows,
    [OP_CLAMPED_SWIGLU] = cpu_clamped_swiglu,
};

bool cpu_op_supports(enum op_kind kind, enum dtype weight)
{
    return (unsigned)kind < OP_KIND_COUNT && ops[kind] && weight < DTYPE_WEIGHT_COUNT;
}

int cpu_op_prepare(struct device *d, const struct op_request *r, struct device_op **out,
                   struct err *e)
{
    int rc = backend_require(d->backend, r->op, e);
    if (rc < 0)
        return rc;
    struct device_op *op = calloc(1, sizeof *op);
    if (!op)
        return err_set(e, HP_ENOMEM, "no memory for an operator");
    op->op = r->op;
    op->kv_group = r->kv_group;
    op->kv_block = r->kv_block;
    memcpy(op->weights, r->weights, sizeof op->weights);
    *out = op;
    return 0;
}

void cpu_op_release(struct device_op **op)
{
    free(*op);
    *op = NULL;
}

void cpu_op_run(struct stream *s, const struct device_op *op, const struct tensor *inputs,
                const struct tensor *outputs, const struct op_batch *batch)
{
    if (op->op->kind != OP_MATMUL)
        s->device->made.form = INPUTS_NONE;
    ops[op->op->kind](s, op, inputs, outputs, batch);
}
