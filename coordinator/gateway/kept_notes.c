#include "coordinator/gateway/kept_notes.h"

#include <stdio.h>
#include <string.h>

#include "common/arena.h"

struct kept_note {
    const char *id, *key, *scope, *client, *api;
    bool chat;
    uint64_t created_s;
    struct pack_span body, stops;
};

static const struct pack_field note_fields[] = {
    PACK_FIELD(kept_note, PACK_TEXT, id),       PACK_FIELD(kept_note, PACK_TEXT, key),
    PACK_FIELD(kept_note, PACK_TEXT, scope),    PACK_FIELD(kept_note, PACK_TEXT, client),
    PACK_FIELD(kept_note, PACK_TEXT, api),      PACK_FIELD(kept_note, PACK_BOOL, chat),
    PACK_FIELD(kept_note, PACK_U64, created_s), PACK_FIELD(kept_note, PACK_BYTES, body),
    PACK_FIELD(kept_note, PACK_BYTES, stops),   {0}};

static const struct {
    const char *word;
    const struct dialect *dialect;
} apis[] = {{"openai", &dialect_openai},
            {"responses", &dialect_responses},
            {"messages", &dialect_messages},
            {"ollama_chat", &dialect_ollama_chat},
            {"ollama_generate", &dialect_ollama_generate},
            {"llama", &dialect_llama},
            {"llama_infill", &dialect_llama_infill}};
enum { N_APIS = sizeof apis / sizeof *apis };

void kept_note_write(const struct kept_stream *s, struct buffer *out)
{
    struct kept_note n = {.id = s->id,
                          .key = s->key,
                          .scope = s->scope,
                          .client = s->client,
                          .api = "",
                          .chat = s->chat,
                          .created_s = (uint64_t)s->created_s,
                          .body = {s->body.data, s->body.size},
                          .stops = {s->stops.data, s->stops.size}};
    for (int i = 0; i < N_APIS; i++)
        n.api = apis[i].dialect == s->dialect ? apis[i].word : n.api;
    pack_encode(note_fields, &n, out);
}

static bool text_take(char *out, size_t size, const char *from)
{
    return (size_t)snprintf(out, size, "%s", from) < size;
}

bool kept_note_read(struct pack_span note, struct kept_stream *out)
{
    struct arena arena = {0};
    struct kept_note n = {0};
    struct err ignored;
    *out = (struct kept_stream){0};
    bool good = pack_decode(note_fields, note.data, note.size, &arena, &n, &ignored) == 0 &&
                text_take(out->id, sizeof out->id, n.id) && n.id[0] &&
                text_take(out->key, sizeof out->key, n.key) &&
                text_take(out->scope, sizeof out->scope, n.scope) &&
                text_take(out->client, sizeof out->client, n.client);
    for (int i = 0; good && i < N_APIS; i++)
        out->dialect = strcmp(apis[i].word, n.api) == 0 ? apis[i].dialect : out->dialect;
    if (good && out->dialect) {
        out->chat = n.chat;
        out->created_s = (int64_t)n.created_s;
        buffer_append(&out->body, n.body.data, n.body.size);
        buffer_append(&out->stops, n.stops.data, n.stops.size);
    }
    arena_free(&arena);
    good = good && out->dialect && !out->body.failed && !out->stops.failed;
    if (!good) {
        buffer_free(&out->body);
        buffer_free(&out->stops);
    }
    return good;
}
