/* Owns what outlives a coordinator: of sequences with a stream the tokens that the last stage has
 * said, also for a while after their end, so that the next coordinator can be told all of them. */
#include <stdlib.h>
#include <string.h>

#include "agent/core_int.h"
#include "common/vector.h"

/* Tokens in one message: a quarter of the bytes that it may have; a single row may have more. */
enum { TOLD_MOST_IDS = 2 << 20 };

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

void core_stream_begin(const struct core_stage *s, struct core_sequence *own)
{
    const struct message_sequence_open *o = &own->open;
    if (stream_is_told(s, own))
        answer_add(own, o->prompt.items + o->prompt.count - o->sampled, o->sampled);
}

void core_stream_said(const struct agent_core *c, struct core_sequence *own, const uint32_t *ids,
                      size_t n)
{
    if (own->open.stream && own->n_answer + n == own->sampled) /* else there is a gap */
        answer_add(own, ids, n);
    own->unheard = own->heard == c->acks ? own->unheard + n : n;
    own->heard = c->acks;
}

/* ---- of those that have ended ---- */

static void remains_drop_first(struct agent_core *c)
{
    free(c->remains[0].answer);
    c->remains_bytes -= c->remains[0].n_answer * sizeof *c->remains[0].answer;
    c->n_remains--;
    memmove(&c->remains[0], &c->remains[1], c->n_remains * sizeof *c->remains);
}

void core_stream_left(struct agent_core *c, const struct core_stage *s, struct core_sequence *own)
{
    size_t bytes = own->n_answer * sizeof *own->answer;
    if (!stream_is_told(s, own) || !own->n_answer || own->n_answer != own->sampled ||
        bytes > AGENT_REMAINS_BYTES)
        return;
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
                                                       .unheard = own->unheard,
                                                       .heard = own->heard,
                                                       .finish = own->finish ? own->finish : ""};
    c->remains_bytes += bytes;
    own->answer = NULL;
    own->n_answer = own->room_answer = 0;
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
    size_t n, room, n_ids;
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
    if (t->n && (t->n == t->room || t->n_ids + row.ids.count > TOLD_MOST_IDS))
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
    t->rows[t->n++] = row;
    t->n_ids += row.ids.count;
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
                                           .finish = r->finish});
    }
    streams_send(c, &t, true);
}
