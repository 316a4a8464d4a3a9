#include "coordinator/streams.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/vector.h"
#include "coordinator/api_keys.h"
#include "coordinator/effects.h"
#include "coordinator/growth.h"
#include "coordinator/member.h"
#include "coordinator/sequence_create.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_orders.h"
#include "coordinator/stream_records.h"

/* A request of an earlier run that nobody has attached to. */
struct stream_left {
    uint64_t stream, request;
    uint8_t *note;
    size_t note_size;
    bool ended;
    uint32_t *ids;
    size_t n;
    struct score *scores;
    size_t n_scores;
    enum request_finish finish;
    struct request_usage usage;
};

static struct stream_left *stream_left_find(const struct coord *c, uint64_t stream)
{
    for (size_t i = 0; i < c->n_streams; i++)
        if (c->streams[i].stream == stream)
            return &c->streams[i];
    return NULL;
}

static void stream_left_remove(struct coord *c, struct stream_left *l)
{
    free(l->note);
    free(l->ids);
    free(l->scores);
    *l = c->streams[--c->n_streams];
}

void streams_free(struct coord *c)
{
    for (size_t i = 0; i < c->n_streams; i++) {
        free(c->streams[i].note);
        free(c->streams[i].ids);
        free(c->streams[i].scores);
    }
    free(c->streams);
    c->streams = NULL;
    c->n_streams = 0;
}

/* ---- from the store ---- */

/* A sequence at the front of the queue, as if its stages had lost it. */
static int sequence_restore(struct coord *c, struct deployment *d, uint64_t stream,
                            const struct stream_record *r, struct sequence **out, struct err *e)
{
    const struct message_sequence_open *o = &r->message.u.sequence_open;
    struct sampling_params sampling;
    struct sequence *s;
    if (!effects_ends_reserve(c))
        return err_set(e, HP_ENOMEM, "the coordinator has no memory for another request");
    int rc = sampling_copy(&sampling, &o->sampling, e);
    if (rc == 0) {
        const struct sequence_asked asked = {.client = r->client,
                                             .ids = o->prompt.items,
                                             .n = o->prompt.count,
                                             .max_tokens = o->max_tokens,
                                             .priority =
                                                 (int32_t)r->priority - REQUEST_PRIORITY_MOST};
        rc = sequence_make(c, d, &asked, &s, e);
        if (rc < 0)
            sampling_free(&sampling);
    }
    if (rc < 0) {
        c->n_ends--;
        return rc;
    }
    s->kind = SEQUENCE_REQUEST;
    s->ends = true;
    s->sampling = sampling;
    s->ignore_end = r->ignore_end;
    s->said_width = (uint32_t)o->said_scores;
    s->stream = stream;
    s->again = true;
    s->lost_ns = coord_now(c);
    d->losses.sequences++;
    *out = s;
    return 0;
}

static int stream_restore(struct coord *c, uint64_t stream, struct pack_span bytes,
                          struct arena *arena, struct err *e)
{
    struct stream_record r;
    struct sequence *s = NULL;
    int rc = stream_record_read(bytes, arena, &r, e);
    struct deployment *d = rc < 0 ? NULL : deployment_find(c, r.model);
    if (rc == 0 && (!d || d->context <= r.message.u.sequence_open.prompt.count))
        rc = err_set(e, HP_ENOENT, "\"%s\" is not deployed any more, or is so with another context",
                     r.model);
    rc = rc < 0 ? rc : sequence_restore(c, d, stream, &r, &s, e);
    if (rc < 0)
        return rc;
    struct stream_left *l = vector_add(c->streams, c->n_streams, c->room_streams);
    uint8_t *note = l ? malloc(r.note.size + 1) : NULL;
    if (!note) { /* it is computed for nobody, and dropped when it ends */
        c->n_streams -= l != NULL;
        return err_set(e, HP_ENOMEM, "no memory for a request of before");
    }
    memcpy(note, r.note.size ? (const void *)r.note.data : "", r.note.size);
    *l = (struct stream_left){
        .stream = stream, .request = s->request, .note = note, .note_size = r.note.size};
    return 0;
}

/* The request had come to its end: the sequence that was made of what it had asked for goes. */
static int stream_end_restore(struct coord *c, uint64_t stream, struct pack_span bytes,
                              struct arena *arena, struct err *e)
{
    struct stream_record_end end;
    struct stream_left *l = stream_left_find(c, stream);
    struct sequence *s = l ? sequence_of_request(c, l->request) : NULL;
    int rc = stream_record_end_read(bytes, arena, &end, e);
    if (rc < 0 || !s)
        return rc;
    l->ids = malloc(end.ids.count * sizeof *l->ids + 1);
    l->scores = malloc(end.scores.size + 1);
    if (!l->ids || !l->scores)
        return err_set(e, HP_ENOMEM, "no memory for an answer of before");
    if (end.ids.count)
        memcpy(l->ids, end.ids.items, end.ids.count * sizeof *l->ids);
    if (end.scores.size)
        memcpy(l->scores, end.scores.data, end.scores.size);
    l->n = end.ids.count;
    l->n_scores = end.scores.size / sizeof *l->scores;
    l->ended = true;
    l->finish = (enum request_finish)end.finish;
    l->usage = (struct request_usage){.prompt_tokens = end.prompt_tokens,
                                      .output_tokens = end.output_tokens,
                                      .cached_tokens = end.cached_tokens};
    sequence_leave(c, s->deployment, s);
    c->n_ends--;
    sequence_free(s);
    return 0;
}

