/* Owns what the last stage makes of a batch: tokens for the coordinator and the first stage, logits
 * for who asked. */
#include "agent/core_tokens.h"

#include <stdlib.h>

#include "agent/core_drafts.h"
#include "agent/core_out.h"
#include "agent/core_posts.h"
#include "agent/core_sequences.h"
#include "agent/core_streams.h"
#include "agent/engine/sampler.h"
#include "common/vector.h"
#include "model/pooling.h"

/* Room for what a batch of `n` runs tells: tokens for the first stage, ids and rows for the
 * coordinator. */
static bool tokens_reserve(struct agent_core *c, uint32_t n)
{
    size_t most = (size_t)n * (1 + BATCH_MAX_DRAFTS);
    return vector_reserve(c->tokens, c->room_tokens, most) &&
           vector_reserve(c->told_ids, c->room_told, most) &&
           vector_reserve(c->said, c->room_said, n);
}

/* Room for a row of each run, where one is of a sequence that pools. */
static bool pooled_reserve(struct agent_core *c, const struct core_stage *s, const struct batch *b)
{
    bool pools = false;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct queue_sequence *q = queue_sequence_find(s->queue, b->runs[i].sequence);
        pools = pools || (q && ((const struct core_sequence *)q->owner)->open.pooling);
    }
    return !pools || vector_reserve(c->pooled, c->room_pooled, (size_t)b->n_runs * s->row_width);
}

static const char *token_finish(const struct core_sequence *own, uint32_t token)
{
    for (size_t i = 0; i < own->open.end_ids.count; i++)
        if (own->open.end_ids.items[i] == token)
            return "stop";
    return own->sampled >= own->open.max_tokens ? "length" : "";
}

/* A sequence's row of the batch's message; without ids: its output ends without a token. */
static void tokens_say(struct agent_core *c, struct core_sequence *own, struct pack_u32s ids,
                       const struct score *scores, uint32_t n_drafts, const char *finish)
{
    size_t n_scores = scores ? ids.count * own->open.said_scores : 0;
    own->ended = finish[0] != '\0';
    own->finish = finish;
    core_stream_said(c, own, ids.items, scores, ids.count);
    c->said[c->n_said++] =
        (struct message_said){.sequence = own->open.sequence,
                              .first = ids.count ? own->sampled - ids.count : 0,
                              .ids = ids,
                              .finish = finish,
                              .drafts = n_drafts,
                              .scores = {(const uint8_t *)scores, n_scores * sizeof *scores}};
}

static void tokens_send(struct agent_core *c, const struct core_stage *s,
                        const struct agent_event *done)
{
    uint64_t end =
        done->u.batch_done.due_ns ? done->u.batch_done.due_ns : done->u.batch_done.end_ns;
    struct message *m = c->n_said ? core_send(c, MESSAGE_TOKENS) : NULL;
    if (m)
        m->u.tokens = (struct message_tokens){.deployment = s->prepare.deployment,
                                              .generation = s->prepare.generation,
                                              .made_ns = end ? end : env_now_ns(c->env),
                                              .said = {c->said, c->n_said}};
}

static void logits_send(struct agent_core *c, struct core_stage *s, struct core_sequence *own,
                        const struct batch_run *run, const float *rows)
{
    uint32_t step = AGENT_LOGITS_MESSAGE_BYTES / (uint32_t)sizeof(float) / s->row_width;
    step = step ? step : 1;
    uint32_t first = run->first_position + run->n_tokens - run->n_logits;
    for (uint32_t i = 0; i < run->n_logits; i += step) {
        uint32_t n = run->n_logits - i < step ? run->n_logits - i : step;
        struct message *m = core_send(c, MESSAGE_LOGITS);
        if (m)
            m->u.logits =
                (struct message_logits){own->open.deployment,
                                        own->open.generation,
                                        own->open.sequence,
                                        first + i,
                                        n,
                                        {(const uint8_t *)(rows + (size_t)i * s->row_width),
                                         (size_t)n * s->row_width * sizeof(float)}};
    }
    if (own->open.prompt.count && run->first_position + run->n_tokens == own->open.prompt.count)
        tokens_say(c, own, (struct pack_u32s){0}, NULL, 0, "length");
}

/* Of the prompt's tokens in the run: rows of scores, a message's worth at a time. */
static void scores_send(struct agent_core *c, const struct core_sequence *own,
                        const struct batch_run *run, const struct score *scores)
{
    size_t row_bytes = run->scored_width * sizeof *scores;
    uint32_t step = AGENT_LOGITS_MESSAGE_BYTES / (uint32_t)row_bytes;
    for (uint32_t i = 0; i < run->n_scored; i += step) {
        uint32_t n = run->n_scored - i < step ? run->n_scored - i : step;
        struct message *m = core_send(c, MESSAGE_LOGITS);
        if (m)
            m->u.logits = (struct message_logits){
                own->open.deployment,
                own->open.generation,
                own->open.sequence,
                run->first_position + i,
                n,
                {(const uint8_t *)(scores + (size_t)i * run->scored_width), n * row_bytes}};
    }
}

