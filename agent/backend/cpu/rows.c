#include "agent/backend/cpu/rows.h"

#include <assert.h>
#include <string.h>

static void rows_part(void *ctx, int thread, uint32_t part)
{
    const struct rows_job *job = ctx;
    (void)thread;
    job->run(job, parts_begin(&job->parts, part), parts_end(&job->parts, part));
}

/* Small work is done by the caller: waking the others would take longer. */
static void rows_run(struct rows_job *job)
{
    enum { SMALL_ELEMENTS = 16384 };
    struct threads *threads = job->stream->device->threads;
    if (job->elements <= SMALL_ELEMENTS) {
        job->run(job, 0, job->n);
        return;
    }
    job->parts = threads_parts(threads, job->n, job->grain, 0);
    threads_run(threads, job->parts.count, rows_part, job);
}

void rows_spread(struct stream *s, const struct device_op *op, const struct tensor *in,
                 const struct tensor *out, const struct op_batch *batch,
                 void (*run)(const struct rows_job *job, size_t begin, size_t end))
{
    uint64_t from = tensor_width(&in[0]), to = tensor_width(out);
    rows_run(&(struct rows_job){.stream = s,
                                .op = op,
                                .in = in,
                                .out = out,
                                .batch = batch,
                                .run = run,
                                .n = out->shape[0],
                                .grain = 1,
                                .elements = out->shape[0] * (from > to ? from : to)});
}

static bool is_dense(const struct tensor *t)
{
    return t->strides[0] == tensor_width(t);
}

/* A grain of whole vectors, so that parts begin where vectors do. */
void elements_spread(struct stream *s, const struct device_op *op, const struct tensor *in,
                     const struct tensor *out,
                     void (*run)(const struct rows_job *job, size_t begin, size_t end))
{
    bool dense = is_dense(out);
    struct tensor inputs[OP_INPUTS_MAX], to = *out;
    for (int i = 0; i < op->op->n_inputs; i++) {
        inputs[i] = in[i];
        dense = dense && is_dense(&in[i]);
    }
    uint64_t width = tensor_width(out), n_rows = out->shape[0];
    for (uint64_t r = 0; r < (dense ? 1 : n_rows); r++) {
        struct rows_job job = {.stream = s,
                               .op = op,
                               .in = inputs,
                               .out = &to,
                               .run = run,
                               .n = dense ? width * n_rows : width,
                               .grain = 64};
        job.elements = job.n;
        rows_run(&job);
        for (int i = 0; i < op->op->n_inputs; i++)
            inputs[i].offset += inputs[i].strides[0] * sizeof(float);
        to.offset += to.strides[0] * sizeof(float);
    }
}

static const float *vector_of(const struct device_weight *w)
{
    assert(w->form == FORM_F32);
    return (const float *)(const void *)w->data;
}

void norm_row_make(const struct cpu_kernels *k, const struct device_op *op, const float *in,
                   size_t width, float *out)
{
    float epsilon = op->op->u.norm.epsilon;
    size_t part = op->weights[0]->columns;
    if (op->op->kind == OP_LAYER_NORM) {
        k->layer_norm(in, vector_of(op->weights[0]), vector_of(op->weights[1]), epsilon, width,
                      out);
        return;
    }
    for (size_t i = 0; i < width; i += part)
        k->rms_norm(in + i, vector_of(op->weights[0]), epsilon, part, out + i);
}

void rope_row_make(const struct cpu_kernels *k, const struct op_rope *rope, const float *angles,
                   size_t heads, const float *in, float *out)
{
    size_t head_dim = (size_t)rope->head_dim, dims = (size_t)rope->config->dims;
    if (in != out && dims < head_dim) { /* with what does not rotate */
        memcpy(out, in, heads * head_dim * sizeof *out);
        in = out;
    }
    k->rope[rope->config->style](&(struct rope_task){.in = in + rope->first,
                                                     .angles = angles,
                                                     .out = out + rope->first,
                                                     .heads = heads,
                                                     .head_dim = head_dim,
                                                     .pairs = dims / 2});
}
