/* Owns the batches under way: their input, their output, and the moment when a paced device would
 * be done with one. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/executor_int.h"
#include "common/env.h"
#include "common/vector.h"

/* ---- rows that come and go ---- */

/* As it crosses. */
static size_t value_bytes(const struct held_slot *h, const struct graph_value *v, uint64_t tokens)
{
    return dtype_bytes(graph_value_border(v, executor_wire_dtype(h->wire)),
                       tokens * graph_value_width(v));
}

/* Rows of runs that were dropped are closed up, in place, value by value. */
static const void *input_rows(const struct held_slot *h, const struct batch *b)
{
    const struct data_buffer *input = b->input;
    const struct graph_layer *before = &h->graph->layers[h->first_layer - 1];
    uint8_t *rows = input->bytes + (size_t)b->input_runs * FRAME_RUN_BYTES, *to = rows,
            *from = rows;
    if (b->n_tokens == b->input_tokens)
        return rows;
    for (int v = 0; v < before->n_outputs; v++) {
        size_t row_bytes = value_bytes(h, &h->graph->values[before->outputs[v]], 1);
        for (uint32_t i = 0; i < b->n_runs; i++) {
            size_t bytes = b->runs[i].n_tokens * row_bytes;
            memmove(to, from + b->runs[i].row * row_bytes, bytes);
            to += bytes;
        }
        from += b->input_tokens * row_bytes;
    }
    return rows;
}

/* Numbers of experts, and their weights. */
static int exact_check(const struct graph_value *v, const uint8_t *rows, size_t n, struct err *e)
{
    const float beyond = 1 << 24; /* where float32 has every whole number */
    float number;
    for (size_t i = 0; i < n; i++) {
        memcpy(&number, rows + i * sizeof number, sizeof number);
        if (!(number > -beyond && number < beyond))
            return err_set(e, HP_EPROTO, "%.80s came with %g, which is out of range", v->name,
                           (double)number);
    }
    return 0;
}

/* Blocks of the values before it are counted, too. */
static int blocks_check(const uint8_t *rows, size_t n, int64_t *blocks, struct err *e)
{
    long long bad = dtype_bad_block(DTYPE_Q8_WIRE, rows, n), before = *blocks;
    *blocks += (int64_t)(n / FRAME_Q8_ELEMENTS);
    return bad < 0 ? 0
                   : err_set(e, HP_EPROTO,
                             "block %lld of the rows that came has a scale that is no number",
                             before + bad);
}

/* What a peer sends is looked at before it is computed with. */
static int input_check(const struct held_slot *h, const struct batch *b, const void *rows,
                       struct err *e)
{
    const uint8_t *at = rows;
    int64_t blocks = 0;
    int rc = 0;
    if (h->first)
        return 0;
    const struct graph_layer *before = &h->graph->layers[h->first_layer - 1];
    for (int i = 0; rc == 0 && i < before->n_outputs; i++) {
        const struct graph_value *v = &h->graph->values[before->outputs[i]];
        size_t n = b->n_tokens * graph_value_width(v);
        if (v->exact)
            rc = exact_check(v, at, n, e);
        else if (h->wire == FRAME_Q8)
            rc = blocks_check(at, n, &blocks, e);
        at += value_bytes(h, v, b->n_tokens);
    }
    return rc;
}

static uint8_t *output_rows(const struct batch *b, const struct data_buffer *output)
{
    return output->bytes + (size_t)b->n_runs * FRAME_RUN_BYTES;
}

/* Room for the frame that goes on. A large one is the stage's own, small ones never wait: nothing
 * here ever does. */
static int output_get(struct executor *x, struct flight *f, struct err *e)
{
    const struct held_slot *h = f->slot;
    const struct batch *b = f->run.batch;
    size_t table = (size_t)b->n_runs * FRAME_RUN_BYTES,
           bytes = table + frame_rows_bytes(h->wire, h->row_out, b->n_tokens);
    f->output = executor_direct_output(f, table, bytes);
    if (!f->output)
        f->output = f->run.reserved && h->reserve ? data_reserve_get(h->reserve, bytes)
                                                  : data_buffer_get(x->config.data, bytes);
    if (!f->output)
        return err_set(e, HP_EBUSY, "no buffer for the %zu bytes that this stage hands on", bytes);
    f->output->size = bytes;
    frame_runs_encode(b->runs, (int)b->n_runs, f->output->bytes);
    return 0;
}

