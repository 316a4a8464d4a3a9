/* Actions of the core, collected until they are taken: what to send, what to keep, whom to call back. */
#include "coordinator/core_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { NO_BYTES = -1 };

static struct core_batch *filling(struct core *c) { return &c->batches[c->filling]; }

struct arena *core_action_arena(struct core *c) { return &filling(c)->arena; }

/* Running out of memory here would lose a message that somebody waits for; there is no going on from that. */
static void batch_grow(struct core_batch *b)
{
    size_t capacity = b->capacity ? 2 * b->capacity : 32;
    struct core_action *actions = realloc(b->actions, capacity * sizeof *actions);
    assert(actions && "out of memory");
    b->actions = actions;
    size_t *at = realloc(b->at, capacity * sizeof *at);
    assert(at && "out of memory");
    b->at = at;
    b->capacity = capacity;
}

struct core_action *core_action_add(struct core *c, enum core_action_kind kind, const void *bytes, size_t size)
{
    struct core_batch *b = filling(c);
    if (b->count == b->capacity)
        batch_grow(b);
    b->at[b->count] = (size_t)NO_BYTES;
    if (bytes) {
        /* Ids are read in place, so every action's bytes begin aligned. */
        static const uint8_t zeros[8];
        buffer_append(&b->bytes, zeros, (8 - b->bytes.size % 8) % 8);
        b->at[b->count] = b->bytes.size;
        buffer_append(&b->bytes, bytes, size);
        /* An empty record is not a removed one. */
        if (size == 0)
            buffer_append(&b->bytes, zeros, 1);
        assert(!b->bytes.failed && "out of memory");
    }
    struct core_action *a = &b->actions[b->count++];
    *a = (struct core_action){.kind = kind, .size = size};
    return a;
}

const struct core_action *core_take(struct core *c, size_t *count)
{
    struct core_batch *b = filling(c);
    c->filling ^= 1;
    struct core_batch *next = filling(c);
    next->count = 0;
    next->bytes.size = 0;
    arena_reset(&next->arena);
    core_actions_hold(c, b);
    for (size_t i = 0; i < b->count; i++)
        if (b->at[i] != (size_t)NO_BYTES) {
            b->actions[i].bytes = b->bytes.data + b->at[i];
            if (b->actions[i].kind == CORE_TOKENS)
                b->actions[i].ids = (const uint32_t *)(const void *)b->actions[i].bytes;
        }
    *count = b->count;
    return b->actions;
}

void core_actions_forget_request(struct core *c, uint64_t request)
{
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < c->batches[k].count; i++)
            if (c->batches[k].actions[i].request == request)
                c->batches[k].actions[i].request = 0;
}

void core_action_call_back(struct core *core, const struct core_action *a)
{
    (void)core;
    const struct request_callbacks *cb = &a->callbacks;
    if (a->request == 0 || !cb->tokens)
        return;
    if (a->kind == CORE_TOKENS)
        cb->tokens(cb->ctx, a->request, a->ids, a->size / sizeof *a->ids);
    else if (a->kind == CORE_FINISHED)
        cb->finished(cb->ctx, a->request, a->finish, &a->usage);
    else if (a->kind == CORE_FAILED)
        cb->failed(cb->ctx, a->request, a->why, &a->usage);
}

/* ---- saying --------------------------------------------------------------------------------------------------- */

void core_say(struct core *c, uint64_t peer, const struct message *m)
{
    if (peer == 0)
        return;
    struct buffer *bytes = &c->encoded;
    bytes->size = 0;
    message_encode(m, bytes);
    assert(!bytes->failed && "out of memory");
    struct core_action *a = core_action_add(c, CORE_SEND, bytes->data, bytes->size);
    a->peer = peer;
    a->ask = m->type == MESSAGE_ANSWER && !m->u.answer.more && strcmp(m->u.answer.code, "ok") == 0 ? m->id : 0;
    a->passes = m->type == MESSAGE_HEARTBEAT_ACK;
}

void core_refuse(struct core *c, uint64_t peer, uint64_t id, const struct err *why)
{
    struct message m = {.type = MESSAGE_REFUSED, .id = id};
    m.u.refused.code = status_word(why->code);
    m.u.refused.text = why->text;
    m.u.refused.hint = why->hint;
    core_say(c, peer, &m);
    c->counts.refused++;
}

void core_answer(struct core *c, uint64_t peer, uint64_t id, bool more, json_t *result)
{
    char *text = result ? json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    struct message m = {.type = MESSAGE_ANSWER, .id = id};
    m.u.answer.more = more;
    m.u.answer.code = "ok";
    m.u.answer.text = m.u.answer.hint = "";
    m.u.answer.result = text ? text : "null";
    core_say(c, peer, &m);
    free(text);
    json_decref(result);
}

void core_answer_error(struct core *c, uint64_t peer, uint64_t id, const struct err *why)
{
    struct message m = {.type = MESSAGE_ANSWER, .id = id};
    m.u.answer.code = status_word(why->code);
    m.u.answer.text = why->text;
    m.u.answer.hint = why->hint;
    m.u.answer.result = "null";
    core_say(c, peer, &m);
}

/* ---- keeping -------------------------------------------------------------------------------------------------- */

void core_keep_bytes(struct core *c, const char *kind, const char *key, const void *bytes, size_t size)
{
    char *kept = arena_strdup(core_action_arena(c), key);
    assert(kept && "out of memory");
    struct core_action *a = core_action_add(c, CORE_STORE, bytes, size);
    a->record_kind = kind;
    a->key = kept;
}

void core_keep_json(struct core *c, const char *kind, const char *key, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert(text && "out of memory");
    core_keep_bytes(c, kind, key, text, strlen(text));
    free(text);
    json_decref(value);
}

void core_forget(struct core *c, const char *kind, const char *key) { core_keep_bytes(c, kind, key, NULL, 0); }
