#include "coordinator/gateway/kept_stops.h"

#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "model/model.h"

struct stops_record {
    const char *model;
    struct pack_span texts; /* each with its NUL */
    struct pack_u32s ids, kept;
};

static const struct pack_field record_fields[] = {PACK_FIELD(stops_record, PACK_TEXT, model),
                                                  PACK_FIELD(stops_record, PACK_BYTES, texts),
                                                  PACK_FIELD(stops_record, PACK_U32S, ids),
                                                  PACK_FIELD(stops_record, PACK_U32S, kept),
                                                  {0}};

void kept_stops_write(const struct kept_stops *s, struct buffer *out)
{
    struct buffer texts = {0};
    if (!s->n_texts && !s->n_ids)
        return;
    for (int i = 0; i < s->n_texts; i++)
        buffer_append(&texts, s->texts[i], strlen(s->texts[i]) + 1);
    struct stops_record r = {.model = s->model,
                             .texts = {texts.data, texts.size},
                             .ids = {s->ids, (size_t)s->n_ids},
                             .kept = {s->like->kept, (size_t)s->like->n_kept}};
    if (!texts.failed)
        pack_encode(record_fields, &r, out);
    buffer_free(&texts);
}

struct kept_watch {
    struct arena arena; /* of the record */
    struct stops_record stops;
    struct model *model;
    struct completion_text text;
    size_t n_read;
    bool seen;
};

void kept_watch_destroy(struct kept_watch **self)
{
    struct kept_watch *w = *self;
    *self = NULL;
    if (!w)
        return;
    completion_fini(&w->text);
    if (w->model)
        model_close(&w->model);
    arena_free(&w->arena);
    free(w);
}

static bool watch_text_make(struct kept_watch *w, const struct tokenizer *t)
{
    completion_init(&w->text, t, true);
    const char *texts = (const char *)w->stops.texts.data;
    bool good = true;
    for (size_t at = 0, size = w->stops.texts.size; good && at < size;) {
        size_t n = strnlen(texts + at, size - at);
        good = at + n < size && completion_add_stop(&w->text, texts + at);
        at += n + 1;
    }
    for (size_t i = 0; i < w->stops.kept.count && w->text.n_kept < COMPLETION_MAX_KEPT; i++)
        w->text.kept[w->text.n_kept++] = w->stops.kept.items[i];
    return good;
}

static bool watch_make(struct kept_watch *w, const struct requests *r, const char *client,
                       struct pack_span stops)
{
    struct err ignored;
    struct request_model m;
    const struct tokenizer *t;
    const uint8_t *own = arena_memdup(&w->arena, stops.data, stops.size);
    if (!own || pack_decode(record_fields, own, stops.size, &w->arena, &w->stops, &ignored) < 0 ||
        r->find(r->ctx, client, w->stops.model, &m, &ignored) < 0 || !m.model ||
        model_text_prepare(m.model, &ignored) < 0 || model_tokenizer(m.model, &t, &ignored) < 0)
        return false;
    w->model = model_share(m.model);
    return w->model && watch_text_make(w, t);
}

struct kept_watch *kept_watch_create(const struct requests *r, const char *client,
                                     struct pack_span stops)
{
    struct kept_watch *w = calloc(1, sizeof *w);
    if (w && !watch_make(w, r, client[0] ? client : NULL, stops))
        kept_watch_destroy(&w);
    return w;
}

static bool watch_ends_at(const struct kept_watch *w, uint32_t id)
{
    for (size_t i = 0; i < w->stops.ids.count; i++)
        if (w->stops.ids.items[i] == id)
            return true;
    return false;
}

bool kept_watch_sees(struct kept_watch *w, const uint32_t *ids, size_t n)
{
    size_t given;
    while (!w->seen && w->n_read < n) {
        uint32_t id = ids[w->n_read++];
        w->seen = watch_ends_at(w, id);
        if (!w->seen)
            completion_push(&w->text, id);
        w->seen = w->seen || w->text.stopped;
        completion_take(&w->text, &given);
        completion_forget_given(&w->text);
    }
    return w->seen;
}
