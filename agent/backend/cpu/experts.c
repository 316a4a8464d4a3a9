/* Mixtures of experts: the rows of a batch are sorted by expert, so that each expert's matrix is
 * read once for all rows that take it, and products go by matmul.c. A matrix of experts is as many
 * matrices, each kept as any other. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/rows.h"
#include "agent/backend/plain/loops.h"

/* ---- products ---- */

/* Rows by expert: slots[first[e] .. first[e + 1]) are those of the operator's expert e, each a row
 * and which of its experts that is. */
struct expert_rows {
    const struct op_experts *how;
    size_t used, inputs, outputs;
    size_t x_step; /* floats from the input for one of a row's experts to that for the next; 0: all
                      have the row's */
    uint32_t *first, *slots;
    float *x, *made; /* gathered */
};

/* -1: another operator has it. */
static int expert_of(const struct expert_rows *r, const struct tensor *route, uint32_t slot)
{
    const float *taken = (const float *)tensor_row(route, slot / r->used);
    return op_expert_own(r->how, (int)taken[slot % r->used]);
}

/* By counting: slots keep their order within an expert. */
static void slots_sort(struct expert_rows *r, const struct tensor *route, size_t n_experts)
{
    size_t n = route->shape[0] * r->used;
    memset(r->first, 0, (n_experts + 1) * sizeof *r->first);
    for (uint32_t s = 0; s < n; s++)
        r->first[expert_of(r, route, s) + 1]++;
    r->first[0] = 0; /* where those of others were counted */
    for (size_t e = 0; e < n_experts; e++)
        r->first[e + 1] += r->first[e];
    for (uint32_t s = 0; s < n; s++) {
        int own = expert_of(r, route, s);
        if (own >= 0)
            r->slots[r->first[own]++] = s;
    }
    memmove(r->first + 1, r->first, n_experts * sizeof *r->first);
    r->first[0] = 0;
}

static const float *slot_input(const struct expert_rows *r, const struct tensor *x, uint32_t slot)
{
    return (const float *)tensor_row(x, slot / r->used) + slot % r->used * r->x_step;
}

static float *slot_output(const struct expert_rows *r, const struct tensor *out, uint32_t slot)
{
    return (float *)tensor_row(out, slot / r->used) + slot % r->used * r->outputs;
}

static struct tensor rows_at(const float *data, size_t rows, size_t width)
{
    struct memory m = {(void *)(uintptr_t)data, rows * width * sizeof *data};
    return tensor_rows(m, DTYPE_F32, rows, width);
}

/* One expert with its rows; a single one is not moved. */
static void expert_run(struct stream *s, const struct device_weight *w, const struct expert_rows *r,
                       const uint32_t *slots, size_t n, const struct tensor *x,
                       const struct tensor *out)
{
    static const struct graph_op product = {.kind = OP_MATMUL, .n_inputs = 1};
    struct device_op op = {.op = &product, .weights = {w}};
    const float *from = n == 1 ? slot_input(r, x, slots[0]) : r->x;
    float *to = n == 1 ? slot_output(r, out, slots[0]) : r->made;
    for (size_t i = 0; n > 1 && i < n; i++)
        memcpy(r->x + i * r->inputs, slot_input(r, x, slots[i]), r->inputs * sizeof(float));
    struct tensor in = rows_at(from, n, r->inputs), result = rows_at(to, n, r->outputs);
    if (n > 1) /* rows of another expert lay in the same place */
        s->device->made.form = INPUTS_NONE;
    cpu_matmul(s, &op, &in, &result, NULL);
    for (size_t i = 0; n > 1 && i < n; i++)
        memcpy(slot_output(r, out, slots[i]), r->made + i * r->outputs, r->outputs * sizeof(float));
}

/* What is added up for a row has nothing of experts that others have. */
static void others_clear(const struct expert_rows *r, const struct tensor *route,
                         const struct tensor *out)
{
    for (uint32_t s = 0; r->how->count && s < route->shape[0] * r->used; s++)
        if (expert_of(r, route, s) < 0)
            memset(slot_output(r, out, s), 0, r->outputs * sizeof(float));
}

static void bias_add(const struct expert_rows *r, const uint32_t *slots, size_t n,
                     const float *bias, const struct tensor *out)
{
    for (size_t i = 0; i < n; i++) {
        float *to = slot_output(r, out, slots[i]);
        for (size_t c = 0; c < r->outputs; c++)
            to[c] += bias[c];
    }
}

static bool gather_alloc(struct cpu_device *d, struct expert_rows *r, size_t n_experts, size_t rows)
{
    uint8_t *at = scratch_get(d, &d->gathered,
                              cpu_gather_bytes(n_experts, r->used, rows, r->inputs, r->outputs));
    if (!at)
        return false;
    r->x = (float *)(void *)at;
    r->made = r->x + rows * r->inputs;
    r->first = (uint32_t *)(void *)(r->made + rows * r->outputs);
    r->slots = r->first + n_experts + 1;
    return true;
}