int streams_restore(struct coord *c, const char *key, struct pack_span bytes, struct err *e)
{
    uint64_t stream;
    bool ended;
    struct arena arena = {0};
    if (!stream_record_key(key, &stream, &ended))
        return err_set(e, HP_EPARSE, "\"%.40s\" is not a stream's number", key);
    int rc = ended ? stream_end_restore(c, stream, bytes, &arena, e)
                   : stream_restore(c, stream, bytes, &arena, e);
    arena_free(&arena);
    return rc;
}

/* ---- what stages say ---- */

static void held_close(struct coord *c, const struct member *m, const struct message_stream *row)
{
    struct message close = {.type = MESSAGE_SEQUENCE_CLOSE};
    close.u.sequence_close = (struct message_sequence_close){row->deployment, row->generation,
                                                             row->sequence, row->stage, 0};
    if (row->open)
        effects_send(c, m->peer, &close);
}

/* Under which number stages have it; what some have under another one is of no use. */
static void held_set(struct coord *c, struct sequence *s, uint64_t id)
{
    if (s->held_id == id)
        return;
    if (s->held_id)
        sequence_order_close(c, s->deployment, s->held_id, 0);
    s->held_id = id;
    s->held_stages = 0;
}

/* Of the tokens behind those that are known; their scores first. */
static bool scores_take(struct coord *c, struct sequence *s, const struct message_stream *row,
                        size_t fresh)
{
    size_t width = s->said_width * sizeof *s->scores;
    if (!width)
        return true;
    const uint8_t *bytes = row->scores.data + s->n_output * width;
    return sequence_scores_keep(s, bytes, fresh) &&
           sequence_call_back_scores(c, s, false, bytes, fresh * width);
}

/* Tokens that the coordinator before may have told already: whoever reads sorts that out. */
static bool answer_take(struct coord *c, struct sequence *s, const struct message_stream *row)
{
    uint64_t n = row->ids.count < s->max_tokens ? row->ids.count : s->max_tokens;
    if (row->ids.count != row->sampled || n < s->n_output ||
        row->scores.size / sizeof *s->scores < row->ids.count * s->said_width)
        return false;
    if (n == s->n_output)
        return true;
    if (!vector_reserve(s->prompt, s->room_ids, s->n_prompt + (size_t)n))
        return false;
    uint32_t *fresh = s->prompt + s->n_prompt + s->n_output;
    size_t n_fresh = (size_t)(n - s->n_output),
           shown = n_fresh - (strcmp(row->finish, "stop") == 0 ? 1 : 0);
    memcpy(fresh, row->ids.items + s->n_output, n_fresh * sizeof *fresh);
    if (!scores_take(c, s, row, n_fresh))
        return false;
    if (shown && !sequence_call_back(c, s, fresh, shown))
        return false;
    api_keys_count_tokens(c, s->client, 0, row->unheard < n_fresh ? row->unheard : n_fresh);
    s->n_output = s->resumed = n;
    s->n_ids = s->n_prompt + (size_t)n;
    return true;
}

/* The sequence goes on where it is, under this coordinator. */
static bool stream_adopt(struct coord *c, struct sequence *s, const struct message_stream *row)
{
    struct deployment *d = s->deployment;
    uint64_t least = s->n_prompt + s->n_output;
    s->reserved = row->reserved && row->reserved < s->kv_tokens ? row->reserved : s->kv_tokens;
    s->reserved = s->reserved < least ? least : s->reserved;
    if (!sequence_adopt(d, s, row->sequence))
        return false;
    held_set(c, s, row->sequence);
    s->adopted = true;
    s->resumed = 0;
    s->reads = s->n_output == 0;
    s->opened_ns = coord_now(c);
    c->counts.opened++;
    c->counts.adopted++;
    sequence_deadline_start(c, d, s);
    log_info("coordinator", "stream_adopted", "request=%s deployment=%s sequence=%llu output=%llu",
             request_name(s->number).s, d->name, (unsigned long long)s->id,
             (unsigned long long)s->n_output);
    return true;
}

/* The sequence came to its end without a coordinator. */
static void stream_finish(struct coord *c, struct sequence *s, const struct message_stream *row)
{
    struct deployment *d = s->deployment;
    if (row->open && d->generation == row->generation)
        sequence_order_close(c, d, row->sequence, 0);
    s->opened_ns = s->first_ns = s->last_ns = coord_now(c);
    c->counts.opened++;
    sequence_finish(c, s, strcmp(row->finish, "stop") == 0 ? REQUEST_STOP : REQUEST_LENGTH);
}

