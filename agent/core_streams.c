/* Owns what outlives a coordinator: of sequences with a stream the tokens that the last stage has
 * said, also for a while after their end, so that the next coordinator can be told all of them. */
#include "agent/core_streams.h"

#include <stdlib.h>
#include <string.h>

#include "agent/core_out.h"
#include "common/vector.h"

/* Tokens and scores in one message, as words: a quarter of the bytes that it may have; a single row
 * may have more. */
enum { TOLD_MOST_WORDS = 2 << 20 };

static bool stream_is_told(const struct core_stage *s, const struct core_sequence *own)
{
    return own->open.stream && core_stage_is_last(s) && !own->open.all_logits;
}

/* Where memory is short they are left out: the answer is shorter than `sampled` says. */
static void answer_add(struct core_sequence *own, const uint32_t *ids, size_t n)
{
    if (!n || !vector_reserve(own->answer, own->room_answer, own->n_answer + n))
        return;
    memcpy(own->answer + own->n_answer, ids, n * sizeof *ids);
    own->n_answer += n;
}

/* Those of all its tokens or none: where there is no room for more they are forgotten. */
static void scores_drop(struct agent_core *c, struct core_sequence *own)
{
    c->scores_bytes -= own->n_scores * sizeof *own->scores;
    free(own->scores);
    own->scores = NULL;
    own->n_scores = own->room_scores = 0;
}

static void scores_add(struct agent_core *c, struct core_sequence *own, const struct score *scores,
                       size_t n)
{
    size_t before = own->open.said_scores * (own->n_answer - n), more = own->open.said_scores * n,
           bytes = more * sizeof *scores;
    if (!more || own->n_scores != before) /* or it had some elsewhere */
        return;
    if (!scores || c->scores_bytes + bytes > AGENT_SCORES_BYTES ||
        !vector_reserve(own->scores, own->room_scores, before + more)) {
        scores_drop(c, own);
        return;
    }
    memcpy(own->scores + before, scores, bytes);
    own->n_scores += more;
    c->scores_bytes += bytes;
}

static struct pack_span scores_span(const struct score *scores, size_t n)
{
    return (struct pack_span){(const uint8_t *)scores, n * sizeof *scores};
}

void core_stream_begin(const struct core_stage *s, struct core_sequence *own)
{
    const struct message_sequence_open *o = &own->open;
    if (stream_is_told(s, own))
        answer_add(own, o->prompt.items + o->prompt.count - o->sampled, o->sampled);
}

void core_stream_said(struct agent_core *c, struct core_sequence *own, const uint32_t *ids,
                      const struct score *scores, size_t n)
{
    if (own->open.stream && own->n_answer + n == own->sampled) { /* else there is a gap */
        answer_add(own, ids, n);
        if (own->n_answer == own->sampled)
            scores_add(c, own, scores, n);
    }
    own->unheard = own->heard == c->acks ? own->unheard + n : n;
    own->heard = c->acks;
}

/* ---- of those that have ended ---- */

static void remains_drop_first(struct agent_core *c)
{
    struct core_remains *r = &c->remains[0];
    c->remains_bytes -= r->n_answer * sizeof *r->answer + r->n_scores * sizeof *r->scores;
    free(r->answer);
    free(r->scores);
    c->n_remains--;
    memmove(&c->remains[0], &c->remains[1], c->n_remains * sizeof *c->remains);
}

void core_stream_left(struct agent_core *c, const struct core_stage *s, struct core_sequence *own)
{
    size_t bytes = own->n_answer * sizeof *own->answer + own->n_scores * sizeof *own->scores;
    if (!stream_is_told(s, own) || !own->n_answer || own->n_answer != own->sampled ||
        bytes > AGENT_REMAINS_BYTES) {
        scores_drop(c, own);
        return;
    }
    while (c->n_remains == AGENT_MAX_REMAINS ||
           (c->n_remains && c->remains_bytes + bytes > AGENT_REMAINS_BYTES))
        remains_drop_first(c);
    c->remains[c->n_remains++] = (struct core_remains){.deployment = s->prepare.deployment,
                                                       .generation = s->prepare.generation,
                                                       .stage = s->prepare.stage,
                                                       .sequence = own->open.sequence,
                                                       .stream = own->open.stream,
                                                       .ended_ns = c->now_ns,
                                                       .answer = own->answer,
                                                       .n_answer = own->n_answer,
                                                       .scores = own->scores,
                                                       .n_scores = own->n_scores,
                                                       .unheard = own->unheard,
                                                       .heard = own->heard,
                                                       .finish = own->finish ? own->finish : ""};
    c->remains_bytes += bytes;
    c->scores_bytes -= own->n_scores * sizeof *own->scores;
    own->answer = NULL;
    own->scores = NULL;
    own->n_answer = own->room_answer = own->n_scores = own->room_scores = 0;
}

