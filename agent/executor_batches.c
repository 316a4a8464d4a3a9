/* Owns a batch on its way through a stage: its input, its output, the tokens picked, the moment
 * when a paced device would be done. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/executor_int.h"
#include "common/env.h"

static bool room_reserve(void **p, size_t *capacity, size_t n, size_t size)
{
    if (n <= *capacity)
        return true;
    void *grown = realloc(*p, n * size);
    if (!grown)
        return false;
    *p = grown;
    *capacity = n;
    return true;
}

static enum dtype wire_dtype(const struct held_stage *h)
{
    return h->wire == FRAME_F16 ? DTYPE_F16 : DTYPE_BF16;
}

/* Rows of runs that were dropped are closed up, in place; then they are float32. */
static const float *input_rows(struct executor *x, const struct held_stage *h,
                               const struct batch *b)
{
    const struct data_buffer *input = b->input;
    uint8_t *rows = input->bytes + (size_t)b->input_runs * FRAME_RUN_BYTES;
    size_t at = 0, row_bytes = (size_t)h->width * frame_dtype_bytes(h->wire);
    for (uint32_t i = 0; i < b->n_runs; i++) {
        size_t n = b->runs[i].n_tokens;
        if (at != b->runs[i].row)
            memmove(rows + at * row_bytes, rows + (size_t)b->runs[i].row * row_bytes,
                    n * row_bytes);
        at += n;
    }
    if (h->wire == FRAME_F32)
        return (const float *)(const void *)rows;
    x->device->backend->host_widen(x->device, wire_dtype(h), (const uint16_t *)(void *)rows,
                                   at * h->width, h->wide_in);
    return h->wide_in;
}

static uint8_t *output_rows(const struct batch *b, const struct data_buffer *output)
{
    return output->bytes + (size_t)b->n_runs * FRAME_RUN_BYTES;
}

/* Where the stage writes what it hands on. */
static float *output_floats(const struct held_stage *h, const struct batch *b,
                            const struct data_buffer *output)
{
    return h->wire == FRAME_F32 ? (float *)(void *)output_rows(b, output) : h->wide_out;
}

static void output_narrow(struct executor *x, const struct held_stage *h, const struct batch *b,
                          const struct data_buffer *output)
{
    if (h->wire != FRAME_F32)
        x->device->backend->host_narrow(x->device, wire_dtype(h), h->wide_out,
                                        (size_t)b->n_tokens * h->width,
                                        (uint16_t *)(void *)output_rows(b, output));
}

/* Room for the frame that goes on. A large one is the stage's own, small ones never wait: nothing
 * here ever does. */
static int output_get(struct executor *x, struct held_stage *h, const struct executor_run *r,
                      struct data_buffer **out, struct err *e)
{
    const struct batch *b = r->batch;
    size_t table = (size_t)b->n_runs * FRAME_RUN_BYTES,
           bytes = table + (size_t)b->n_tokens * h->width * frame_dtype_bytes(h->wire);
    *out = r->reserved && h->reserve ? data_reserve_get(h->reserve, bytes)
                                     : data_buffer_get(x->config.data, bytes);
    if (!*out)
        return err_set(e, HP_EBUSY, "no buffer for the %zu bytes that this stage hands on", bytes);
    (*out)->size = bytes;
    frame_runs_encode(b->runs, (int)b->n_runs, (*out)->bytes);
    return 0;
}

/* Rows that the core tells to somebody are kept until it has; the others only until they are
 * sampled from. */
static float *logits_room(struct executor *x, const struct held_stage *h, const struct batch *b,
                          bool *told)
{
    size_t n = (size_t)b->n_logits * h->vocabulary;
    *told = false;
    for (uint32_t i = 0; i < b->n_runs; i++)
        *told = *told || (b->runs[i].n_logits && !b->runs[i].sample);
    float **rows = *told ? &x->now->logits : &x->sampled;
    size_t *capacity = *told ? &x->now->logit_capacity : &x->sampled_capacity, before = *capacity;
    if (n > before && !x->config.paced && (n - before) * sizeof **rows > executor_memory_free(x))
        return NULL; /* beyond the limit */
    if (!room_reserve((void **)rows, capacity, n ? n : 1, sizeof **rows))
        return NULL;
    if (n > before) {
        atomic_fetch_add(&x->logits_bytes, (*capacity - before) * sizeof **rows);
        executor_memory_note(x);
    }
    return *rows;
}

/* One token to be picked. */
struct pick {
    struct sampler *sampler;
    const float *row;
    uint32_t *token;
};

static void pick_part(void *ctx, uint32_t part)
{
    struct pick *p = (struct pick *)ctx + part;
    *p->token = sampler_pick(p->sampler, p->row);
}

