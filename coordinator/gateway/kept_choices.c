#include "coordinator/gateway/kept_choices.h"

#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "coordinator/gateway/kept_notes.h"

/* ---- what the core tells ---- */

/* Nobody can be told all of it any more. */
static void stream_fail(struct kept_choice *c, const struct err *why)
{
    struct kept_stream *s = c->of;
    const struct requests *r = s->all->requests;
    struct request_callbacks reader = c->reader;
    uint64_t reading = c->reading;
    s->failed = true;
    for (uint32_t i = s->n_choices; i-- > 0;) {
        struct kept_choice *o = s->choices[i];
        if (o->request)
            r->cancel(r->ctx, o->request, false, NULL);
        o->request = 0;
        if (!reading && o->reading) { /* any of them tells it */
            reader = o->reader;
            reading = o->reading;
        }
    }
    if (reading)
        reader.failed(reader.ctx, reading, why, &c->usage);
}

static void stream_count(struct kept_choice *c, size_t bytes)
{
    c->of->bytes += bytes;
    c->of->all->bytes += bytes;
}

static void choice_fail_memory(struct kept_choice *c)
{
    struct err e = {0};
    err_set(&e, HP_ENOMEM, "no memory for the answer");
    stream_fail(c, &e);
}

static bool ids_keep(struct kept_choice *c, const uint32_t *ids, size_t n)
{
    if (!n)
        return true;
    if (!vector_reserve(c->ids, c->room_ids, c->n_ids + n))
        return false;
    memcpy(c->ids + c->n_ids, ids, n * sizeof *ids);
    c->n_ids += n;
    stream_count(c, n * sizeof *ids);
    return true;
}

static void choice_end(struct kept_choice *c, enum request_finish finish,
                       const struct request_usage *usage)
{
    c->ended = true;
    c->request = 0;
    c->finish = finish;
    c->usage = *usage;
}

/* Whoever reads it has all that it wants. */
static void choice_satisfy(struct kept_choice *c, struct request_usage *used)
{
    const struct requests *r = c->of->all->requests;
    if (c->request)
        r->cancel(r->ctx, c->request, true, used);
    choice_end(c, REQUEST_STOP, used);
}

/* Nobody reads: what a reader would stop at ends it. */
static void choice_watch(struct kept_choice *c)
{
    struct kept_stream *s = c->of;
    struct request_usage used = c->usage;
    if (!s->stops.size)
        return;
    if (!c->watch)
        c->watch = kept_watch_create(s->all->requests, s->client,
                                     (struct pack_span){s->stops.data, s->stops.size});
    if (c->watch && kept_watch_sees(c->watch, c->ids, c->n_ids))
        choice_satisfy(c, &used);
}

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    struct kept_choice *c = ctx;
    (void)request;
    if (!ids_keep(c, ids, n))
        choice_fail_memory(c);
    else if (c->reading && !c->waits)
        c->reader.tokens(c->reader.ctx, c->reading, ids, n);
    else if (!c->reading)
        choice_watch(c);
}

static bool scores_keep(struct kept_choice *c, bool of_prompt, const struct score *scores, size_t n)
{
    struct score **to = of_prompt ? &c->of_prompt : &c->said;
    size_t *have = of_prompt ? &c->n_prompt : &c->n_said,
           *room = of_prompt ? &c->room_prompt : &c->room_said;
    if (!n)
        return true;
    if (!vector_reserve(*to, *room, *have + n))
        return false;
    memcpy(*to + *have, scores, n * sizeof *scores);
    *have += n;
    stream_count(c, n * sizeof *scores);
    return true;
}

static void on_scores(void *ctx, uint64_t request, bool of_prompt, const struct score *scores,
                      size_t n)
{
    struct kept_choice *c = ctx;
    (void)request;
    if (!scores_keep(c, of_prompt, scores, n))
        choice_fail_memory(c);
    else if (c->reading && !c->waits)
        c->reader.scores(c->reader.ctx, c->reading, of_prompt, scores, n);
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct kept_choice *c = ctx;
    (void)request;
    choice_end(c, finish, usage);
    if (c->reading && !c->waits)
        c->reader.finished(c->reader.ctx, c->reading, finish, usage);
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct kept_choice *c = ctx;
    (void)request;
    c->request = 0;
    c->usage = *usage;
    stream_fail(c, why);
}

static struct request_callbacks callbacks_of(struct kept_choice *c)
{
    return (struct request_callbacks){.ctx = c,
                                      .tokens = on_tokens,
                                      .finished = on_finished,
                                      .failed = on_failed,
                                      .scores = on_scores};
}

/* ---- what a reader hears ---- */

/* Each call may end its reading. */
static void choice_tell(struct kept_choice *c)
{
    uint64_t reading = c->reading;
    if (!reading || !c->waits)
        return;
    c->waits = false;
    if (c->n_prompt)
        c->reader.scores(c->reader.ctx, reading, true, c->of_prompt, c->n_prompt);
    if (c->reading == reading && c->n_said)
        c->reader.scores(c->reader.ctx, reading, false, c->said, c->n_said);
    if (c->reading == reading && c->n_ids)
        c->reader.tokens(c->reader.ctx, reading, c->ids, c->n_ids);
    if (c->reading == reading && c->ended)
        c->reader.finished(c->reader.ctx, reading, c->finish, &c->usage);
}

