/* Owns the order of batches on one stage. Refuses to know of threads, messages and models. */
#include "agent/engine/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct frame_entry {
    uint32_t number;
    struct frame_run *runs;
    uint32_t n_runs, n_tokens, run_capacity;
    void *buffer;
    uint64_t arrived_ns;
};

struct flight {
    bool used, slice;
    uint32_t number;
    uint64_t *live; /* sequences of the batch that are still open */
    uint32_t n_live, capacity;
};

struct queue {
    struct queue_config config;
    struct queue_sequence **sequences; /* by id */
    size_t n_sequences;
    uint64_t highest;
    uint64_t early[QUEUE_EARLY_CLOSES]; /* closed before they were opened */
    size_t early_at;
    struct frame_entry *frames; /* the first n_frames wait, in order of arrival; the rest keeps its memory */
    uint32_t n_frames, max_frames;
    struct flight *flights; /* first stage: [2 * n_stages] */
    uint32_t n_flights, next_number;
    uint64_t token_order;
    uint64_t progress_ns; /* when a batch last ran */
    bool slice_was_last;
};

void queue_batch_free(struct queue_batch *b)
{
    free(b->runs);
    free(b->table);
    free(b->ids);
    memset(b, 0, sizeof *b);
}

int queue_create(const struct queue_config *c, struct queue **out, struct err *e)
{
    if (c->n_stages < 1 || c->n_stages > QUEUE_MAX_STAGES || !c->max_batch_tokens || !c->max_sequences)
        return err_set(e, HP_EINVAL, "a pipeline has 1 to %d stages, and batches and sequences of at least one", QUEUE_MAX_STAGES);
    struct queue *q = calloc(1, sizeof *q);
    if (!q)
        return err_set(e, HP_ENOMEM, "no memory for a queue");
    q->config = *c;
    q->max_frames = 4 * c->n_stages + 16;
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

/* ---- sequences ------------------------------------------------------------------------------------------------- */

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

static bool closed_early(const struct queue *q, uint64_t id)
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
        return err_set(e, HP_EINVAL, "a prompt of %u tokens in slices of %llu", s->n_prompt, (unsigned long long)sum);
    return 0;
}

int queue_sequence_open(struct queue *q, const struct queue_sequence *s, struct err *e)
{
    if (queue_sequence_find(q, s->id))
        return err_set(e, HP_EEXIST, "sequence %llu is open already", (unsigned long long)s->id);
    if (s->id <= q->highest || closed_early(q, s->id)) {
        q->highest = s->id > q->highest ? s->id : q->highest;
        return err_set(e, HP_ECANCELED, "sequence %llu was closed", (unsigned long long)s->id);
    }
    int rc = prompt_check(q, s, e);
    if (rc < 0)
        return rc;
    if (q->n_sequences == q->config.max_sequences)
        return err_set(e, HP_EBUSY, "%u sequences are open, the most that this stage was made for", q->config.max_sequences);
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

static void flights_forget(struct queue *q, uint64_t id)
{
    for (uint32_t i = 0; i < q->n_flights; i++) {
        struct flight *f = &q->flights[i];
        for (uint32_t k = 0; f->used && k < f->n_live; k++)
            if (f->live[k] == id)
                f->live[k--] = f->live[--f->n_live];
        f->used = f->used && f->n_live > 0;
    }
}

void *queue_sequence_close(struct queue *q, uint64_t id)
{
    size_t i = sequence_place(q, id);
    if (i == q->n_sequences || q->sequences[i]->id != id) {
        if (id > q->highest && !closed_early(q, id))
            q->early[q->early_at++ % QUEUE_EARLY_CLOSES] = id;
        return NULL;
    }
    void *owner = q->sequences[i]->owner;
    free(q->sequences[i]);
    q->n_sequences--;
    memmove(&q->sequences[i], &q->sequences[i + 1], (q->n_sequences - i) * sizeof *q->sequences);
    flights_forget(q, id);
    return owner;
}

/* ---- batches --------------------------------------------------------------------------------------------------- */

static bool batch_reserve(struct queue_batch *b, uint32_t runs, uint32_t ids)
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
    b->slice = false;
}

