/* Owns the order of batches on one stage. Refuses to know of threads, messages and models. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/queue_int.h"

void queue_batch_free(struct queue_batch *b)
{
    free(b->runs);
    free(b->table);
    free(b->ids);
    memset(b, 0, sizeof *b);
}

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
    q->n_flights = c->first ? 2 * c->n_stages : 0;
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

/* ---- sequences
 * -------------------------------------------------------------------------------------------------
 */

/* Where the id is, or where it would go. */
static size_t sequence_place(const struct queue *q, uint64_t id)
{
    size_t low = 0, high = q->n_sequences;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (q->sequences[mid]->id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct queue_sequence *queue_sequence_find(const struct queue *q, uint64_t id)
{
    size_t i = sequence_place(q, id);
    return i < q->n_sequences && q->sequences[i]->id == id ? q->sequences[i] : NULL;
}

struct queue_sequence *queue_sequence_at(const struct queue *q, size_t i)
{
    return i < q->n_sequences ? q->sequences[i] : NULL;
}

bool queue_closed_early(const struct queue *q, uint64_t id)
{
    for (size_t i = 0; i < QUEUE_EARLY_CLOSES; i++)
        if (q->early[i] == id)
            return true;
    return false;
}

static int prompt_check(const struct queue *q, const struct queue_sequence *s, struct err *e)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_slices; i++) {
        if (!s->slices[i])
            return err_set(e, HP_EINVAL, "slice %u of the prompt is empty", i);
        sum += s->slices[i];
    }
    if (q->config.first && (!s->n_prompt || (s->n_slices && sum != s->n_prompt)))
        return err_set(e, HP_EINVAL, "a prompt of %u tokens in slices of %llu", s->n_prompt,
                       (unsigned long long)sum);
    return 0;
}

int queue_sequence_open(struct queue *q, const struct queue_sequence *s, struct err *e)
{
    if (queue_sequence_find(q, s->id))
        return err_set(e, HP_EEXIST, "sequence %llu is open already", (unsigned long long)s->id);
    if (s->id <= q->highest || queue_closed_early(q, s->id)) {
        q->highest = s->id > q->highest ? s->id : q->highest;
        q->some_dead = true;
        return err_set(e, HP_ECANCELED, "sequence %llu was closed", (unsigned long long)s->id);
    }
    int rc = prompt_check(q, s, e);
    if (rc < 0)
        return rc;
    if (q->n_sequences == q->config.max_sequences)
        return err_set(e, HP_EBUSY, "%u sequences are open, the most that this stage was made for",
                       q->config.max_sequences);
    struct queue_sequence *own = malloc(sizeof *own);
    if (!own)
        return err_set(e, HP_ENOMEM, "no memory for a sequence");
    *own = *s;
    own->ready = own->has_token = own->awaiting = own->finished = false;
    own->length = own->next_slice = own->slice_left = 0;
    /* Above all others: numbers rise. */
    q->sequences[q->n_sequences++] = own;
    q->highest = s->id;
    return 0;
}

void queue_sequence_ready(struct queue *q, uint64_t id)
{
    struct queue_sequence *s = queue_sequence_find(q, id);
    if (s)
        s->ready = true;
}

void *queue_sequence_close(struct queue *q, uint64_t id, uint64_t now_ns)
{
    size_t i = sequence_place(q, id);
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

/* ---- batches
 * ---------------------------------------------------------------------------------------------------
 */

bool queue_batch_reserve(struct queue_batch *b, uint32_t runs, uint32_t ids)
{
    if (runs > b->run_capacity) {
        struct agent_run *r = realloc(b->runs, runs * sizeof *r);
        b->runs = r ? r : b->runs;
        struct frame_run *t = realloc(b->table, runs * sizeof *t);
        b->table = t ? t : b->table;
        if (!r || !t)
            return false;
        b->run_capacity = runs;
    }
    if (ids > b->id_capacity) {
        uint32_t *p = realloc(b->ids, ids * sizeof *p);
        if (!p)
            return false;
        b->ids = p;
        b->id_capacity = ids;
    }
    return true;
}

static void batch_clear(struct queue_batch *b)
{
    b->n_runs = b->n_tokens = b->n_logits = b->input_runs = b->input_tokens = 0;
    b->buffer = NULL;
    b->slice = b->again = false;
}

void queue_batch_append(struct queue *q, struct queue_batch *b, const struct frame_run *run,
                        uint32_t row)
{
    const struct queue_sequence *s = queue_sequence_find(q, run->sequence);
    b->table[b->n_runs] = *run;
    b->runs[b->n_runs++] =
        (struct agent_run){*run, row, q->config.last && run->n_logits && !s->all_logits};
    b->n_tokens += run->n_tokens;
    b->n_logits += run->n_logits;
}

/* Handed out is as good as run: what follows runs after it. */
static void batch_handed_out(struct queue *q, const struct queue_batch *b)
{
    for (uint32_t i = 0; i < b->n_runs; i++) {
        struct queue_sequence *s = queue_sequence_find(q, b->runs[i].run.sequence);
        s->length += b->runs[i].run.n_tokens;
        s->awaiting = q->config.first && s->length >= s->n_prompt && !s->all_logits;
        s->awaited = b->number;
    }
}

bool queue_next(struct queue *q, struct queue_batch *out, uint64_t *dropped)
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

bool queue_dead_take(struct queue *q, struct queue_batch *out, uint64_t *dropped)
{
    if (!q->some_dead || q->config.first)
        return false;
    batch_clear(out);
    q->some_dead = queue_frames_dead(q, out, dropped);
    return q->some_dead;
}

void queue_done(struct queue *q, const struct queue_batch *b, uint64_t now_ns, double expected_s)
{
    q->progress_ns = now_ns;
    if (q->config.first)
        queue_flight_leave(q, b, now_ns, expected_s);
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