static void on_soon(uv_timer_t *timer)
{
    struct kept_streams *k = timer->data;
    for (size_t i = 0; i < k->n; i++)
        for (uint32_t c = 0; c < k->all[i]->n_choices; c++)
            choice_tell(k->all[i]->choices[c]);
}

/* From the loop's next turn. */
static void choice_tell_soon(struct kept_choice *c)
{
    c->waits = true;
    uv_timer_start(&c->of->all->soon, on_soon, 0, 0);
}

void kept_choice_unread(struct kept_choice *c)
{
    c->reading = 0;
    c->waits = false;
}

/* ---- its life ---- */

static struct kept_choice *choice_at(const struct kept_stream *s, uint32_t index)
{
    for (uint32_t i = 0; i < s->n_choices; i++)
        if (s->choices[i]->index == index)
            return s->choices[i];
    return NULL;
}

bool kept_stream_told(const struct kept_stream *s, const struct event_id *had)
{
    bool told = true;
    for (uint32_t i = 0; i < had->n; i++) {
        const struct kept_choice *c = choice_at(s, i);
        bool ended = c && c->ended;
        if (ended || !s->before)
            told = told && had->tokens[i] <= (c ? c->n_ids : 0) && (ended || !had->ended[i]);
    }
    return told;
}

static struct kept_choice *choice_reading(const struct kept_stream *s, uint64_t reading)
{
    for (uint32_t i = 0; reading && i < s->n_choices; i++)
        if (s->choices[i]->reading == reading)
            return s->choices[i];
    return NULL;
}

static struct kept_choice *choice_add(struct kept_stream *s, uint32_t index)
{
    struct kept_choice *c = calloc(1, sizeof *c);
    if (!c || !vector_push(s->choices, s->n_choices, s->room_choices, c)) {
        free(c);
        return NULL;
    }
    c->of = s;
    c->index = index;
    return c;
}

static uint64_t choice_number(const struct kept_choice *c)
{
    return c->index <= KEPT_CHOICES_MOST ? c->of->number | c->index : 0;
}

void kept_choice_drop(struct kept_choice *c)
{
    const struct requests *r = c->of->all->requests;
    if (c->request)
        r->cancel(r->ctx, c->request, false, NULL);
    c->request = 0;
    if (r->forget && choice_number(c))
        r->forget(r->ctx, choice_number(c));
}

void kept_choice_free(struct kept_choice *c)
{
    free(c->ids);
    free(c->said);
    free(c->of_prompt);
    kept_watch_destroy(&c->watch);
    free(c);
}

bool kept_choice_restore(struct kept_stream *s, const struct request_before *r)
{
    struct kept_choice *c = choice_add(s, (uint32_t)(r->stream & KEPT_CHOICES_MOST));
    if (!c)
        return false;
    if (!r->ended)
        return true;
    choice_end(c, r->finish, &r->usage);
    return scores_keep(c, false, r->scores, r->n_scores) && ids_keep(c, r->ids, r->n);
}

bool kept_choice_attach(struct kept_stream *s, uint64_t number)
{
    const struct requests *r = s->all->requests;
    struct kept_choice *c = choice_at(s, (uint32_t)(number & KEPT_CHOICES_MOST));
    const struct request_callbacks callbacks = c ? callbacks_of(c) : (struct request_callbacks){0};
    uint64_t request = c ? r->attach(r->ctx, number, &callbacks) : 0;
    if (c)
        c->request = request;
    return c && (request || c->ended);
}

/* ---- opening and leaving ---- */

static int choice_begin(struct kept_stream *s, uint32_t index, const struct request_spec *spec,
                        struct kept_choice **out, struct err *e)
{
    const struct requests *r = s->all->requests;
    struct kept_choice *c = choice_add(s, index);
    if (!c)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    const struct kept_choice *first = choice_reading(s, spec->fork_of);
    struct request_spec own = *spec;
    own.callbacks = callbacks_of(c);
    own.fork_of = first ? first->request : 0;
    own.stream = choice_number(c);
    struct buffer note = {0};
    if (index == 0)
        kept_note_write(s, &note);
    own.note = (struct pack_span){note.data, note.failed ? 0 : note.size};
    int rc = r->open(r->ctx, &own, &c->request, e);
    buffer_free(&note);
    if (rc < 0) {
        s->n_choices--;
        kept_choice_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

int kept_choice_open(struct kept_stream *s, uint32_t index, const struct request_spec *spec,
                     uint64_t *id, struct err *e)
{
    struct kept_choice *c = choice_at(s, index);
    bool again = c != NULL;
    int rc = c ? 0 : choice_begin(s, index, spec, &c, e);
    if (rc < 0)
        return rc;
    c->reader = spec->callbacks;
    c->reading = *id = ++s->all->last_reader;
    c->waits = false;
    if (again)
        choice_tell_soon(c);
    return 0;
}

void kept_choice_leave(struct kept_stream *s, uint64_t id, bool satisfied,
                       struct request_usage *usage)
{
    struct kept_choice *c = choice_reading(s, id);
    struct request_usage used = c ? c->usage : (struct request_usage){0};
    if (c && satisfied && !c->ended)
        choice_satisfy(c, &used);
    if (c)
        kept_choice_unread(c);
    if (usage)
        *usage = used;
}