static void batch_append(struct queue *q, struct queue_batch *b, const struct frame_run *run, uint32_t row)
{
    const struct queue_sequence *s = queue_sequence_find(q, run->sequence);
    b->table[b->n_runs] = *run;
    b->runs[b->n_runs++] = (struct agent_run){*run, row, q->config.last && run->n_logits && !s->all_logits};
    b->n_tokens += run->n_tokens;
    b->n_logits += run->n_logits;
}

/* ---- the first stage makes batches ----------------------------------------------------------------------------- */

static struct flight *flight_free(struct queue *q, uint32_t *slices)
{
    struct flight *found = NULL;
    *slices = 0;
    for (uint32_t i = 0; i < q->n_flights; i++) {
        if (!q->flights[i].used)
            found = &q->flights[i];
        else
            *slices += q->flights[i].slice;
    }
    return found;
}

static bool flight_start(struct flight *f, const struct queue_batch *b)
{
    if (b->n_runs > f->capacity) {
        uint64_t *p = realloc(f->live, b->n_runs * sizeof *p);
        if (!p)
            return false;
        f->live = p;
        f->capacity = b->n_runs;
    }
    for (uint32_t i = 0; i < b->n_runs; i++)
        f->live[i] = b->runs[i].run.sequence;
    f->n_live = b->n_runs;
    f->number = b->number;
    f->slice = b->slice;
    f->used = true;
    return true;
}

static bool prefills(const struct queue_sequence *s)
{
    return s->ready && s->length < s->n_prompt;
}

static bool slice_make(struct queue *q, struct queue_batch *b)
{
    struct queue_sequence *s = NULL;
    for (size_t i = 0; i < q->n_sequences && !s; i++)
        if (prefills(q->sequences[i]))
            s = q->sequences[i];
    if (!s)
        return false;
    uint32_t n = s->slice_left ? s->slice_left : s->n_slices ? s->slices[s->next_slice] : s->n_prompt - s->length;
    uint32_t taken = n < q->config.max_batch_tokens ? n : q->config.max_batch_tokens;
    if (!batch_reserve(b, 1, taken))
        return false;
    bool final = s->length + taken == s->n_prompt;
    struct frame_run run = {s->id, s->length, taken, s->all_logits ? taken : final, 0};
    memcpy(b->ids, s->prompt + s->length, taken * sizeof *b->ids);
    batch_append(q, b, &run, 0);
    b->slice = true;
    return true;
}

/* The one that waits longest among those with a token to run. */
static struct queue_sequence *token_oldest(struct queue *q, uint64_t after)
{
    struct queue_sequence *oldest = NULL;
    for (size_t i = 0; i < q->n_sequences; i++) {
        struct queue_sequence *s = q->sequences[i];
        if (s->has_token && s->token_order > after && (!oldest || s->token_order < oldest->token_order))
            oldest = s;
    }
    return oldest;
}

static bool decode_make(struct queue *q, struct queue_batch *b, uint32_t decoding)
{
    uint32_t limit = (decoding + q->config.n_stages - 1) / q->config.n_stages;
    limit = limit < q->config.max_batch_tokens ? limit : q->config.max_batch_tokens;
    limit = limit < FRAME_MAX_RUNS ? limit : FRAME_MAX_RUNS;
    if (!limit || !batch_reserve(b, limit, limit))
        return false;
    uint64_t after = 0;
    struct queue_sequence *s;
    while (b->n_runs < limit && (s = token_oldest(q, after)) != NULL) {
        after = s->token_order;
        struct frame_run run = {s->id, s->length, 1, 1, 0};
        b->ids[b->n_tokens] = s->token;
        batch_append(q, b, &run, b->n_tokens);
    }
    return b->n_runs > 0;
}