/* Rows that are in the device's memory already: where those of each run are, if some were dropped.
 */
static int device_rows_find(struct flight *f, struct err *e)
{
    const struct batch *b = f->run.batch;
    const struct data_buffer *input = b->input;
    if (!f->slot->direct)
        return err_set(e, HP_EBUG, "rows came into the memory of another device");
    f->from = executor_direct_rows(input, b->input_tokens);
    if (b->n_tokens == b->input_tokens)
        return 0;
    if (!vector_reserve(f->first_rows, f->first_room, b->n_runs))
        return err_no_memory(e, "the places of %u runs", b->n_runs);
    for (uint32_t i = 0; i < b->n_runs; i++)
        f->first_rows[i] = b->runs[i].row;
    f->from.first_rows = f->first_rows;
    return 0;
}

/* What the batch computes with, on the host; NULL: it is on the device. */
static int input_find(struct flight *f, const void **out, struct err *e)
{
    const struct batch *b = f->run.batch;
    const struct held_slot *h = f->slot;
    f->from = f->to = (struct forward_device_rows){0};
    *out = NULL;
    if (!h->first && ((const struct data_buffer *)b->input)->device)
        return device_rows_find(f, e);
    *out = h->first ? (const void *)b->ids : input_rows(h, b);
    return input_check(h, b, *out, e);
}

/* ---- onto the device ---- */

static int stage_batch_make(struct executor *x, struct flight *f, struct slot_batch *out,
                            struct err *e)
{
    const struct batch *b = f->run.batch;
    const struct held_slot *h = f->slot;
    if (!b || (h->first ? !b->ids : !b->input))
        return err_set(e, HP_EBUG, "a batch came without its input");
    if (!h->last && !f->run.outlet)
        return err_set(e, HP_ELINK, "there is no link to the next stage");
    const void *input;
    int rc = input_find(f, &input, e);
    rc = rc < 0 ? rc : h->last ? executor_logits_take(x, f, e) : output_get(x, f, e);
    const struct forward_scoring *scoring = NULL;
    if (rc == 0 && h->last)
        rc = executor_scoring_take(x, f, &scoring, e);
    const struct forward_sampling *sampling = NULL;
    if (rc == 0 && h->last)
        rc = executor_sampling_take(x, f, &sampling, e);
    if (rc < 0)
        return rc;
    if (f->output && f->output->device)
        f->to = executor_direct_rows(f->output, b->n_tokens);
    *out = (struct slot_batch){.runs = b->runs,
                               .n_runs = (int)b->n_runs,
                               .input = input,
                               .from = &f->from,
                               .to = &f->to,
                               .scoring = scoring,
                               .sampling = sampling,
                               .output =
                                   h->last ? (void *)f->logits->rows : output_rows(b, f->output)};
    return 0;
}

static int flight_submit(struct executor *x, struct flight *f, struct err *e)
{
    struct slot_batch batch = {.inputs = f->run.inputs,
                               .outputs = f->run.outputs,
                               .n_inputs = f->run.n_inputs,
                               .n_outputs = f->run.n_outputs};
    if (!f->slot)
        return err_set(e, HP_ENOENT, "the stage is not loaded");
    int rc = f->slot->kind == SLOT_STAGE ? stage_batch_make(x, f, &batch, e) : 0;
    return rc < 0 ? rc : f->slot->held->table->submit(f->slot->held, &batch, e);
}

/* On a thread of the device's. */
static void flight_over(void *ctx)
{
    struct flight *f = ctx;
    struct executor *x = f->x;
    atomic_store(&f->over, true);
    executor_look(x);
}

static void flight_complete(struct executor *x, struct flight *f);

