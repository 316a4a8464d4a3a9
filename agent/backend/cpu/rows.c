#include "agent/backend/cpu/rows.h"

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