/* A slice that runs is taken from what is left of its prompt; a token that runs is no longer waiting. */
static void batch_take(struct queue *q, const struct queue_batch *b)
{
    for (uint32_t i = 0; i < b->n_runs; i++) {
        struct queue_sequence *s = queue_sequence_find(q, b->runs[i].run.sequence);
        uint32_t n = b->runs[i].run.n_tokens;
        s->has_token = false;
        if (!b->slice || !s->n_slices)
            continue;
        uint32_t whole = s->slice_left ? s->slice_left : s->slices[s->next_slice];
        s->slice_left = whole - n;
        s->next_slice += s->slice_left == 0;
    }
}

static bool first_next(struct queue *q, struct queue_batch *b)
{
    uint32_t slices, decoding = 0;
    struct flight *f = flight_free(q, &slices);
    if (!f)
        return false;
    for (size_t i = 0; i < q->n_sequences; i++)
        decoding += q->sequences[i]->has_token || q->sequences[i]->awaiting;
    bool room = slices < (decoding ? q->config.n_stages : 2 * q->config.n_stages);
    bool decodes_first = q->slice_was_last || !room;
    bool made = (decodes_first && decode_make(q, b, decoding)) || (room && slice_make(q, b)) || decode_make(q, b, decoding);
    b->number = q->next_number;
    if (!made || !flight_start(f, b))
        return false;
    q->next_number++;
    b->input_runs = b->n_runs;
    b->input_tokens = b->n_tokens;
    batch_take(q, b);
    return true;
}

void queue_returned(struct queue *q, uint32_t number)
{
    for (uint32_t i = 0; i < q->n_flights; i++)
        if (q->flights[i].used && q->flights[i].number == number)
            q->flights[i].used = false;
}

bool queue_token(struct queue *q, uint64_t id, uint32_t token, bool finished)
{
    struct queue_sequence *s = queue_sequence_find(q, id);
    if (!s || !s->awaiting)
        return false;
    s->awaiting = false;
    s->finished = finished;
    s->has_token = !finished;
    s->token = token;
    s->token_order = ++q->token_order;
    return true;
}

/* ---- the other stages take frames ------------------------------------------------------------------------------ */

enum run_fate { RUN_DUE, RUN_WAITS, RUN_DROPPED };

static enum run_fate run_fate(const struct queue *q, const struct frame_run *r, bool *hopeless)
{
    *hopeless = false;
    const struct queue_sequence *s = queue_sequence_find(q, r->sequence);
    if (!s && (r->sequence <= q->highest || closed_early(q, r->sequence)))
        return RUN_DROPPED;
    if (s && r->first_position < s->length)
        return RUN_DROPPED;
    *hopeless = !s || (s->ready && r->first_position > s->length); /* unless something comes */
    return s && s->ready && r->first_position == s->length ? RUN_DUE : RUN_WAITS;
}

int queue_frame_add(struct queue *q, uint32_t number, const struct frame_run *runs, uint32_t n_runs, uint32_t n_tokens, void *buffer, uint64_t now_ns)
{
    if (n_tokens > q->config.max_batch_tokens)
        return HP_EINVAL;
    if (q->n_frames == q->max_frames)
        return HP_EBUSY;
    struct frame_entry *f = &q->frames[q->n_frames];
    if (n_runs > f->run_capacity) {
        struct frame_run *p = realloc(f->runs, n_runs * sizeof *p);
        if (!p)
            return HP_ENOMEM;
        f->runs = p;
        f->run_capacity = n_runs;
    }
    if (n_runs)
        memcpy(f->runs, runs, n_runs * sizeof *runs);
    f->number = number;
    f->n_runs = n_runs;
    f->n_tokens = n_tokens;
    f->buffer = buffer;
    f->arrived_ns = now_ns;
    q->n_frames++;
    return 0;
}

static bool frame_is_slice(const struct frame_entry *f)
{
    for (uint32_t i = 0; i < f->n_runs; i++)
        if (f->runs[i].n_tokens > 1)
            return true;
    return false;
}

static bool frame_due(const struct queue *q, const struct frame_entry *f)
{
    bool hopeless;
    for (uint32_t i = 0; i < f->n_runs; i++)
        if (run_fate(q, &f->runs[i], &hopeless) == RUN_WAITS)
            return false;
    return true;
}

