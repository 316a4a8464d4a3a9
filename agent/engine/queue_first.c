/* Owns how the first stage makes batches of prompts and tokens, and how many are on their way. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/queue_int.h"
#include "common/vector.h"

static struct queue_flight *flight_free(struct queue *q, uint32_t *slices)
{
    struct queue_flight *found = NULL;
    *slices = 0;
    for (uint32_t i = 0; i < q->n_flights; i++) {
        if (!q->flights[i].used)
            found = &q->flights[i];
        else
            *slices += q->flights[i].slice;
    }
    return found;
}

static bool flight_start(struct queue_flight *f, const struct batch *b)
{
    if (!vector_reserve(f->live, f->capacity, b->n_runs))
        return false;
    for (uint32_t i = 0; i < b->n_runs; i++)
        f->live[i] = b->runs[i].sequence;
    f->n_live = b->n_runs;
    f->number = b->number;
    f->n_tokens = b->n_tokens;
    f->slice = b->slice;
    f->left = false;
    f->deadline_ns = UINT64_MAX;
    f->used = true;
    return true;
}

static bool sequence_prefills(const struct queue_sequence *s)
{
    return s->ready && s->length < s->n_prompt;
}

/* Prompts take turns: the next one after that which had the last slice. */
static struct queue_sequence *prompt_next(const struct queue *q)
{
    struct queue_sequence *lowest = NULL;
    for (size_t i = 0; i < q->n_sequences; i++) {
        struct queue_sequence *s = q->sequences[i];
        if (!sequence_prefills(s))
            continue;
        if (s->id > q->last_sliced)
            return s;
        lowest = lowest ? lowest : s;
    }
    return lowest;
}

/* Tokens of a prompt's next slice; of one that was cut, what is left of it. */
static uint32_t slice_tokens(const struct queue_sequence *s)
{
    return s->slice_left ? s->slice_left
           : s->n_slices ? s->slices[s->next_slice]
                         : s->n_prompt - s->length;
}

/* The same, cut to what a batch may have, and to what may run beside those that decode. */
static uint32_t slice_cut(const struct queue *q, const struct queue_sequence *s, uint32_t decoding)
{
    uint32_t n = slice_tokens(s), most = q->config.max_batch_tokens;
    if (decoding && q->config.beside_tokens && q->config.beside_tokens < most)
        most = q->config.beside_tokens;
    return n < most ? n : most;
}

/* Rows of logits that the last stage has room for. */
static uint32_t logits_most(const struct queue *q)
{
    return q->config.max_sequences > 1 + BATCH_MAX_DRAFTS ? q->config.max_sequences
                                                          : 1 + BATCH_MAX_DRAFTS;
}

/* Appends the next slice of a prompt, or what may run of it now. */
static bool slice_append(struct queue *q, struct batch *b, const struct queue_sequence *s,
                         uint32_t taken)
{
    if (b->n_tokens + taken > q->most_tokens || taken > q->config.max_batch_tokens - b->n_tokens ||
        !batch_reserve(b, b->n_runs + 1, b->n_tokens + taken))
        return false;
    bool final = s->length + taken == s->n_prompt;
    struct batch_run run = {.sequence = s->id,
                            .first_position = s->length,
                            .n_tokens = taken,
                            .n_logits = s->all_logits ? taken : final};
    memcpy(b->ids + b->n_tokens, s->prompt + s->length, taken * sizeof *b->ids);
    queue_run_append(q, b, &run, b->n_tokens);
    b->slice = true;
    q->last_sliced = s->id;
    return true;
}

/* Prompts of which one batch may have a slice: as with decode steps, all stages are to be busy. */
static uint32_t slices_most(const struct queue *q)
{
    uint32_t n = 0;
    for (size_t i = 0; i < q->n_sequences; i++)
        n += sequence_prefills(q->sequences[i]);
    return (n + q->config.n_stages - 1) / q->config.n_stages;
}

/* Appends the next slice of the prompt whose turn it is, or what may run of it now; and whole
 * slices of those whose turn is next, as long as all are so few tokens that reading the weights
 * once for all of them pays. */
static bool slices_make(struct queue *q, struct batch *b, uint32_t decoding)
{
    const struct queue_sequence *s = prompt_next(q);
    uint32_t most = slices_most(q), tokens = 0, room = QUEUE_RIDE_TOKENS;
    if (decoding && q->config.beside_tokens && q->config.beside_tokens < room)
        room = q->config.beside_tokens;
    for (uint32_t n = 0; n < most && b->n_runs < FRAME_MAX_RUNS; n++, s = prompt_next(q)) {
        uint32_t taken = slice_cut(q, s, decoding);
        bool joins = taken == slice_tokens(s) && !s->all_logits && tokens + taken <= room &&
                     b->n_logits < logits_most(q);
        if ((n && !joins) || !slice_append(q, b, s, taken))
            return n > 0;
        tokens += taken;
        if (s->all_logits)
            return true;
    }
    return most > 0;
}

