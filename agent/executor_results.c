/* Owns what the last stage makes of a batch: rows of logits, and the tokens picked from them. */
#include <stdlib.h>

#include "agent/engine/scores.h"
#include "agent/executor_int.h"

_Static_assert((int)STAGE_BATCHES == (int)SLOT_DEPTH,
               "rows to sample from are counted for as many batches as are under way");

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

struct own_sampler *executor_sampler_find(struct held_slot *h, uint64_t sequence)
{
    for (size_t i = 0; i < h->n_samplers; i++)
        if (h->samplers[i].sequence == sequence)
            return &h->samplers[i];
    return NULL;
}

/* ---- rows of logits ---- */

/* Rows that the core tells to somebody are kept until it has; the others only until they are
 * sampled from, so that all batches under way share a few. */
static struct logit_rows *rows_choose(struct executor *x, struct flight *f)
{
    const struct batch *b = f->run.batch;
    f->told = false;
    for (uint32_t i = 0; i < b->n_runs; i++)
        f->told = f->told || (b->runs[i].n_logits && !b->runs[i].sample);
    struct logit_rows *free_rows = x->sampled;
    while (free_rows->taken)
        free_rows++; /* there are as many as batches under way */
    return f->told ? &f->kept : free_rows;
}

/* What was promised when the slot was loaded is counted already. */
static bool rows_reserve(struct executor *x, struct logit_rows *rows, size_t n, size_t promised)
{
    size_t counted = rows->capacity > promised ? rows->capacity : promised;
    if (n > counted && !x->config.paced &&
        (n - counted) * sizeof *rows->rows > executor_memory_free(x))
        return false; /* beyond the limit */
    if (!room_reserve((void **)&rows->rows, &rows->capacity, n ? n : 1, sizeof *rows->rows))
        return false;
    if (n > counted) {
        atomic_fetch_add(&x->logits_bytes, (n - counted) * sizeof *rows->rows);
        executor_memory_note(x);
    }
    return true;
}

int executor_logits_take(struct executor *x, struct flight *f, struct err *e)
{
    const struct batch *b = f->run.batch;
    struct logit_rows *rows = rows_choose(x, f);
    size_t promised = f->told ? 0 : f->slot->sampled_bytes / STAGE_BATCHES / sizeof(float);
    if (!rows_reserve(x, rows, (size_t)b->n_logits * f->slot->row_width, promised))
        return err_set(e, HP_ENOMEM, "no memory for %u rows of logits within this agent's limit",
                       b->n_logits);
    rows->taken = true;
    f->logits = rows;
    return 0;
}

/* ---- scores ---- */

/* A row of logits, and where what it says of its token goes. */
struct scored_row {
    const float *row;
    size_t vocabulary;
    uint32_t token, width;
    struct score *out;
};

static void score_part(void *ctx, uint32_t part)
{
    const struct scored_row *r = (const struct scored_row *)ctx + part;
    scores_write(r->row, r->vocabulary, r->token, r->width, r->out);
}

/* Rows of the batch's tokens that are scored, from the `first` of these on. */
static void scored_see(void *ctx, uint32_t first, uint32_t n, const float *rows)
{
    const struct flight *f = ctx;
    struct executor *x = f->x;
    const struct batch *b = f->run.batch;
    struct batch_place place = {0};
    uint32_t at = 0, taken = 0; /* at: of all that are scored, where the run begins */
    for (uint32_t i = 0; i < b->n_runs && taken < n; i++) {
        const struct batch_run *run = &b->runs[i];
        struct score *out = f->scores + place.score;
        for (; taken < n && first + taken < at + run->n_scored; taken++) {
            uint32_t k = first + taken;
            x->scored[taken] =
                (struct scored_row){.row = rows + (size_t)taken * f->slot->row_width,
                                    .vocabulary = f->slot->row_width,
                                    .token = b->targets[k],
                                    .width = run->scored_width,
                                    .out = out + (size_t)(k - at) * run->scored_width};
        }
        at += run->n_scored;
        batch_place_pass(&place, run);
    }
    x->device->backend->host_spread(x->device, taken, score_part, x->scored);
}

