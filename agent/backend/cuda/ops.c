/* The cuda backend's operators: one row a kind. */
#include <math.h>
#include <stdlib.h>

#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

typedef void (*cuda_op_fn)(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                           const struct tensor *out, const struct op_batch *batch);

static const struct cuda_weight *weight_of(const struct cuda_op *op, int i)
{
    return (const struct cuda_weight *)op->request.weights[i];
}

static struct gpu_rows rows_of(const struct tensor *t)
{
    return (struct gpu_rows){tensor_row(t, 0), t->strides[0]};
}

static struct gpu_shape shape_of(const struct tensor *t)
{
    return (struct gpu_shape){(uint32_t)t->shape[0], (uint32_t)tensor_width(t)};
}

static void run_embed(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                      const struct tensor *out, const struct op_batch *batch)
{
    const struct op_embed *how = &op->request.op->u.embed;
    const struct cuda_weight *table = weight_of(op, 0);
    (void)batch;
    gpu_embed(s->stream, (int)table->dtype, table->data, table->row_bytes,
              how->same ? NULL : tensor_row(&in[0], 0), (uint32_t)how->first, rows_of(out),
              shape_of(out));
}

static void run_rows(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    (void)op, (void)batch;
    gpu_gather(s->stream, rows_of(&in[0]), tensor_row(&in[1], 0), rows_of(out), shape_of(out));
}

/* ---- norms ---- */

uint64_t cuda_norm_width(const struct cuda_op *op, const struct tensor *out)
{
    return op->request.op->kind == OP_RMS_NORM ? weight_of(op, 0)->shape[0] : tensor_width(out);
}

static struct gpu_norm norm_of(const struct cuda_op *op, const struct tensor *in,
                               const struct tensor *out)
{
    bool layer = op->request.op->kind == OP_LAYER_NORM;
    return (struct gpu_norm){.in = rows_of(in),
                             .out = rows_of(out),
                             .weight = weight_of(op, 0)->data,
                             .bias = layer ? weight_of(op, 1)->data : NULL,
                             .epsilon = op->request.op->u.norm.epsilon,
                             .part = (uint32_t)cuda_norm_width(op, out)};
}

static void run_norm(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    struct gpu_norm n = norm_of(op, in, out);
    (void)batch;
    n.formed = s->making;
    gpu_norm_run(s->stream, &n, shape_of(out));
}

void cuda_norm_run(struct cuda_stream *s, const struct cuda_op *op, const struct op_call *add,
                   const struct op_call *norm, const struct gpu_formed *formed)
{
    struct gpu_norm n = norm_of(op, &add->inputs[0], &norm->out);
    n.addend = rows_of(&add->inputs[1]);
    n.sum = rows_of(&add->out);
    n.formed = *formed;
    cuda_form_written(s, &add->out);
    cuda_form_written(s, &norm->out);
    gpu_norm_run(s->stream, &n, shape_of(&norm->out));
}

/* ---- rotation ---- */

static void run_rope_angles(struct cuda_stream *s, const struct cuda_op *op,
                            const struct tensor *in, const struct tensor *out,
                            const struct op_batch *batch)
{
    const struct rope_config *rope = op->request.op->u.rope.config;
    (void)batch;
    gpu_rope_angles(s->stream, op->frequencies, rope->magnitude != 0 ? (double)rope->magnitude : 1,
                    (uint32_t)rope->dims / 2, tensor_row(&in[0], 0), rows_of(out),
                    (uint32_t)out->shape[0]);
}

static struct gpu_rope rope_of(const struct cuda_op *op, const struct tensor *out)
{
    const struct op_rope *rope = &op->request.op->u.rope;
    uint32_t pairs = (uint32_t)rope->config->dims / 2, head_dim = (uint32_t)rope->head_dim;
    bool by_pairs = rope->config->style == ROPE_PAIRS;
    return (struct gpu_rope){.heads = (uint32_t)tensor_width(out) / head_dim,
                             .head_dim = head_dim,
                             .first = (uint32_t)rope->first,
                             .pairs = pairs,
                             .step = by_pairs ? 2 : 1,
                             .partner = by_pairs ? 1 : pairs};
}