/* The one that waits longest among those with a token to run. */
static struct queue_sequence *token_oldest(struct queue *q, uint64_t after)
{
    struct queue_sequence *oldest = NULL;
    for (size_t i = 0; i < q->n_sequences; i++) {
        struct queue_sequence *s = q->sequences[i];
        if (s->has_token && s->token_order > after && queue_sequence_room(s, s->length) &&
            (!oldest || s->token_order < oldest->token_order))
            oldest = s;
    }
    return oldest;
}

/* Guesses that a batch of `limit` decode tokens may have beside these: the last stage has rows of
 * logits for so many. */
static uint32_t drafts_most(const struct queue *q, uint32_t limit)
{
    uint32_t most = logits_most(q);
    most = most < q->config.max_batch_tokens ? most : q->config.max_batch_tokens;
    most = most < q->most_tokens ? most : q->most_tokens;
    return most > limit ? most - limit : 0;
}

static bool decode_make(struct queue *q, struct batch *b, uint32_t decoding)
{
    uint32_t limit = (decoding + q->config.n_stages - 1) / q->config.n_stages;
    limit = limit < q->config.max_batch_tokens ? limit : q->config.max_batch_tokens;
    limit = limit < FRAME_MAX_RUNS ? limit : FRAME_MAX_RUNS;
    limit = limit < q->most_tokens ? limit : q->most_tokens;
    if (!limit || !batch_reserve(b, limit, limit))
        return false;
    uint64_t after = 0;
    uint32_t guesses = drafts_most(q, limit);
    struct queue_sequence *s;
    while (b->n_runs < limit && (s = token_oldest(q, after)) != NULL) {
        after = s->token_order;
        uint32_t n = s->n_drafts < guesses ? s->n_drafts : guesses,
                 room = queue_sequence_room(s, s->length) - 1;
        n = n < room ? n : room;
        if (n && !batch_reserve(b, limit, b->n_tokens + n + limit - b->n_runs))
            n = 0;
        struct batch_run run = {.sequence = s->id,
                                .first_position = s->length,
                                .n_tokens = 1 + n,
                                .n_logits = 1 + n,
                                .n_drafts = n};
        b->ids[b->n_tokens] = s->token;
        memcpy(b->ids + b->n_tokens + 1, s->drafts, n * sizeof *b->ids);
        queue_run_append(q, b, &run, b->n_tokens);
        guesses -= n;
    }
    return b->n_runs > 0;
}

/* Decode tokens and a slice in one batch, for which the weights are read once. That pays for slices
 * of which reading the weights is a good part, and where a batch goes through one stage: a stream's
 * next token is there after the batch, instead of after the slice and then a decode step. In a
 * pipeline a token that rides reaches the end a slice later than one that follows the slice before.
 */
static bool ride_make(struct queue *q, struct batch *b, uint32_t decoding)
{
    const struct queue_sequence *s = prompt_next(q);
    if (q->config.n_stages > 1 || !s || slice_cut(q, s, decoding) > QUEUE_RIDE_TOKENS)
        return false;
    uint32_t most =
        q->most_tokens < q->config.max_batch_tokens ? q->most_tokens : q->config.max_batch_tokens;
    bool fits = decoding < FRAME_MAX_RUNS && (uint64_t)slice_cut(q, s, decoding) + decoding <= most;
    if (!fits || !decode_make(q, b, decoding))
        return false;
    slices_make(q, b, decoding); /* without memory for it the tokens go alone */
    return true;
}

/* A slice that runs is taken from what is left of its prompt; a token that runs is no longer
 * waiting. */
static void batch_take(struct queue *q, const struct batch *b)
{
    for (uint32_t i = 0; i < b->n_runs; i++) {
        struct queue_sequence *s = queue_sequence_find(q, b->runs[i].sequence);
        uint32_t n = b->runs[i].n_tokens;
        bool prefilling = s->length < s->n_prompt;
        s->has_token = false;
        if (!prefilling || !s->n_slices)
            continue;
        s->slice_left = slice_tokens(s) - n;
        s->next_slice += s->slice_left == 0;
    }
}

/* Slices that may be on their way at once: as many as there are stages while anybody answers, whose
 * steps they hold up; two for each where all are prompts, since with one none of the stages would
 * have anything to do while word of the last one's end is on its way, or a short batch waits for a
 * long one. Who awaits a first token does not answer yet. */
static uint32_t slices_on_way_most(const struct queue *q)
{
    bool answers = false;
    for (size_t i = 0; i < q->n_sequences; i++) {
        const struct queue_sequence *s = q->sequences[i];
        answers = answers || s->has_token || (s->length > s->n_prompt && !s->finished);
    }
    return answers ? q->config.n_stages : 2 * q->config.n_stages;
}