/* As many rows at once as memory allows. */
static bool scored_rows_take(struct executor *x, struct flight *f, uint32_t n)
{
    n = n < FORWARD_LOGIT_ROWS ? n : FORWARD_LOGIT_ROWS;
    while (n && !rows_reserve(x, &f->scored, (size_t)n * f->slot->row_width, 0))
        n /= 2;
    f->scoring = (struct forward_scoring){f->scored.rows, n, scored_see, f};
    return n && room_reserve((void **)&x->scored, &x->scored_capacity, n, sizeof *x->scored);
}

int executor_scoring_take(struct executor *x, struct flight *f, const struct forward_scoring **out,
                          struct err *e)
{
    const struct batch *b = f->run.batch;
    struct batch_place end = {0};
    uint32_t n_scored = 0;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        batch_place_pass(&end, &b->runs[i]);
        n_scored += b->runs[i].n_scored;
    }
    *out = NULL;
    if (n_scored && !b->targets)
        return err_set(e, HP_EBUG, "a batch came without the tokens that are to be scored");
    if ((end.score &&
         !room_reserve((void **)&f->scores, &f->score_capacity, end.score, sizeof *f->scores)) ||
        (n_scored && !scored_rows_take(x, f, n_scored)))
        return err_set(e, HP_ENOMEM,
                       "no memory for the scores of %u tokens within this agent's limit", n_scored);
    if (n_scored)
        *out = &f->scoring;
    return 0;
}

/* ---- tokens that the device picks ---- */

bool executor_batches_have(const struct executor *x, uint64_t slot, uint64_t sequence)
{
    for (int i = 0; i < x->n_flying; i++) {
        const struct executor_run *r = &x->flights[(x->oldest + i) % SLOT_DEPTH].run;
        for (uint32_t k = 0; r->slot == slot && r->batch && k < r->batch->n_runs; k++)
            if (r->batch->runs[k].sequence == sequence)
                return true;
    }
    return false;
}

/* One token, of which nothing is said beside it, and no batch under way comes before it. */
static bool run_is_for_device(const struct executor *x, const struct flight *f,
                              const struct batch_run *run)
{
    return run->sample && run->n_drafts == 0 && run->said_width == 0 &&
           !executor_batches_have(x, f->run.slot, run->sequence);
}

static bool asks_reserve(struct flight *f, size_t n)
{
    size_t room = f->row_room;
    if (!room_reserve((void **)&f->asks, &room, n, sizeof *f->asks))
        return false;
    if (!room_reserve((void **)&f->row_picked, &f->row_room, n, sizeof *f->row_picked))
        return false;
    f->row_room = room;
    return true;
}

int executor_sampling_take(struct executor *x, struct flight *f,
                           const struct forward_sampling **out, struct err *e)
{
    const struct batch *b = f->run.batch;
    uint32_t row = 0;
    *out = NULL;
    f->sampling = false;
    if (!x->device->backend->sample || b->n_logits == 0 ||
        f->slot->row_width != f->slot->vocabulary)
        return 0;
    if (!asks_reserve(f, b->n_logits))
        return err_set(e, HP_ENOMEM, "no memory to sample %u sequences", b->n_runs);
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct batch_run *run = &b->runs[i];
        for (uint32_t k = 0; k < run->n_logits; k++)
            f->asks[row + k] = (struct sample_ask){0};
        row += run->n_logits;
        struct own_sampler *s = run->n_logits && run_is_for_device(x, f, run)
                                    ? executor_sampler_find(f->slot, run->sequence)
                                    : NULL;
        if (s && sampler_ask(s->sampler, &f->asks[row - 1]))
            f->sampling = true;
        else if (run->n_logits)
            f->asks[row - 1] = (struct sample_ask){0};
    }
    f->device_picks = (struct forward_sampling){f->asks, f->row_picked};
    *out = f->sampling ? &f->device_picks : NULL;
    return 0;
}

/* ---- tokens ---- */

/* The token of a run to be picked, and those after its guesses while these are right. */
struct pick {
    struct sampler *sampler;
    const float *row;
    size_t width;
    uint32_t found; /* what the device has picked of the first row; SAMPLE_IN_DOUBT: nothing */
    uint32_t *tokens;
    const uint32_t *drafts; /* [n_drafts] */
    uint32_t n_drafts;
    struct score *scores; /* [1 + n_drafts][said_width] */
    uint32_t said_width;
};