static void run_rope(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    const struct gpu_rope how = rope_of(op, out);
    (void)batch;
    gpu_rope_run(s->stream, &how, rows_of(&in[0]), rows_of(&in[1]), rows_of(out),
                 (uint32_t)out->shape[0]);
}

struct gpu_turn cuda_turn_of(const struct op_call *q, const struct op_call *k)
{
    const struct op_call *both[2] = {q, k};
    struct gpu_turn turn;
    for (int i = 0; i < 2; i++) {
        turn.how[i] = rope_of((const struct cuda_op *)both[i]->op, &both[i]->out);
        turn.in[i] = rows_of(&both[i]->inputs[0]);
        turn.angles[i] = rows_of(&both[i]->inputs[1]);
        turn.out[i] = rows_of(&both[i]->out);
    }
    return turn;
}

/* ---- element by element ---- */

static void rowwise_put(struct cuda_stream *s, enum gpu_rowwise what, const struct tensor *a,
                        const struct tensor *b, const struct tensor *out, float p)
{
    const struct gpu_rowwise_call c = {.what = what,
                                       .a = rows_of(a),
                                       .b = b ? rows_of(b) : (struct gpu_rows){0},
                                       .out = rows_of(out),
                                       .p = p,
                                       .formed = s->making};
    gpu_rowwise_run(s->stream, &c, shape_of(out));
}

void cuda_gelu_mul_run(struct cuda_stream *s, const struct op_call *gelu, const struct tensor *by,
                       const struct op_call *mul, const struct gpu_formed *formed)
{
    const struct cuda_op *op = (const struct cuda_op *)gelu->op;
    bool apart = tensor_row(&gelu->out, 0) != tensor_row(&mul->out, 0);
    const struct gpu_rowwise_call c = {.what = op->request.op->u.gelu.exact ? GPU_GELU_EXACT_MUL
                                                                            : GPU_GELU_MUL,
                                       .a = rows_of(&gelu->inputs[0]),
                                       .b = rows_of(by),
                                       .first = apart ? rows_of(&gelu->out) : (struct gpu_rows){0},
                                       .out = rows_of(&mul->out),
                                       .formed = *formed};
    cuda_form_written(s, &gelu->out);
    cuda_form_written(s, &mul->out);
    gpu_rowwise_run(s->stream, &c, shape_of(&mul->out));
}

static void run_two(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                    const struct tensor *out, const struct op_batch *batch)
{
    static const enum gpu_rowwise whats[OP_KIND_COUNT] = {[OP_ADD] = GPU_ADD,
                                                          [OP_MUL] = GPU_MUL,
                                                          [OP_SILU_MUL] = GPU_SILU_MUL,
                                                          [OP_GATE_ROWS] = GPU_GATE};
    (void)batch;
    rowwise_put(s, whats[op->request.op->kind], &in[0], &in[1], out, 0);
}

static void run_number(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                       const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    rowwise_put(s, op->request.op->kind == OP_SCALE ? GPU_SCALE : GPU_SOFT_CAP, &in[0], NULL, out,
                op->request.op->u.number.value);
}

static void run_gelu(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    (void)batch;
    rowwise_put(s, op->request.op->u.gelu.exact ? GPU_GELU_EXACT : GPU_GELU, &in[0], NULL, out, 0);
}

static const cuda_op_fn ops[OP_KIND_COUNT] = {
    [OP_EMBED] = run_embed,
    [OP_ROWS] = run_rows,
    [OP_RMS_NORM] = run_norm,
    [OP_LAYER_NORM] = run_norm,
    [OP_MATMUL] = cuda_matmul_run,
    [OP_ROPE_ANGLES] = run_rope_angles,
    [OP_ROPE] = run_rope,
    [OP_ATTENTION] = cuda_attention_run,
    [OP_SILU_MUL] = run_two,
    [OP_GELU] = run_gelu,
    [OP_ADD] = run_two,
    [OP_MUL] = run_two,
    [OP_SCALE] = run_number,
    [OP_SOFT_CAP] = run_number,
    [OP_GATE_ROWS] = run_two,
    [OP_ROUTE] = cuda_route_run,
    [OP_EXPERT_MATMUL] = cuda_expert_matmul_run,
    [OP_EXPERT_SUM] = cuda_expert_sum_run,
    [OP_HEAD_MATMUL] = cuda_head_matmul_run,
    [OP_JOIN_HEADS] = cuda_join_heads_run,
    [OP_CLAMPED_SWIGLU] = cuda_clamped_swiglu_run,
};