static void oldest_complete(struct executor *x)
{
    struct flight *f = &x->flights[x->oldest];
    x->oldest = (x->oldest + 1) % SLOT_DEPTH;
    flight_complete(x, f);
    x->n_flying--;
}

/* One that could not be submitted is reported in its turn, too. */
void executor_batch_submit(struct executor *x, const struct executor_run *r)
{
    while (x->n_flying == SLOT_DEPTH)
        oldest_complete(x);
    struct flight *f = &x->flights[(x->oldest + x->n_flying) % SLOT_DEPTH];
    f->x = x;
    f->run = *r;
    f->slot = executor_slot_find(x, r->slot);
    f->error = (struct err){0};
    f->output = NULL;
    f->logits = NULL;
    f->told = false;
    f->from_ns = env_now_ns(&env_real);
    atomic_store(&f->over, false);
    f->status = flight_submit(x, f, &f->error);
    x->n_flying++;
    f->pending = f->status == 0 && f->slot->held->table->pending(f->slot->held, flight_over, f);
}

/* ---- and off it ---- */

/* Waits until the device that this one stands for would be done: that moment. *from_ns, when the
 * host came to it, becomes when the device would have begun. */
static uint64_t paced_wait(struct executor *x, const struct flight *f, uint64_t *from_ns)
{
    const struct held_slot *h = f->slot;
    double seconds =
        paced_batch_seconds(x->config.paced, executor_paced_layers(h), h->first_layer, h->end_layer,
                            h->stands_for, f->run.batch->runs, f->run.batch->n_runs);
    uint64_t begin = paced_queue_begin(&x->queue, f->run.ready_ns, *from_ns),
             due = paced_queue_take(&x->queue, f->run.ready_ns, *from_ns, seconds);
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
static void output_post(const struct flight *f, uint64_t end_ns, uint64_t due_ns)
{
    struct frame_header h = f->run.header;
    h.sent_ns = due_ns ? due_ns : end_ns;
    outlet_post(f->run.outlet, &h, f->output, f->run.reserved);
}

static int flight_wait(struct executor *x, struct flight *f)
{
    if (f->status < 0)
        return f->status;
    int rc = f->slot->held->table->complete(f->slot->held, &f->error);
    return rc == 0 && f->logits ? executor_tokens_pick(x, f, &f->error) : rc;
}

static void flight_report(struct executor *x, const struct flight *f,
                          const struct executor_report *times)
{
    struct executor_report r = *times;
    r.kind = EXECUTOR_RAN;
    r.slot = f->run.slot;
    r.ticket = f->run.ticket;
    r.error = &f->error;
    r.seconds = (double)(r.end_ns - r.start_ns) * 1e-9;
    r.picked = f->picked;
    r.scores = f->scores;
    r.logits = f->told && f->logits ? f->logits->rows : NULL;
    executor_tell(x, &r);
}

/* A batch that waited for the one before it has the device from that one's end. */
static void flight_complete(struct executor *x, struct flight *f)
{
    int rc = flight_wait(x, f);
    uint64_t from = f->from_ns > x->ended_ns ? f->from_ns : x->ended_ns;
    x->ended_ns = env_now_ns(&env_real);
    uint64_t due = rc == 0 && x->config.paced ? paced_wait(x, f, &from) : 0,
             end = env_now_ns(&env_real);
    bool posted = rc == 0 && f->output;
    if (posted)
        output_post(f, end, due);
    else if (f->output)
        data_buffer_release(x->config.data, f->output);
    if (f->run.batch)
        data_buffer_release(x->config.data, f->run.batch->input);
    outlet_release(f->run.outlet);
    if (f->logits)
        f->logits->taken = false;
    flight_report(
        x, f,
        &(struct executor_report){
            .status = rc, .start_ns = from, .end_ns = end, .due_ns = due, .posted = posted});
}

void executor_batches_land(struct executor *x)
{
    while (x->n_flying > 0) {
        const struct flight *f = &x->flights[x->oldest];
        if (f->pending && !atomic_load(&f->over))
            return;
        oldest_complete(x);
    }
}

void executor_batches_settle(struct executor *x)
{
    while (x->n_flying > 0)
        oldest_complete(x);
}