/* The due frame of the kind that has its turn with the lowest batch number; -1 when none is due. */
static int frame_choose(const struct queue *q)
{
    int best = -1;
    bool best_turn = false;
    for (uint32_t i = 0; i < q->n_frames; i++) {
        const struct frame_entry *f = &q->frames[i];
        if (!frame_due(q, f))
            continue;
        bool turn = frame_is_slice(f) != q->slice_was_last;
        bool earlier = best >= 0 && (int32_t)(f->number - q->frames[best].number) < 0;
        if (best < 0 || (turn && !best_turn) || (turn == best_turn && earlier)) {
            best = (int)i;
            best_turn = turn;
        }
    }
    return best;
}

static void frame_remove(struct queue *q, uint32_t i)
{
    struct frame_entry gone = q->frames[i];
    q->n_frames--;
    memmove(&q->frames[i], &q->frames[i + 1], (q->n_frames - i) * sizeof gone);
    gone.buffer = NULL;
    q->frames[q->n_frames] = gone; /* its run table is used again */
}

static bool later_next(struct queue *q, struct queue_batch *b, uint64_t *dropped)
{
    int i = frame_choose(q);
    if (i < 0 || !batch_reserve(b, q->frames[i].n_runs, 0))
        return false;
    const struct frame_entry *f = &q->frames[i];
    uint32_t row = 0;
    bool hopeless;
    for (uint32_t k = 0; k < f->n_runs; k++) {
        if (run_fate(q, &f->runs[k], &hopeless) == RUN_DUE)
            batch_append(q, b, &f->runs[k], row);
        else
            ++*dropped;
        row += f->runs[k].n_tokens;
    }
    b->number = f->number;
    b->slice = frame_is_slice(f);
    b->buffer = f->buffer;
    b->input_runs = f->n_runs;
    b->input_tokens = f->n_tokens;
    frame_remove(q, (uint32_t)i);
    return true;
}

bool queue_next(struct queue *q, struct queue_batch *out, uint64_t *dropped)
{
    batch_clear(out);
    bool found = q->config.first ? first_next(q, out) : later_next(q, out, dropped);
    if (found && out->n_runs)
        q->slice_was_last = out->slice;
    return found;
}

void queue_done(struct queue *q, const struct queue_batch *b, bool ok, uint64_t now_ns)
{
    q->progress_ns = now_ns;
    for (uint32_t i = 0; ok && i < b->n_runs; i++) {
        struct queue_sequence *s = queue_sequence_find(q, b->runs[i].run.sequence);
        if (!s)
            continue;
        s->length += b->runs[i].run.n_tokens;
        s->awaiting = q->config.first && s->length >= s->n_prompt && !s->all_logits;
    }
}

/* ---- what waits too long --------------------------------------------------------------------------------------- */

static uint64_t frame_deadline(const struct queue *q, const struct frame_entry *f)
{
    uint64_t from = f->arrived_ns > q->progress_ns ? f->arrived_ns : q->progress_ns;
    return from + q->config.hold_limit_ns;
}

uint64_t queue_deadline_ns(const struct queue *q)
{
    uint64_t at = UINT64_MAX;
    for (uint32_t i = 0; i < q->n_frames; i++) {
        uint64_t d = frame_deadline(q, &q->frames[i]);
        at = d < at ? d : at;
    }
    return at;
}

size_t queue_expire(struct queue *q, uint64_t now_ns, uint64_t *ids, size_t max)
{
    size_t n = 0;
    if (frame_choose(q) >= 0)
        return 0; /* something still moves */
    for (uint32_t i = 0; i < q->n_frames; i++) {
        struct frame_entry *f = &q->frames[i];
        bool hopeless;
        for (uint32_t k = 0; frame_deadline(q, f) <= now_ns && k < f->n_runs && n < max; k++)
            if (run_fate(q, &f->runs[k], &hopeless) == RUN_WAITS && hopeless)
                ids[n++] = f->runs[k].sequence;
    }
    return n;
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