/* Sequences are sampled side by side. */
static int tokens_pick(struct executor *x, struct held_stage *h, const struct batch *b,
                       const float *rows, struct err *e)
{
    uint32_t n = 0;
    if (!room_reserve((void **)&x->picks, &x->pick_capacity, b->n_runs, sizeof *x->picks) ||
        !room_reserve((void **)&x->now->picked, &x->now->picked_capacity, b->n_runs,
                      sizeof *x->now->picked))
        return err_set(e, HP_ENOMEM, "no memory to sample %u sequences", b->n_runs);
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct batch_run *run = &b->runs[i];
        rows += (size_t)run->n_logits * h->vocabulary;
        if (!run->sample)
            continue;
        struct own_sampler *s = executor_sampler_find(h, run->sequence);
        if (!s)
            return err_set(e, HP_EBUG, "sequence %llu has no sampler",
                           (unsigned long long)run->sequence);
        x->picks[n++] = (struct pick){s->sampler, rows - h->vocabulary, &x->now->picked[i]};
    }
    if (n == 1)
        pick_part(x->picks, 0);
    else if (n)
        x->device->backend->host_spread(x->device, n, pick_part, x->picks);
    return 0;
}

/* A batch as it runs: where its rows go. */
struct batch_result {
    struct data_buffer *output; /* not the last stage */
    float *rows;                /* the last: logits */
    bool told;                  /* and somebody wants them all */
};

static int batch_run(struct executor *x, struct held_stage *h, const struct executor_run *r,
                     struct batch_result *out, struct err *e)
{
    const struct batch *b = r->batch;
    bool last = stage_is_last(h->stage), first = stage_is_first(h->stage);
    if (first ? !b->ids : !b->input)
        return err_set(e, HP_EBUG, "a batch came without its input");
    if (!last && !r->outlet)
        return err_set(e, HP_ELINK, "there is no link to the next stage");
    int rc = last ? 0 : output_get(x, h, r, &out->output, e);
    if (last && (out->rows = logits_room(x, h, b, &out->told)) == NULL)
        rc = err_set(e, HP_ENOMEM, "no memory for %u rows of logits within this agent's limit",
                     b->n_logits);
    if (rc < 0)
        return rc;
    float *rows = last ? out->rows : output_floats(h, b, out->output);
    const void *input = first ? (const void *)b->ids : input_rows(x, h, b);
    rc = stage_run(h->stage, b->runs, (int)b->n_runs, input, rows, e);
    if (rc == 0 && !last)
        output_narrow(x, h, b, out->output);
    return rc == 0 && last ? tokens_pick(x, h, b, out->rows, e) : rc;
}

/* Waits until the device that this one stands for would be done: that moment. *from_ns, when the
 * host came to it, becomes when the device would have begun. */
static uint64_t paced_wait(struct executor *x, const struct held_stage *h,
                           const struct executor_run *r, uint64_t *from_ns)
{
    double seconds = paced_batch_seconds(x->config.paced, h->first_layer, h->end_layer,
                                         h->stands_for, r->batch->runs, r->batch->n_runs);
    uint64_t begin = paced_queue_begin(&x->queue, r->ready_ns, *from_ns),
             due = paced_queue_take(&x->queue, r->ready_ns, *from_ns, seconds);
    *from_ns = begin;
    while (!atomic_load(&x->quitting)) {
        uint64_t now = env_now_ns(&env_real), step = now + 100000000 < due ? now + 100000000 : due;
        if (now >= due)
            break;
        clock_nanosleep(
            CLOCK_MONOTONIC, TIMER_ABSTIME,
            &(struct timespec){(time_t)(step / 1000000000u), (long)(step % 1000000000u)}, NULL);
    }
    return due;
}

/* Hands the output to the next stage, at the moment when the device is, or would be, done with it.
 */
static void output_post(const struct executor_run *r, struct data_buffer *output, uint64_t end_ns,
                        uint64_t due_ns)
{
    struct frame_header h = r->header;
    h.sent_ns = due_ns ? due_ns : end_ns;
    outlet_post(r->outlet, &h, output, r->reserved);
}

void executor_batch_run(struct executor *x, const struct executor_run *r)
{
    struct held_stage *h = executor_stage_find(x, r->slot);
    struct err e = {0};
    struct batch_result made = {0};
    uint64_t from = env_now_ns(&env_real);
    x->now = x->now == &x->results[0] ? &x->results[1] : &x->results[0];
    int rc = h ? batch_run(x, h, r, &made, &e) : err_set(&e, HP_ENOENT, "the stage is not loaded");
    x->ran_ns = env_now_ns(&env_real);
    uint64_t due = rc == 0 && x->config.paced ? paced_wait(x, h, r, &from) : 0,
             end = env_now_ns(&env_real);
    bool posted = rc == 0 && made.output;
    if (posted)
        output_post(r, made.output, end, due);
    else if (made.output)
        data_buffer_release(x->config.data, made.output);
    data_buffer_release(x->config.data, r->batch->input);
    outlet_release(r->outlet);
    executor_tell(x, &(struct executor_report){.kind = EXECUTOR_RAN,
                                               .slot = r->slot,
                                               .ticket = r->ticket,
                                               .status = rc,
                                               .error = &e,
                                               .seconds = (double)(end - from) * 1e-9,
                                               .start_ns = from,
                                               .end_ns = end,
                                               .due_ns = due,
                                               .posted = posted,
                                               .picked = x->now->picked,
                                               .logits = made.told ? made.rows : NULL});
}