bool queue_first_next(struct queue *q, struct batch *b)
{
    uint32_t slices, decoding = 0;
    struct queue_flight *f = flight_free(q, &slices);
    if (!f)
        return false;
    for (size_t i = 0; i < q->n_sequences; i++)
        decoding += q->sequences[i]->awaiting ||
                    (q->sequences[i]->has_token &&
                     queue_sequence_room(q->sequences[i], q->sequences[i]->length));
    bool room = slices < slices_on_way_most(q);
    bool decodes_first = q->slice_was_last || !room;
    bool made = (room && ride_make(q, b, decoding)) ||
                (decodes_first && decode_make(q, b, decoding)) ||
                (room && slices_make(q, b, decoding)) || decode_make(q, b, decoding);
    b->number = q->next_number;
    if (!made || !flight_start(f, b))
        return false;
    q->next_number++;
    b->input_runs = b->n_runs;
    b->input_tokens = b->n_tokens;
    batch_take(q, b);
    return true;
}

/* ---- flights: what left, until it has been through ---- */

static struct queue_flight *flight_find(struct queue *q, uint32_t number)
{
    for (uint32_t i = 0; i < q->n_flights; i++)
        if (q->flights[i].used && q->flights[i].number == number)
            return &q->flights[i];
    return NULL;
}

void queue_flight_leave(struct queue *q, const struct batch *b, uint64_t now_ns, double expected_s)
{
    struct queue_flight *f = flight_find(q, b->number);
    if (!f)
        return;
    f->left = true;
    f->left_ns = now_ns;
    f->limit_ns = f->n_live ? q->config.flight_limit_ns + (uint64_t)(10e9 * expected_s)
                            : q->config.flight_linger_ns;
    f->deadline_ns = now_ns + f->limit_ns;
}

void queue_flights_renew(struct queue *q, uint64_t now_ns)
{
    for (uint32_t i = 0; i < q->n_flights; i++) {
        struct queue_flight *f = &q->flights[i];
        if (f->used && f->left && f->n_live)
            f->deadline_ns = now_ns + f->limit_ns;
    }
}

void queue_returned(struct queue *q, uint32_t number, uint64_t now_ns)
{
    struct queue_flight *f = flight_find(q, number);
    if (!f)
        return;
    f->used = false;
    q->heard_ns = now_ns;
    q->heard_number = number;
}

void queue_flights_clear(struct queue *q)
{
    for (uint32_t i = 0; i < q->n_flights; i++)
        q->flights[i].used = false;
}

void queue_flights_forget(struct queue *q, uint64_t id, uint64_t now_ns)
{
    for (uint32_t i = 0; i < q->n_flights; i++) {
        struct queue_flight *f = &q->flights[i];
        bool lived = f->used && f->n_live > 0;
        for (uint32_t k = 0; f->used && k < f->n_live; k++)
            if (f->live[k] == id)
                f->live[k--] = f->live[--f->n_live];
        uint64_t linger = now_ns + q->config.flight_linger_ns;
        if (lived && !f->n_live && f->left && linger < f->deadline_ns)
            f->deadline_ns = linger;
    }
}

uint64_t queue_flights_deadline_ns(const struct queue *q)
{
    uint64_t at = UINT64_MAX;
    for (uint32_t i = 0; i < q->n_flights; i++)
        if (q->flights[i].used && q->flights[i].deadline_ns < at)
            at = q->flights[i].deadline_ns;
    return at;
}

bool queue_flight_expire(struct queue *q, uint64_t now_ns, struct queue_overdue *out)
{
    for (uint32_t i = 0; i < q->n_flights; i++) {
        struct queue_flight *f = &q->flights[i];
        if (!f->used || f->deadline_ns > now_ns)
            continue;
        f->used = false;
        *out = (struct queue_overdue){.number = f->number,
                                      .n_tokens = f->n_tokens,
                                      .away_s = (double)(now_ns - f->left_ns) * 1e-9,
                                      .heard = q->heard_ns > 0,
                                      .heard_number = q->heard_number,
                                      .heard_s = (double)(now_ns - q->heard_ns) * 1e-9,
                                      .live = f->live,
                                      .n_live = f->n_live};
        return true;
    }
    return false;
}

static bool draft_take(struct queue_sequence *s, uint32_t number, uint32_t token)
{
    if (!s->has_token || s->awaited != number || s->n_drafts == BATCH_MAX_DRAFTS)
        return false;
    s->drafts[s->n_drafts++] = token;
    return true;
}

bool queue_token(struct queue *q, uint32_t number, const struct frame_token *t)
{
    struct queue_sequence *s = queue_sequence_find(q, t->sequence);
    if (s && t->kind == FRAME_TOKEN_DRAFT)
        return draft_take(s, number, t->token);
    if (!s || !s->awaiting || s->awaited != number || t->right > s->length - s->certain)
        return false;
    s->length = s->certain += t->right;
    s->awaiting = false;
    s->finished = t->kind == FRAME_TOKEN_LAST;
    s->has_token = !s->finished;
    s->token = t->token;
    s->n_drafts = 0;
    s->token_order = ++q->token_order;
    return true;
}