/* A stage that is not the last has the sequence, which may be of use. */
static bool stream_held(struct coord *c, struct sequence *s, const struct message_stream *row)
{
    if (s->state == SEQUENCE_ACTIVE || row->sequence < s->held_id)
        return false;
    held_set(c, s, row->sequence);
    s->held_stages |= UINT64_C(1) << row->stage;
    return true;
}

static void stream_row_take(struct coord *c, struct member *m, const struct message_stream *row)
{
    struct sequence *s = row->stream ? sequence_of_stream(c, row->stream) : NULL;
    struct deployment *d = s ? s->deployment : NULL;
    bool placed = d && d->id == row->deployment && d->generation == row->generation &&
                  deployment_stage_at(d, m, row->stage),
         here = placed && d->keeps;
    bool last = here && row->stage + 1 == (uint64_t)d->n_stages, used = false;
    /* Also where it joined once more because this coordinator stood still. */
    if (placed && row->open && s->state == SEQUENCE_ACTIVE && s->id == row->sequence) {
        s->held_stages |= s->adopted ? UINT64_C(1) << row->stage : 0; /* it may be said twice */
        return;
    }
    if (s && s->state == SEQUENCE_WAITING && (row->ids.count || last) && answer_take(c, s, row)) {
        if (row->finish[0]) {
            stream_finish(c, s, row);
            return;
        }
        used = row->open && last && s->n_output < s->max_tokens && stream_adopt(c, s, row);
        if (used)
            s->held_stages |= UINT64_C(1) << row->stage;
    } else if (s && row->open && here && !last) {
        used = stream_held(c, s, row);
    }
    if (!used)
        held_close(c, m, row);
}

void streams_told(struct coord *c, struct member *m, const struct message_streams *t)
{
    const struct message_stream *rows = t->streams.items;
    for (size_t i = 0; i < t->streams.count; i++)
        stream_row_take(c, m, &rows[i]);
    m->streams_awaited = m->streams_awaited && !t->whole;
}

bool streams_all_told(const struct deployment *d)
{
    bool told = true;
    for (int i = 0; d->keeps && i < d->n_stages; i++)
        told = told && !d->stages[i].agent->streams_awaited;
    return told;
}

/* ---- serving again ---- */

static void stream_settle(struct coord *c, struct deployment *d, struct sequence *s)
{
    struct err e = {0};
    uint64_t all = d->n_stages < 64 ? (UINT64_C(1) << d->n_stages) - 1 : UINT64_MAX,
             held = s->held_stages;
    s->adopted = false;
    s->held_id = s->held_stages = 0;
    if (held == all) {
        sequence_order_grow(c, d, s); /* what was said while an agent was away is lost */
        growth_told(c, d, s);
        return;
    }
    err_set(&e, HP_ELINK, "a stage of \"%s\" has lost what it had of this request", d->name);
    sequence_lose(c, s, &e);
}

void streams_settle(struct coord *c, struct deployment *d)
{
    if (!d->keeps)
        return;
    d->keeps = false;
    for (struct sequence *s = d->waiting_first; s; s = s->next) {
        if (s->held_id) /* its last stage does not have it */
            sequence_order_close(c, d, s->held_id, 0);
        s->held_id = s->held_stages = 0;
    }
    struct sequence *s;
    do {
        for (s = d->active; s && !s->adopted; s = s->next)
            ;
        if (s)
            stream_settle(c, d, s);
    } while (s);
}

/* ---- whoever wants them ---- */

void streams_each(struct coord *c, void (*each)(void *out, const struct request_before *s),
                  void *out)
{
    for (size_t i = 0; i < c->n_streams; i++) {
        const struct stream_left *l = &c->streams[i];
        struct request_before s = {.stream = l->stream,
                                   .note = {l->note, l->note_size},
                                   .ended = l->ended,
                                   .ids = l->ids,
                                   .n = l->n,
                                   .scores = l->scores,
                                   .n_scores = l->n_scores,
                                   .finish = l->finish,
                                   .usage = l->usage};
        each(out, &s);
    }
}

uint64_t streams_attach(struct coord *c, uint64_t stream, const struct request_callbacks *callbacks)
{
    struct stream_left *l = stream_left_find(c, stream);
    uint64_t request = l ? l->request : 0;
    if (!l)
        return 0;
    stream_left_remove(c, l);
    struct sequence *s = sequence_of_request(c, request);
    if (!s)
        return 0;
    s->callbacks = *callbacks;
    if (s->n_scores && !sequence_call_back_scores(c, s, false, (const uint8_t *)s->scores,
                                                  s->n_scores * sizeof *s->scores))
        sequence_fail_memory(c, s);
    else if (s->n_output && !sequence_call_back(c, s, s->prompt + s->n_prompt, (size_t)s->n_output))
        sequence_fail_memory(c, s);
    return request;
}