bool cuda_op_supports(enum op_kind kind, enum dtype weight)
{
    return (unsigned)kind < OP_KIND_COUNT && ops[kind] && weight < DTYPE_WEIGHT_COUNT &&
           gpu_product_knows((int)weight);
}

bool cuda_op_forms(const struct cuda_op *op, const struct tensor *out)
{
    switch (op->request.op->kind) {
    case OP_RMS_NORM:
    case OP_LAYER_NORM: return cuda_norm_width(op, out) == tensor_width(out);
    case OP_SILU_MUL:
    case OP_MUL:
    case OP_ADD:
    case OP_GELU:
    case OP_GATE_ROWS: return true;
    default: return false;
    }
}

/* What is kept of a rotation. */
static uint64_t frequencies_bytes(const struct graph_op *op)
{
    return (uint64_t)op->u.rope.config->dims / 2 * 2 * sizeof(double);
}

uint64_t cuda_op_bytes(const struct graph_op *op)
{
    uint64_t bytes = op->kind == OP_ROPE_ANGLES ? frequencies_bytes(op) : 0;
    return cuda_steps_bytes(bytes);
}

/* frequencies[2][pairs] of positions, as loop_rope_angles has them. */
static int frequencies_make(struct cuda_op *op, struct err *e)
{
    const struct rope_config *rope = op->request.op->u.rope.config;
    size_t pairs = (size_t)rope->dims / 2, bytes = frequencies_bytes(op->request.op);
    double *all = malloc(bytes + 1);
    void *there = NULL;
    if (!all)
        return err_set(e, HP_ENOMEM, "no memory for a rotation");
    for (size_t i = 0; i < 2 * pairs; i++) {
        size_t pair = i % pairs;
        const float *factors =
            i >= pairs && rope->long_factors ? rope->long_factors : rope->factors;
        all[i] = pow(rope->base, -2.0 * (double)pair / rope->dims) / rope->scale /
                 (factors ? (double)factors[pair] : 1);
    }
    int rc = cuda_take(op->device, bytes, "a rotation", &there, e);
    rc = rc < 0 ? rc : cuda_upload(op->device, there, all, bytes, e);
    op->frequencies = there;
    free(all);
    return rc;
}

/* What kernels count with. */
static int shape_check(const struct op_request *r, struct err *e)
{
    const struct op_attention *a = &r->op->u.attention;
    if (r->op->kind == OP_ATTENTION && a->head_dim > 576)
        return err_set(e, HP_EUNSUPPORTED, "the cuda backend runs heads of at most 576 elements");
    return 0;
}

int cuda_op_prepare(struct device *d, const struct op_request *r, struct device_op **out,
                    struct err *e)
{
    int rc = backend_require(d->backend, r->op, e);
    rc = rc < 0 ? rc : shape_check(r, e);
    if (rc < 0)
        return rc;
    struct cuda_op *op = calloc(1, sizeof *op);
    if (!op)
        return err_set(e, HP_ENOMEM, "no memory for an operator");
    op->request = *r;
    op->device = (struct cuda_device *)d;
    struct device_op *made = (struct device_op *)op;
    if (r->op->kind == OP_ROPE_ANGLES)
        rc = frequencies_make(op, e);
    if (rc < 0)
        cuda_op_release(&made);
    else
        *out = made;
    return rc;
}

void cuda_op_release(struct device_op **op)
{
    struct cuda_op *own = (struct cuda_op *)*op;
    *op = NULL;
    if (!own)
        return;
    if (own->frequencies)
        cuda_give(own->device, own->frequencies, frequencies_bytes(own->request.op));
    free(own);
}

void cuda_op_run(struct stream *stream, const struct device_op *op, const struct tensor *in,
                 const struct tensor *out, const struct op_batch *batch)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const struct cuda_op *own = (const struct cuda_op *)op;
    cuda_note(s, gpu_use(s->device->ordinal));
    cuda_form_written(s, out);
    if (out->shape[0])
        ops[own->request.op->kind](s, own, in, out, batch);
    cuda_note(s, gpu_launched());
}
