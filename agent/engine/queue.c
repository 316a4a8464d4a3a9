/* Owns the order of batches on one stage. Refuses to know of threads, messages and models. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/queue_int.h"

int queue_create(const struct queue_config *c, struct queue **out, struct err *e)
{
    if (c->n_stages < 1 || c->n_stages > QUEUE_MAX_STAGES || !c->max_batch_tokens ||
        !c->max_sequences)
        return err_set(e, HP_EINVAL,
                       "a pipeline has 1 to %d stages, and batches and sequences of at least one",
                       QUEUE_MAX_STAGES);
    struct queue *q = calloc(1, sizeof *q);
    if (!q)
        return err_set(e, HP_ENOMEM, "no memory for a queue");
    q->config = *c;
    q->max_frames = 4 * c->n_stages + 16;
    q->most_tokens = UINT32_MAX;
    q->n_flights = c->first ? 2 * c->n_stages + 1 : 0;
    q->sequences = calloc(c->max_sequences, sizeof *q->sequences);
    q->frames = calloc(q->max_frames, sizeof *q->frames);
    q->flights = calloc(q->n_flights + 1, sizeof *q->flights);
    if (!q->sequences || !q->frames || !q->flights) {
        queue_destroy(&q, NULL, NULL);
        return err_set(e, HP_ENOMEM, "no memory for a queue of %u sequences", c->max_sequences);
    }
    *out = q;
    return 0;
}

void queue_destroy(struct queue **pq, void (*release)(void *ctx, void *buffer), void *ctx)
{
    struct queue *q = *pq;
    if (!q)
        return;
    for (uint32_t i = 0; q->frames && i < q->max_frames; i++) {
        if (i < q->n_frames && q->frames[i].buffer && release)
            release(ctx, q->frames[i].buffer);
        free(q->frames[i].runs);
    }
    for (uint32_t i = 0; q->flights && i < q->n_flights; i++)
        free(q->flights[i].live);
    for (size_t i = 0; i < q->n_sequences; i++)
        free(q->sequences[i]);
    free(q->sequences);
    free(q->frames);
    free(q->flights);
    free(q);
    *pq = NULL;
}

/* ---- sequences ---- */

void *queue_sequence_close(struct queue *q, uint64_t id, uint64_t now_ns)
{
    size_t i = queue_sequence_place(q, id);
    q->some_dead = true;
    if (i == q->n_sequences || q->sequences[i]->id != id) {
        if (id > q->highest && !queue_closed_early(q, id))
            q->early[q->early_at++ % QUEUE_EARLY_CLOSES] = id;
        return NULL;
    }
    void *owner = q->sequences[i]->owner;
    free(q->sequences[i]);
    q->n_sequences--;
    memmove(&q->sequences[i], &q->sequences[i + 1], (q->n_sequences - i) * sizeof *q->sequences);
    queue_flights_forget(q, id, now_ns);
    return owner;
}

/* ---- batches ---- */

/* Handed out is as good as run: what follows runs after it. */
static void batch_handed_out(struct queue *q, const struct batch *b)
{
    for (uint32_t i = 0; i < b->n_runs; i++) {
        struct queue_sequence *s = queue_sequence_find(q, b->runs[i].sequence);
        s->length = b->runs[i].first_position + b->runs[i].n_tokens;
        s->certain = s->length - b->runs[i].n_drafts;
        s->awaiting = q->config.first && s->length >= s->n_prompt && !s->all_logits;
        s->awaited = b->number;
    }
}

bool queue_next(struct queue *q, struct batch *out, uint64_t *dropped)
{
    batch_clear(out);
    bool found = q->config.first ? queue_first_next(q, out) : queue_frames_next(q, out, dropped);
    if (!found || !out->n_runs)
        return found;
    q->slice_was_last = out->slice;
    batch_handed_out(q, out);
    return true;
}

void queue_narrow(struct queue *q, uint32_t most_tokens)
{
    q->most_tokens = most_tokens;
}

bool queue_dead_take(struct queue *q, struct batch *out, uint64_t *dropped)
{
    if (!q->some_dead || q->config.first)
        return false;
    batch_clear(out);
    q->some_dead = queue_frames_dead(q, out, dropped);
    return q->some_dead;
}

void queue_done(struct queue *q, const struct batch *b, uint64_t now_ns, double expected_s)
{
    q->progress_ns = now_ns;
    if (q->config.first)
        queue_flight_leave(q, b, now_ns, expected_s);
}

void queue_deadlines_renew(struct queue *q, uint64_t now_ns)
{
    q->progress_ns = now_ns;
    queue_flights_renew(q, now_ns);
}

struct queue_view queue_view(const struct queue *q)
{
    struct queue_view v = {(uint32_t)q->n_sequences, q->n_frames, 0, 0, q->highest};
    for (uint32_t i = 0; i < q->n_flights; i++)
        v.in_flight += q->flights[i].used;
    for (size_t i = 0; i < q->n_sequences; i++)
        v.kv_tokens += q->sequences[i]->length;
    return v;
}