/* One row for the text, which was one run. */
static void embedding_send(struct agent_core *c, struct core_stage *s, struct core_sequence *own,
                           const struct batch_run *run, const float *rows, float *row)
{
    if (run->first_position || run->n_tokens != own->open.prompt.count ||
        run->n_logits != run->n_tokens) {
        core_sequence_fail(c, s, run->sequence, HP_EINVAL,
                           "an encoder reads a text at once; this one came in parts");
        return;
    }
    struct message *m = core_send(c, MESSAGE_LOGITS);
    pooling_apply((enum model_pooling)own->open.pooling, rows, run->n_logits, s->row_width, row);
    if (m)
        m->u.logits = (struct message_logits){own->open.deployment,
                                              own->open.generation,
                                              own->open.sequence,
                                              0,
                                              1,
                                              {(const uint8_t *)row, s->row_width * sizeof(float)}};
    tokens_say(c, own, (struct pack_u32s){0}, NULL, 0, "length");
}

/* The text of the reason stays with the sampler; the words are for its two causes. */
static void sequence_stuck(struct agent_core *c, struct core_stage *s, const struct batch_run *run)
{
    core_sequence_fail(
        c, s, run->sequence, HP_ELIMIT,
        "the answer cannot go on: its grammar is too ambiguous or takes too long here, or the "
        "model's vocabulary has no token that the grammar allows");
}

/* What the last stage has made of a batch, and how much of it has been told. */
struct results {
    const struct batch *batch;
    const float *rows; /* as in batch_done, each at a run's batch_place */
    const uint32_t *picked;
    const struct score *scores;
    uint32_t room;           /* rows of the frame for guesses of what follows, for each run */
    uint32_t n_rows, n_told; /* of c->tokens, and of c->told_ids */
};

/* What was picked for a run: at the end and where a guess was wrong the rest is nothing. */
static void tokens_take(struct agent_core *c, struct core_stage *s, struct core_sequence *own,
                        const struct batch_run *run, struct results *r,
                        const struct batch_place *at)
{
    const uint32_t *picked = r->picked + at->pick;
    const struct score *scores =
        run->said_width && r->scores ? r->scores + at->score + batch_run_prompt_scores(run) : NULL;
    uint32_t *told = c->told_ids + r->n_told, n = 0;
    struct frame_token *rows = c->tokens + r->n_rows;
    const char *finish = "";
    bool goes_on = true;
    r->n_told += 1 + run->n_drafts;
    if (picked[0] == SAMPLER_NONE) {
        sequence_stuck(c, s, run);
        return;
    }
    while (goes_on) {
        told[n] = picked[n];
        own->sampled++;
        finish = token_finish(own, picked[n]);
        goes_on = !finish[0] && n < run->n_drafts &&
                  picked[n] == r->batch->ids[at->token + 1 + n] && picked[n + 1] != SAMPLER_NONE;
        n++;
    }
    core_drafts_ran(c, s, own, run, told, n - 1);
    tokens_say(c, own, (struct pack_u32s){told, n}, scores, run->n_drafts, finish);
    rows[0] = (struct frame_token){.sequence = run->sequence,
                                   .token = told[n - 1],
                                   .kind = finish[0] ? FRAME_TOKEN_LAST : FRAME_TOKEN_NEXT,
                                   .right = (uint16_t)(n - 1)};
    r->n_rows += 1 + (finish[0] ? 0 : core_drafts_say(s, own, r->room, rows + 1));
}

static void run_tell(struct agent_core *c, struct core_stage *s, struct core_sequence *own,
                     const struct batch_run *run, struct results *r, const struct batch_place *at)
{
    const float *rows = r->rows ? r->rows + (size_t)at->row * s->row_width : NULL;
    if (own->open.pooling && run->n_logits && rows)
        embedding_send(c, s, own, run, rows,
                       c->pooled + (size_t)(run - r->batch->runs) * s->row_width);
    else if (own->open.all_logits && run->n_logits && rows)
        logits_send(c, s, own, run, rows);
    if (r->scores && run->n_scored)
        scores_send(c, own, run, r->scores + at->score);
    if (!own->ended && run->sample)
        tokens_take(c, s, own, run, r, at);
}

void core_tokens_picked(struct agent_core *c, struct core_stage *s, const struct batch *b,
                        const struct agent_event *ev)
{
    struct results r = {.batch = b,
                        .rows = ev->u.batch_done.logits,
                        .picked = ev->u.batch_done.picked,
                        .scores = ev->u.batch_done.scores,
                        /* each run has its token, too */
                        .room = FRAME_MAX_RUNS / (b->n_runs ? b->n_runs : 1) - 1};
    struct batch_place at = {0};
    if (!tokens_reserve(c, b->n_runs) || !pooled_reserve(c, s, b)) {
        core_batch_fail(c, s, b, HP_ENOMEM, "no memory for tokens");
        core_tokens_post(c, s, b->number, 0);
        return;
    }
    c->n_said = 0;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct batch_run *run = &b->runs[i];
        struct queue_sequence *q = queue_sequence_find(s->queue, run->sequence);
        if (q)
            run_tell(c, s, q->owner, run, &r, &at);
        batch_place_pass(&at, run);
    }
    tokens_send(c, s, ev);
    core_tokens_post(c, s, b->number, r.n_rows);
}
