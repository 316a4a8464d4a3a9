/* Actions of the core, collected until they are taken: what to send, what to keep, whom to call
 * back. */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/core_int.h"

enum { NO_BYTES = -1 };

static struct core_batch *filling(struct core *c)
{
    return &c->batches[c->filling];
}

struct arena *core_action_arena(struct core *c)
{
    return &filling(c)->arena;
}

/* ---- want of memory
 * -------------------------------------------------------------------------------------------- */

/* What cannot be said for want of memory is lost, as on a bad network: orders show again with a
 * heartbeat that does not have them, requests and sequences have deadlines, hpctl asks again. What
 * may not be lost has its room beforehand: the end of every open request (core_ends_reserve), and a
 * record that was lost is told to whoever asked for the change (admin.c). */
static void action_lost(struct core *c, const char *what)
{
    c->lost.actions++;
    log_error_limited("coordinator", "action_lost", "what=%s lost=%llu why=\"no memory\"", what,
                      (unsigned long long)c->lost.actions);
}

static void record_lost(struct core *c, const char *kind, const char *key)
{
    c->lost.records++;
    log_error_limited("coordinator", "record_lost", "record=\"%s/%s\" why=\"no memory\"", kind,
                      key);
}

/* Room for so many actions in all; false when there is no memory for them. */
static bool batch_reserve(struct core_batch *b, size_t count)
{
    size_t capacity = b->capacity ? b->capacity : 32;
    while (capacity < count)
        capacity *= 2;
    if (capacity == b->capacity)
        return true;
    struct core_action *actions = realloc(b->actions, capacity * sizeof *actions);
    b->actions = actions ? actions : b->actions;
    size_t *at = actions ? realloc(b->at, capacity * sizeof *at) : NULL;
    b->at = at ? at : b->at;
    if (!actions || !at)
        return false;
    b->capacity = capacity;
    return true;
}

bool core_ends_reserve(struct core *c)
{
    for (int k = 0; k < 2; k++)
        if (!batch_reserve(&c->batches[k], c->batches[k].count + c->n_ends + 1))
            return false;
    c->n_ends++;
    return true;
}

/* Copies an action's bytes; ids are read in place, so they begin aligned. */
static bool bytes_add(struct core_batch *b, const void *bytes, size_t size, size_t *at)
{
    size_t before = b->bytes.size, padding = (8 - before % 8) % 8;
    uint8_t *p = buffer_extend(
        &b->bytes, padding + size + (size == 0)); /* an empty record is not a removed one */
    if (!p) {
        b->bytes.failed = false;
        b->bytes.size = before;
        return false;
    }
    memset(p, 0, padding + (size == 0));
    if (size)
        memcpy(p + padding, bytes, size);
    *at = before + padding;
    return true;
}

static struct core_action *batch_add(struct core_batch *b, enum core_action_kind kind, size_t size)
{
    struct core_action *a = &b->actions[b->count];
    b->at[b->count++] = (size_t)NO_BYTES;
    *a = (struct core_action){.kind = kind, .size = size};
    return a;
}

struct core_action *core_action_add(struct core *c, enum core_action_kind kind, const void *bytes,
                                    size_t size)
{
    static const char *const words[] = {"store", "send",   "model_open", "model_close",
                                        "work",  "tokens", "finished",   "failed"};
    struct core_batch *b = filling(c);
    size_t at = (size_t)NO_BYTES;
    if (!batch_reserve(b, b->count + c->n_ends + 1) || (bytes && !bytes_add(b, bytes, size, &at))) {
        action_lost(c, words[kind]);
        return NULL;
    }
    struct core_action *a = batch_add(b, kind, size);
    b->at[b->count - 1] = at;
    return a;
}

struct core_action *core_end_add(struct core *c, enum core_action_kind kind, struct sequence *s)
{
    struct core_batch *b = filling(c);
    c->n_ends--;
    s->next = b->ended;
    b->ended = s;
    return batch_add(b, kind, 0);
}

const struct core_action *core_take(struct core *c, size_t *count)
{
    struct core_batch *b = filling(c);
    c->filling ^= 1;
    struct core_batch *next = filling(c);
    next->count = 0;
    next->bytes.size = 0;
    sequences_free(&next->ended);
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

/* ---- saying
 * ---------------------------------------------------------------------------------------------------
 */

bool core_say(struct core *c, uint64_t peer, const struct message *m)
{
    if (peer == 0)
        return true;
    struct buffer *bytes = &c->encoded;
    bytes->size = 0;
    message_encode(m, bytes);
    bool encoded = !bytes->failed;
    bytes->failed = false;
    if (!encoded)
        action_lost(c, message_type_word(m->type));
    struct core_action *a =
        encoded ? core_action_add(c, CORE_SEND, bytes->data, bytes->size) : NULL;
    if (a) {
        a->peer = peer;
        a->ask =
            m->type == MESSAGE_ANSWER && !m->u.answer.more && strcmp(m->u.answer.code, "ok") == 0
                ? m->id
                : 0;
        a->passes = m->type == MESSAGE_HEARTBEAT_ACK;
    }
    return a != NULL;
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
    if (result && !text) {
        struct err e;
        err_set(&e, HP_ENOMEM, "the coordinator has no memory for the answer");
        core_answer_error(c, peer, id, &e);
        json_decref(result);
        return;
    }
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

/* ---- keeping
 * --------------------------------------------------------------------------------------------------
 */

void core_keep_bytes(struct core *c, const char *kind, const char *key, const void *bytes,
                     size_t size)
{
    char *kept = arena_strdup(core_action_arena(c), key);
    struct core_action *a = kept ? core_action_add(c, CORE_STORE, bytes, size) : NULL;
    if (!a) {
        record_lost(c, kind, key);
        return;
    }
    a->record_kind = kind;
    a->key = kept;
}

void core_keep_json(struct core *c, const char *kind, const char *key, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (text)
        core_keep_bytes(c, kind, key, text, strlen(text));
    else
        record_lost(c, kind, key);
    free(text);
    json_decref(value);
}

void core_forget(struct core *c, const char *kind, const char *key)
{
    core_keep_bytes(c, kind, key, NULL, 0);
}
