/* The plain backend's mixtures of experts: row by row, expert by expert. */
#include <string.h>

#include "agent/backend/plain/loops.h"
#include "agent/backend/plain/plain_int.h"

void plain_route(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                 const struct op_batch *batch)
{
    const struct op_route *how = &op->request.op->u.route;
    size_t n = tensor_width(&in[0]);
    for (uint64_t r = 0; r < out->shape[0]; r++)
        if (batch && batch->experts_by_lot)
            loop_route_by_lot(how, r, n, tensor_row(out, r));
        else
            loop_route(how, tensor_row(&in[0], r), n, tensor_row(out, r));
}

/* One row by one expert's matrix. */
static void expert_product(const struct weight *w, bool turned, const float *x, size_t outputs,
                           float *to)
{
    size_t size = dtype_info(w->dtype)->block_bytes;
    for (size_t c = 0; c < outputs; c++) {
        float sum = 0, value;
        if (!turned)
            loop_dot(w->dtype, x, w->data + c * (w->bytes / w->shape[0]), w->shape[1], &sum);
        for (uint64_t i = 0; turned && i < w->shape[0]; i++) {
            dtype_info(w->dtype)->to_f32(w->data + (i * w->shape[1] + c) * size, 1, &value);
            sum += x[i] * value;
        }
        to[c] = sum;
    }
}

void plain_expert_matmul(const struct plain_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch)
{
    const struct op_experts *how = &op->request.op->u.experts;
    const struct plain_weight *matrix = (const struct plain_weight *)op->request.weights[0],
                              *bias = (const struct plain_weight *)op->request.weights[1];
    size_t used = (size_t)how->used, outputs = tensor_width(out) / used;
    const struct weight *first = matrix->source->parts[0];
    size_t inputs = first->shape[how->turned ? 0 : 1],
           step = tensor_width(&in[0]) == inputs ? 0 : inputs;
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        for (size_t k = 0; k < used; k++) {
            size_t expert = (size_t)((const float *)tensor_row(&in[1], r))[k];
            int own = op_expert_own(how, (int)expert);
            float *to = (float *)tensor_row(out, r) + k * outputs;
            if (own < 0) {
                memset(to, 0, outputs * sizeof *to);
                continue;
            }
            expert_product(matrix->source->parts[own], how->turned,
                           (const float *)tensor_row(&in[0], r) + k * step, outputs, to);
            for (size_t c = 0; bias && c < outputs; c++)
                to[c] += bias->vector[expert * outputs + c];
        }
}

void plain_head_matmul(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                       const struct op_batch *batch)
{
    const struct op_heads *how = &op->request.op->u.heads;
    const struct weight *w = ((const struct plain_weight *)op->request.weights[0])->source;
    size_t outputs = tensor_width(out) / (size_t)how->heads;
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        for (int h = 0; h < how->heads; h++)
            expert_product(w->parts[h], how->turned,
                           (const float *)tensor_row(&in[0], r) + h * how->parts[0].stride +
                               how->parts[0].first,
                           outputs, (float *)tensor_row(out, r) + (size_t)h * outputs);
}

void plain_join_heads(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                      const struct op_batch *batch)
{
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        loop_join_heads(&op->request.op->u.heads, tensor_row(&in[0], r), tensor_row(&in[1], r),
                        tensor_row(out, r));
}

void plain_expert_sum(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                      const struct op_batch *batch)
{
    bool added = op->request.op->n_inputs > 2;
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        loop_expert_sum(&op->request.op->u.experts, tensor_row(&in[0], r), tensor_row(&in[1], r),
                        added ? tensor_row(&in[2], r) : NULL, tensor_width(out),
                        tensor_row(out, r));
}

void plain_gate_rows(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                     const struct op_batch *batch)
{
    (void)op, (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++)
        loop_gate_rows(tensor_row(&in[0], r), *(const float *)tensor_row(&in[1], r),
                       tensor_width(out), tensor_row(out, r));
}

void plain_clamped_swiglu(const struct plain_op *op, const struct tensor *in,
                          const struct tensor *out, const struct op_batch *batch)
{
    bool by_turns = op->request.op->n_inputs == 1;
    (void)batch;
    for (uint64_t r = 0; r < out->shape[0]; r++) {
        const float *gate = tensor_row(&in[0], r),
                    *up = by_turns ? gate + 1 : tensor_row(&in[1], r);
        loop_clamped_swiglu(&op->request.op->u.swiglu, gate, up, by_turns ? 2 : 1,
                            tensor_width(out), tensor_row(out, r));
    }
}
