#include "coordinator/gateway/kept_streams.h"

#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/vector.h"
#include "coordinator/gateway/kept_choices.h"
#include "coordinator/gateway/kept_notes.h"
#include "coordinator/limits.h"

/* ---- its life ---- */

static void stream_free(struct kept_stream *s)
{
    for (uint32_t i = 0; i < s->n_choices; i++)
        kept_choice_free(s->choices[i]);
    s->all->bytes -= s->bytes;
    free(s->choices);
    buffer_free(&s->body);
    buffer_free(&s->stops);
    free(s);
}

/* Its requests end, and no later run hears of it. */
static void stream_drop(struct kept_streams *k, size_t at)
{
    struct kept_stream *s = k->all[at];
    for (uint32_t i = s->n_choices; i-- > 0;)
        kept_choice_drop(s->choices[i]);
    k->all[at] = k->all[--k->n];
    stream_free(s);
}

static bool stream_is_over(const struct kept_stream *s)
{
    bool over = true;
    for (uint32_t i = 0; i < s->n_choices; i++)
        over = over && s->choices[i]->ended;
    return over;
}

/* The one that has been without a reader for longest, of those that are over. */
static bool stream_make_room(struct kept_streams *k)
{
    size_t best = k->n;
    for (size_t i = 0; i < k->n; i++)
        if (!k->all[i]->reader && stream_is_over(k->all[i]) &&
            (best == k->n || k->all[i]->left_ns < k->all[best]->left_ns))
            best = i;
    if (best == k->n)
        return false;
    stream_drop(k, best);
    return true;
}

static struct kept_stream *stream_add(struct kept_streams *k, const struct kept_stream *asked)
{
    struct kept_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = *asked;
    s->body = s->stops = (struct buffer){0};
    buffer_append(&s->body, asked->body.data, asked->body.size);
    buffer_append(&s->stops, asked->stops.data, asked->stops.size);
    s->all = k;
    s->left_ns = env_now_ns(&env_real);
    if (s->body.failed || s->stops.failed || !vector_push(k->all, k->n, k->room, s)) {
        buffer_free(&s->body);
        buffer_free(&s->stops);
        free(s);
        return NULL;
    }
    s->bytes = asked->body.size;
    k->bytes += s->bytes;
    return s;
}

void kept_streams_tick(struct kept_streams *k)
{
    uint64_t now = env_now_ns(&env_real);
    for (size_t i = k->n; i-- > 0;) {
        struct kept_stream *s = k->all[i];
        if (s->reader || (!s->failed && now - s->left_ns < k->resume_ms * 1000000))
            continue;
        if (!s->failed && !stream_is_over(s))
            log_info("gateway", "stream_abandoned", "answer=%s", s->id);
        stream_drop(k, i);
    }
}

/* ---- those of before ---- */

struct found_streams {
    struct kept_streams *k;
    uint64_t *numbers; /* of all that the core has */
    size_t n, room;
};

static struct kept_stream *stream_of_number(struct kept_streams *k, uint64_t number)
{
    for (size_t i = 0; i < k->n; i++)
        if (k->all[i]->number == (number & ~(uint64_t)KEPT_CHOICES_MOST))
            return k->all[i];
    return NULL;
}

static void stream_found(void *out, const struct request_before *r)
{
    struct found_streams *f = out;
    struct kept_stream asked, *s = stream_of_number(f->k, r->stream);
    if (vector_reserve(f->numbers, f->room, f->n + 1))
        f->numbers[f->n++] = r->stream;
    if (!s && r->note.size && f->k->n < KEPT_MOST && kept_note_read(r->note, &asked)) {
        asked.number = r->stream & ~(uint64_t)KEPT_CHOICES_MOST;
        asked.before = true;
        s = stream_add(f->k, &asked);
        buffer_free(&asked.body);
        buffer_free(&asked.stops);
    }
    if (s && !kept_choice_restore(s, r))
        s->failed = true;
}