void core_remains_free(struct agent_core *c)
{
    while (c->n_remains)
        remains_drop_first(c);
}

/* ---- telling ---- */

/* Rows that wait to be said. */
struct streams_told {
    struct message_stream *rows; /* in the scratch */
    size_t n, room, n_words;
};

static void streams_send(struct agent_core *c, struct streams_told *t, bool whole)
{
    struct message *m = core_send(c, MESSAGE_STREAMS);
    if (m)
        m->u.streams = (struct message_streams){{t->rows, t->n}, whole};
    *t = (struct streams_told){0};
}

static void stream_add(struct agent_core *c, struct streams_told *t, struct message_stream row)
{
    size_t words = row.ids.count + row.scores.size / sizeof(uint32_t);
    if (t->n && (t->n == t->room || t->n_words + words > TOLD_MOST_WORDS))
        streams_send(c, t, false);
    if (!t->rows) {
        t->room = MESSAGE_MAX_STREAMS / 16;
        t->rows = arena_alloc(&c->scratch, t->room, sizeof *t->rows);
        t->room = t->rows ? t->room : 0;
    }
    if (!t->rows) /* whoever asks for it computes it again */
        return;
    row.ids.items = arena_memdup(&c->scratch, row.ids.items, row.ids.count * sizeof *row.ids.items);
    row.ids.count = row.ids.items ? row.ids.count : 0;
    row.scores = core_span(c, row.scores);
    t->rows[t->n++] = row;
    t->n_words += words;
}

static void stage_streams_add(struct agent_core *c, const struct core_stage *s,
                              struct streams_told *t)
{
    struct queue_sequence *q;
    for (size_t i = 0; s->queue && (q = queue_sequence_at(s->queue, i)) != NULL; i++) {
        struct core_sequence *own = q->owner;
        if (own->open.stream)
            stream_add(c, t,
                       (struct message_stream){.deployment = s->prepare.deployment,
                                               .generation = s->prepare.generation,
                                               .stage = s->prepare.stage,
                                               .sequence = q->id,
                                               .stream = own->open.stream,
                                               .open = true,
                                               .reserved = q->reserved,
                                               .sampled = own->sampled,
                                               .ids = {own->answer, own->n_answer},
                                               .unheard = own->heard == c->acks ? own->unheard : 0,
                                               .scores = scores_span(own->scores, own->n_scores),
                                               .finish = own->finish ? own->finish : ""});
    }
}

uint64_t core_streams_count(const struct agent_core *c)
{
    uint64_t n = c->n_remains;
    const struct queue_sequence *q;
    for (size_t i = 0; i < c->n_stages; i++)
        for (size_t k = 0; c->stages[i]->queue && (q = queue_sequence_at(c->stages[i]->queue, k));
             k++)
            n += ((const struct core_sequence *)q->owner)->open.stream != 0;
    return n;
}

void core_streams_tell(struct agent_core *c)
{
    struct streams_told t = {0};
    for (size_t i = 0; i < c->n_stages; i++)
        stage_streams_add(c, c->stages[i], &t);
    while (c->n_remains && c->now_ns - c->remains[0].ended_ns > c->orphan_ns)
        remains_drop_first(c);
    for (size_t i = 0; i < c->n_remains; i++) {
        struct core_remains *r = &c->remains[i];
        stream_add(c, &t,
                   (struct message_stream){.deployment = r->deployment,
                                           .generation = r->generation,
                                           .stage = r->stage,
                                           .sequence = r->sequence,
                                           .stream = r->stream,
                                           .sampled = r->n_answer,
                                           .ids = {r->answer, r->n_answer},
                                           .unheard = r->heard == c->acks ? r->unheard : 0,
                                           .scores = scores_span(r->scores, r->n_scores),
                                           .finish = r->finish});
    }
    streams_send(c, &t, true);
}