static void pick_part(void *ctx, uint32_t part)
{
    struct pick *p = (struct pick *)ctx + part;
    if (p->found != SAMPLE_IN_DOUBT) {
        p->tokens[0] = p->found;
        sampler_accept(p->sampler, p->found);
        return;
    }
    for (uint32_t k = 0; k <= p->n_drafts; k++) {
        const float *row = p->row + k * p->width;
        p->tokens[k] = sampler_pick(p->sampler, row);
        if (p->tokens[k] == SAMPLER_NONE)
            break;
        if (p->said_width)
            scores_write(row, p->width, p->tokens[k], p->said_width,
                         p->scores + (size_t)k * p->said_width);
        if (k < p->n_drafts && p->tokens[k] != p->drafts[k])
            break;
    }
}

/* What the next picks need, besides logits, is found while these are computed. */
static void picks_look_ahead(struct executor *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        look_ahead_add(x->ahead, x->picks[i].sampler);
}

/* What is to be picked for a run that stands there. HP_EBUG: it has no sampler. */
static int pick_fill(const struct flight *f, const struct batch_run *run,
                     const struct batch_place *at, struct pick *out, struct err *e)
{
    const struct own_sampler *s = executor_sampler_find(f->slot, run->sequence);
    size_t width = f->slot->row_width;
    uint32_t end = at->row + run->n_logits;
    bool found = f->sampling && run->n_drafts == 0;
    if (!s)
        return err_set(e, HP_EBUG, "sequence %llu has no sampler",
                       (unsigned long long)run->sequence);
    *out = (struct pick){.sampler = s->sampler,
                         .row = f->logits->rows + (size_t)(end - 1 - run->n_drafts) * width,
                         .width = width,
                         .found = found ? f->row_picked[end - 1] : SAMPLE_IN_DOUBT,
                         .tokens = f->picked + at->pick,
                         .drafts = run->n_drafts ? f->run.batch->ids + at->token + 1 : NULL,
                         .n_drafts = run->n_drafts,
                         .scores = f->scores ? f->scores + at->score + batch_run_prompt_scores(run)
                                             : NULL,
                         .said_width = run->said_width};
    return 0;
}

/* Sequences are sampled side by side. */
int executor_tokens_pick(struct executor *x, struct flight *f, struct err *e)
{
    const struct batch *b = f->run.batch;
    struct batch_place at = {0};
    uint32_t n = 0, places = b->n_runs;
    int rc = 0;
    for (uint32_t i = 0; i < b->n_runs; i++)
        places += b->runs[i].n_drafts;
    if (!room_reserve((void **)&x->picks, &x->pick_capacity, b->n_runs, sizeof *x->picks) ||
        !room_reserve((void **)&f->picked, &f->picked_capacity, places, sizeof *f->picked))
        return err_set(e, HP_ENOMEM, "no memory to sample %u sequences", b->n_runs);
    for (uint32_t i = 0; rc == 0 && i < b->n_runs; i++) {
        if (b->runs[i].sample)
            rc = pick_fill(f, &b->runs[i], &at, &x->picks[n++], e);
        batch_place_pass(&at, &b->runs[i]);
    }
    if (rc < 0)
        return rc;
    look_ahead_stop(x->ahead);
    if (n == 1)
        pick_part(x->picks, 0);
    else if (n)
        x->device->backend->host_spread(x->device, n, pick_part, x->picks);
    picks_look_ahead(x, n);
    return 0;
}

void executor_results_free(struct executor *x)
{
    for (int i = 0; i < SLOT_DEPTH; i++) {
        free(x->flights[i].kept.rows);
        free(x->flights[i].picked);
        free(x->flights[i].scores);
        free(x->flights[i].scored.rows);
        free(x->flights[i].asks);
        free(x->flights[i].first_rows);
        free(x->flights[i].row_picked);
        free(x->sampled[i].rows);
    }
    free(x->picks);
    free(x->scored);
}