/* All that the core has is taken, or given up. */
static void streams_find(struct kept_streams *k)
{
    const struct requests *r = k->requests;
    struct found_streams f = {.k = k};
    if (!r->streams)
        return;
    r->streams(r->ctx, stream_found, &f);
    for (size_t i = 0; i < f.n; i++) {
        struct kept_stream *s = stream_of_number(k, f.numbers[i]);
        if (!s)
            r->forget(r->ctx, f.numbers[i]);
        else if (!kept_choice_attach(s, f.numbers[i]))
            s->failed = true;
    }
    if (f.n)
        log_info("gateway", "streams_found", "requests=%zu answers=%zu", f.n, k->n);
    free(f.numbers);
}

/* ---- starting, stopping ---- */

struct kept_streams *kept_streams_create(uv_loop_t *loop, const struct requests *requests,
                                         uint64_t resume_ms)
{
    struct kept_streams *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->requests = requests;
    k->resume_ms = resume_ms ? resume_ms : COORD_RESUME_MS;
    k->last_reader = UINT64_C(1) << 62;
    uv_timer_init(loop, &k->soon);
    k->soon.data = k;
    streams_find(k);
    return k;
}

static void on_soon_closed(uv_handle_t *handle)
{
    struct kept_streams *k = handle->data;
    while (k->n)
        stream_free(k->all[--k->n]);
    free(k->all);
    free(k);
}

void kept_streams_close(struct kept_streams **k)
{
    if (*k)
        uv_close((uv_handle_t *)&(*k)->soon, on_soon_closed);
    *k = NULL;
}

/* ---- finding ---- */

static bool stream_is(const struct kept_stream *s, const struct kept_stream *asked)
{
    return s->dialect == asked->dialect && s->chat == asked->chat &&
           s->body.size == asked->body.size &&
           (!s->body.size || memcmp(s->body.data, asked->body.data, s->body.size) == 0);
}

int kept_stream_find(struct kept_streams *k, const struct kept_stream *asked,
                     struct kept_stream **out, bool *found, struct err *e)
{
    for (size_t i = 0; i < k->n; i++) {
        struct kept_stream *s = k->all[i];
        if (s->failed || strcmp(s->key, asked->key) != 0 || strcmp(s->scope, asked->scope) != 0)
            continue;
        if (!stream_is(s, asked))
            return err_set(e, HP_EEXIST,
                           "Idempotency-Key \"%.100s\" was used for another request, %s: choose a "
                           "new key for each request",
                           asked->key, s->id);
        *out = s;
        *found = true;
        return 0;
    }
    while (k->n >= KEPT_MOST || k->bytes + asked->body.size > KEPT_BYTES)
        if (!stream_make_room(k))
            return err_set(e, HP_EBUSY,
                           "%zu requests with an Idempotency-Key are open already: try again "
                           "later, or without one",
                           k->n);
    *found = false;
    *out = stream_add(k, asked);
    if (!*out)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    do
        (*out)->number = env_random_u64(&env_real) & ~(uint64_t)KEPT_CHOICES_MOST;
    while (!(*out)->number);
    return 0;
}

struct kept_stream *kept_stream_of_id(struct kept_streams *k, const char *scope, const char *id)
{
    for (size_t i = 0; i < k->n; i++)
        if (!k->all[i]->failed && strcmp(k->all[i]->id, id) == 0 &&
            strcmp(k->all[i]->scope, scope) == 0)
            return k->all[i];
    return NULL;
}

/* ---- reading ---- */

void kept_stream_read(struct kept_stream *s, void *reader, void (*taken)(void *reader))
{
    if (s->reader)
        s->taken(s->reader);
    for (uint32_t i = 0; i < s->n_choices; i++)
        kept_choice_unread(s->choices[i]);
    s->reader = reader;
    s->taken = taken;
}

void kept_stream_leave(struct kept_stream *s, const void *reader)
{
    if (s->reader != reader)
        return;
    for (uint32_t i = 0; i < s->n_choices; i++)
        kept_choice_unread(s->choices[i]);
    s->reader = NULL;
    s->left_ns = env_now_ns(&env_real);
    s->failed = s->failed || s->n_choices == 0; /* it was refused: the next one is new */
}