void cpu_expert_matmul(struct stream *s, const struct device_op *op, const struct tensor *in,
                       const struct tensor *out, const struct op_batch *batch)
{
    const struct device_weight *w = op->weights[0], *bias = op->weights[1];
    size_t n_experts = (size_t)w->n_parts;
    struct expert_rows r = {.how = &op->op->u.experts,
                            .used = (size_t)op->op->u.experts.used,
                            .inputs = w->parts[0]->columns,
                            .outputs = w->parts[0]->rows};
    (void)batch;
    r.x_step = tensor_width(&in[0]) == r.inputs ? 0 : r.inputs;
    assert(tensor_width(out) == r.used * r.outputs);
    if (!gather_alloc(s->device, &r, n_experts, out->shape[0])) {
        cpu_stream_fail(s, HP_ENOMEM, "no memory for the rows of experts");
        return;
    }
    slots_sort(&r, &in[1], n_experts);
    others_clear(&r, &in[1], out);
    for (size_t e = 0; e < n_experts; e++) {
        size_t n = r.first[e + 1] - r.first[e];
        const uint32_t *slots = r.slots + r.first[e];
        if (n == 0)
            continue;
        expert_run(s, w->parts[e], &r, slots, n, &in[0], out);
        if (bias)
            bias_add(&r, slots, n,
                     (const float *)(const void *)bias->data +
                         ((size_t)r.how->first + e) * r.outputs,
                     out);
    }
}

/* ---- heads ---- */

/* One head of all rows: products are written side by side, and go to their places from there. */
void cpu_head_matmul(struct stream *s, const struct device_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    static const struct graph_op product = {.kind = OP_MATMUL, .n_inputs = 1};
    const struct op_heads *how = &op->op->u.heads;
    const struct device_weight *w = op->weights[0];
    size_t rows = out->shape[0], outputs = w->parts[0]->rows;
    float *made = scratch_get(s->device, &s->device->gathered, rows * outputs * sizeof *made);
    (void)batch;
    if (!made) {
        cpu_stream_fail(s, HP_ENOMEM, "no memory for the rows of a head");
        return;
    }
    for (int h = 0; h < how->heads; h++) {
        struct device_op one = {.op = &product, .weights = {w->parts[h]}};
        struct tensor x = in[0], result = rows_at(made, rows, outputs);
        x.offset += (uint64_t)(h * how->parts[0].stride + how->parts[0].first) * sizeof *made;
        x.shape[1] = (uint64_t)how->parts[0].count;
        s->device->made.form = INPUTS_NONE;
        cpu_matmul(s, &one, &x, &result, NULL);
        for (size_t r = 0; r < rows; r++)
            memcpy((float *)tensor_row(out, r) + (size_t)h * outputs, made + r * outputs,
                   outputs * sizeof *made);
    }
}

static void join_heads_rows(const struct rows_job *job, size_t begin, size_t end)
{
    for (size_t r = begin; r < end; r++)
        loop_join_heads(&job->op->op->u.heads, tensor_row(&job->in[0], r),
                        tensor_row(&job->in[1], r), tensor_row(job->out, r));
}

void cpu_join_heads(struct stream *s, const struct device_op *op, const struct tensor *in,
                    const struct tensor *out, const struct op_batch *batch)
{
    rows_spread(s, op, in, out, batch, join_heads_rows);
}

/* ---- row by row ---- */

static void route_rows(const struct rows_job *job, size_t begin, size_t end)
{
    const struct op_route *how = &job->op->op->u.route;
    size_t n = tensor_width(&job->in[0]);
    for (size_t r = begin; r < end; r++)
        if (job->batch && job->batch->experts_by_lot)
            loop_route_by_lot(how, r, n, tensor_row(job->out, r));
        else
            loop_route(how, tensor_row(&job->in[0], r), n, tensor_row(job->out, r));
}

void cpu_route(struct stream *s, const struct device_op *op, const struct tensor *in,
               const struct tensor *out, const struct op_batch *batch)
{
    rows_spread(s, op, in, out, batch, route_rows);
}

static void expert_sum_rows(const struct rows_job *job, size_t begin, size_t end)
{
    bool added = job->op->op->n_inputs > 2;
    for (size_t r = begin; r < end; r++)
        loop_expert_sum(&job->op->op->u.experts, tensor_row(&job->in[0], r),
                        tensor_row(&job->in[1], r), added ? tensor_row(&job->in[2], r) : NULL,
                        tensor_width(job->out), tensor_row(job->out, r));
}

void cpu_expert_sum(struct stream *s, const struct device_op *op, const struct tensor *in,
                    const struct tensor *out, const struct op_batch *batch)
{
    rows_spread(s, op, in, out, batch, expert_sum_rows);
}

static void gate_rows(const struct rows_job *job, size_t begin, size_t end)
{
    for (size_t r = begin; r < end; r++)
        loop_gate_rows(tensor_row(&job->in[0], r), *(const float *)tensor_row(&job->in[1], r),
                       tensor_width(job->out), tensor_row(job->out, r));
}

void cpu_gate_rows(struct stream *s, const struct device_op *op, const struct tensor *in,
                   const struct tensor *out, const struct op_batch *batch)
{
    rows_spread(s, op, in, out, batch, gate_rows);
}

static void clamped_swiglu_rows(const struct rows_job *job, size_t begin, size_t end)
{
    bool by_turns = job->op->op->n_inputs == 1;
    for (size_t r = begin; r < end; r++) {
        const float *gate = tensor_row(&job->in[0], r),
                    *up = by_turns ? gate + 1 : tensor_row(&job->in[1], r);
        loop_clamped_swiglu(&job->op->op->u.swiglu, gate, up, by_turns ? 2 : 1,
                            tensor_width(job->out), tensor_row(job->out, r));
    }
}

void cpu_clamped_swiglu(struct stream *s, const struct device_op *op, const struct tensor *in,
                        const struct tensor *out, const struct op_batch *batch)
{
    rows_spread(s, op, in, out, batch, clamped_swiglu_rows);
}
