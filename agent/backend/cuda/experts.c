/* Mixtures of experts and heads with matrices of their own, on a GPU. */
#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

static struct gpu_rows rows_of(const struct tensor *t)
{
    return (struct gpu_rows){tensor_row(t, 0), t->strides[0]};
}

static struct gpu_shape shape_of(const struct tensor *t)
{
    return (struct gpu_shape){(uint32_t)t->shape[0], (uint32_t)tensor_width(t)};
}

void cuda_route_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                    const struct tensor *out, const struct op_batch *batch)
{
    const struct op_route *r = &op->request.op->u.route;
    const struct gpu_route how = {.experts = (uint32_t)tensor_width(&in[0]),
                                  .used = (uint32_t)r->used,
                                  .renormalised = r->renormalised,
                                  .by_lot = batch && batch->experts_by_lot,
                                  .scale = r->scale != 0 ? r->scale : 1};
    gpu_route_run(s->stream, &how, rows_of(&in[0]), rows_of(out), (uint32_t)out->shape[0]);
}

/* Rows at a time, so that a grid holds their pairs and the room their numbers. */
static uint32_t rows_at_once(const struct gpu_product *p, bool by_integers)
{
    enum { GRID_MOST = 65535 };
    uint64_t most = GRID_MOST / p->pairs.used,
             each = gpu_decode_input_bytes(p->inputs, p->pairs.step ? p->pairs.used : 1);
    if (by_integers && CUDA_SPLIT_BYTES / each < most)
        most = CUDA_SPLIT_BYTES / each;
    return (uint32_t)(most < 1 ? 1 : most);
}

/* All rows, some at a time; out[row] has its pairs' results side by side. */
static void pairs_run(struct cuda_stream *s, const struct cuda_weight *w, struct gpu_product p)
{
    uint32_t rows = p.rows;
    bool by_integers = !w->f32 && gpu_decode_pairs_fit(&p);
    if (cuda_groups_fit(s->device, w, &p)) {
        cuda_groups_run(s, w, p);
        return;
    }
    for (uint32_t r = 0; r < rows; r += p.rows) {
        uint32_t most = rows_at_once(&p, by_integers);
        struct gpu_product some = p;
        p.rows = some.rows = rows - r < most ? rows - r : most;
        some.in.data += r * p.in.stride;
        some.out.data += r * p.out.stride;
        if (some.pairs.chosen)
            some.pairs.chosen += r * p.pairs.stride;
        if (!by_integers) {
            gpu_expert_product_run(s->stream, &some);
            continue;
        }
        uint32_t inputs = some.rows * (p.pairs.step ? p.pairs.used : 1);
        some.numbers = cuda_scratch_take(s, gpu_decode_input_bytes(p.inputs, inputs));
        if (!some.numbers)
            return;
        gpu_decode_pairs_run(s->stream, &some);
    }
}

static struct gpu_product product_of(const struct cuda_weight *w, const struct tensor *in,
                                     const struct tensor *out, uint32_t used, uint32_t inputs)
{
    return (struct gpu_product){.dtype = (int)w->dtype,
                                .weight = w->data,
                                .row_bytes = w->row_bytes,
                                .inputs = inputs,
                                .outputs = (uint32_t)tensor_width(out) / used,
                                .rows = (uint32_t)out->shape[0],
                                .in = rows_of(&in[0]),
                                .out = rows_of(out),
                                .pairs = {.used = used, .bytes = w->part_bytes}};
}

void cuda_expert_matmul_run(struct cuda_stream *s, const struct cuda_op *op,
                            const struct tensor *in, const struct tensor *out,
                            const struct op_batch *batch)
{
    const struct op_experts *how = &op->request.op->u.experts;
    const struct cuda_weight *w = (const struct cuda_weight *)op->request.weights[0],
                             *bias = (const struct cuda_weight *)op->request.weights[1];
    uint32_t inputs = (uint32_t)w->shape[how->turned ? 0 : 1];
    struct gpu_product p = product_of(w, in, out, (uint32_t)how->used, inputs);
    (void)batch;
    p.turned = how->turned;
    p.bias = bias ? bias->data : NULL;
    p.pairs.chosen = tensor_row(&in[1], 0);
    p.pairs.stride = in[1].strides[0];
    p.pairs.step = tensor_width(&in[0]) == inputs ? 0 : inputs;
    p.pairs.first_matrix = (uint32_t)how->first;
    p.pairs.matrices = (uint32_t)how->count;
    pairs_run(s, w, p);
}

void cuda_head_matmul_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                          const struct tensor *out, const struct op_batch *batch)
{
    const struct op_heads *how = &op->request.op->u.heads;
    const struct cuda_weight *w = (const struct cuda_weight *)op->request.weights[0];
    uint32_t inputs = (uint32_t)w->shape[how->turned ? 0 : 1];
    struct gpu_product p = product_of(w, in, out, (uint32_t)how->heads, inputs);
    (void)batch;
    p.turned = how->turned;
    p.pairs.first = (uint32_t)how->parts[0].first;
    p.pairs.step = (uint32_t)how->parts[0].stride;
    pairs_run(s, w, p);
}

void cuda_expert_sum_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch)
{
    const struct op_experts *x = &op->request.op->u.experts;
    const struct gpu_expert_sum how = {
        .used = (uint32_t)x->used, .first = (uint32_t)x->first, .count = (uint32_t)x->count};
    struct gpu_rows base = {0};
    (void)batch;
    if (op->request.op->n_inputs > 2)
        base = rows_of(&in[2]);
    gpu_expert_sum_run(s->stream, &how, rows_of(&in[0]), rows_of(&in[1]), base, rows_of(out),
                       shape_of(out));
}

void cuda_clamped_swiglu_run(struct cuda_stream *s, const struct cuda_op *op,
                             const struct tensor *in, const struct tensor *out,
                             const struct op_batch *batch)
{
    const struct op_swiglu *how = &op->request.op->u.swiglu;
    bool by_turns = op->request.op->n_inputs == 1;
    struct gpu_rows gate = rows_of(&in[0]), up = gate;
    (void)batch;
    if (by_turns)
        up.data++;
    else
        up = rows_of(&in[1]);
    gpu_clamped_swiglu(s->stream, gate, up, by_turns ? 2 : 1, how->alpha, how->limit, rows_of(out),
                       shape_of(out));
}

void cuda_join_heads_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch)
{
    const struct op_heads *h = &op->request.op->u.heads;
    struct gpu_heads how = {0};
    (void)batch;
    for (int i = 0; i < 2; i++) {
        how.first[i] = (uint32_t)h->parts[i].first;
        how.count[i] = (uint32_t)h->parts[i].count;
        how.stride[i] = (uint32_t)h->parts[i].stride;
    }
    gpu_heads_join(s->stream, &how, rows_of(&in[0]), rows_of(&in[1]), rows_of(out), shape_of(out));
}
