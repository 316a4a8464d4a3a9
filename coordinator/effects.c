#include "coordinator/effects.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/vector.h"

enum { NO_BYTES = -1 };

static struct effects_batch *effects_filling(struct coord *c)
{
    return &c->batches[c->filling];
}

struct arena *effects_arena(struct coord *c)
{
    return &effects_filling(c)->arena;
}

static void action_lost(struct coord *c, const char *what)
{
    c->lost.actions++;
    log_error_limited("coordinator", "action_lost", "what=%s lost=%llu why=\"no memory\"", what,
                      (unsigned long long)c->lost.actions);
}

static void record_lost(struct coord *c, const char *kind, const char *key)
{
    c->lost.records++;
    log_error_limited("coordinator", "record_lost", "record=\"%s/%s\" why=\"no memory\"", kind,
                      key);
}

/* Room for so many actions in all; false when there is no memory for them. */
static bool effects_batch_reserve(struct effects_batch *b, size_t count)
{
    return vector_reserve(b->actions, b->room, count) && vector_reserve(b->at, b->room_at, count);
}

bool effects_ends_reserve(struct coord *c)
{
    for (int k = 0; k < 2; k++)
        if (!effects_batch_reserve(&c->batches[k], c->batches[k].count + c->n_ends + 1))
            return false;
    c->n_ends++;
    return true;
}

/* Copies an action's bytes; ids are read in place, so they begin aligned. */
static bool bytes_add(struct effects_batch *b, const void *bytes, size_t size, size_t *at)
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

static struct coord_action *batch_add(struct effects_batch *b, enum coord_action_kind kind,
                                      size_t size)
{
    struct coord_action *a = &b->actions[b->count];
    b->at[b->count++] = (size_t)NO_BYTES;
    *a = (struct coord_action){.kind = kind, .size = size};
    return a;
}

struct coord_action *effects_add(struct coord *c, enum coord_action_kind kind, const void *bytes,
                                 size_t size)
{
    static const char *const words[] = {
        [COORD_STORE] = "store",           [COORD_SEND] = "send",
        [COORD_MODEL_OPEN] = "model_open", [COORD_MODEL_CLOSE] = "model_close",
        [COORD_FRAME] = "frame",           [COORD_WORK] = "work",
        [COORD_TOKENS] = "tokens",         [COORD_ROW] = "row",
        [COORD_SCORES] = "scores",         [COORD_FINISHED] = "finished",
        [COORD_FAILED] = "failed"};
    struct effects_batch *b = effects_filling(c);
    size_t at = (size_t)NO_BYTES;
    if (!effects_batch_reserve(b, b->count + c->n_ends + 1) ||
        (bytes && !bytes_add(b, bytes, size, &at))) {
        action_lost(c, words[kind]);
        return NULL;
    }
    struct coord_action *a = batch_add(b, kind, size);
    b->at[b->count - 1] = at;
    return a;
}

struct coord_action *effects_end_add(struct coord *c, enum coord_action_kind kind)
{
    c->n_ends--;
    return batch_add(effects_filling(c), kind, 0);
}

struct sequence **effects_ended(struct coord *c)
{
    return &effects_filling(c)->ended;
}

struct effects_batch *effects_turn(struct coord *c, struct sequence **ended)
{
    struct effects_batch *b = effects_filling(c);
    c->filling ^= 1;
    struct effects_batch *next = effects_filling(c);
    next->count = 0;
    next->bytes.size = 0;
    *ended = next->ended;
    next->ended = NULL;
    arena_reset(&next->arena);
    return b;
}

const struct coord_action *effects_hand_over(struct effects_batch *b, size_t *count)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->at[i] != (size_t)NO_BYTES) {
            b->actions[i].bytes = b->bytes.data + b->at[i];
            if (b->actions[i].kind == COORD_TOKENS)
                b->actions[i].ids = (const uint32_t *)(const void *)b->actions[i].bytes;
        }
    *count = b->count;
    return b->actions;
}

void effects_free(struct coord *c)
{
    for (int k = 0; k < 2; k++) {
        free(c->batches[k].actions);
        free(c->batches[k].at);
        buffer_free(&c->batches[k].bytes);
        arena_free(&c->batches[k].arena);
    }
    arena_free(&c->decoded);
    buffer_free(&c->encoded);
}

void effects_forget_request(struct coord *c, uint64_t request)
{
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < c->batches[k].count; i++)
            if (c->batches[k].actions[i].request == request)
                c->batches[k].actions[i].request = 0;
}

void effects_call_back(const struct coord_action *a)
{
    const struct request_callbacks *cb = &a->callbacks;
    if (a->request == 0 || !cb->finished)
        return;
    if (a->kind == COORD_TOKENS)
        cb->tokens(cb->ctx, a->request, a->ids, a->size / sizeof *a->ids);
    else if (a->kind == COORD_ROW)
        cb->row(cb->ctx, a->request, (const float *)(const void *)a->bytes,
                a->size / sizeof(float));
    else if (a->kind == COORD_SCORES)
        cb->scores(cb->ctx, a->request, a->of_prompt, (const struct score *)(const void *)a->bytes,
                   a->size / sizeof(struct score));
    else if (a->kind == COORD_FINISHED)
        cb->finished(cb->ctx, a->request, a->finish, &a->usage);
    else if (a->kind == COORD_FAILED)
        cb->failed(cb->ctx, a->request, a->why, &a->usage);
}

bool effects_send(struct coord *c, uint64_t peer, const struct message *m)
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
    struct coord_action *a = encoded ? effects_add(c, COORD_SEND, bytes->data, bytes->size) : NULL;
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

void effects_refuse(struct coord *c, uint64_t peer, uint64_t id, const struct err *why)
{
    struct message m = {.type = MESSAGE_REFUSED, .id = id};
    m.u.refused.code = status_word(why->code);
    m.u.refused.text = why->text;
    m.u.refused.hint = why->hint;
    effects_send(c, peer, &m);
    c->counts.refused++;
}

void effects_answer(struct coord *c, uint64_t peer, uint64_t id, bool more, json_t *result)
{
    char *text = result ? json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (result && !text) {
        struct err e;
        err_set(&e, HP_ENOMEM, "the coordinator has no memory for the answer");
        effects_answer_error(c, peer, id, &e);
        json_decref(result);
        return;
    }
    struct message m = {.type = MESSAGE_ANSWER, .id = id};
    m.u.answer.more = more;
    m.u.answer.code = "ok";
    m.u.answer.text = m.u.answer.hint = "";
    m.u.answer.result = text ? text : "null";
    effects_send(c, peer, &m);
    free(text);
    json_decref(result);
}

void effects_answer_error(struct coord *c, uint64_t peer, uint64_t id, const struct err *why)
{
    struct message m = {.type = MESSAGE_ANSWER, .id = id};
    m.u.answer.code = status_word(why->code);
    m.u.answer.text = why->text;
    m.u.answer.hint = why->hint;
    m.u.answer.result = "null";
    effects_send(c, peer, &m);
}

void effects_answer_not_stored(struct coord *c, uint64_t peer, uint64_t id)
{
    struct err e;
    err_set(&e, c->read_only.code, "done, but not stored: %s", c->read_only.text);
    err_hint(&e, "a restart of the coordinator forgets this change, unless there is room before: "
                 "it is tried again every second");
    effects_answer_error(c, peer, id, &e);
}

void effects_answer_done(struct coord *c, uint64_t peer, uint64_t id, json_t *result)
{
    if (!c->read_only.code) {
        effects_answer(c, peer, id, false, result);
        return;
    }
    json_decref(result);
    effects_answer_not_stored(c, peer, id);
}

void effects_store_bytes(struct coord *c, const char *kind, const char *key, const void *bytes,
                         size_t size)
{
    char *kept = arena_strdup(effects_arena(c), key);
    struct coord_action *a = kept ? effects_add(c, COORD_STORE, bytes, size) : NULL;
    if (!a) {
        record_lost(c, kind, key);
        return;
    }
    a->record_kind = kind;
    a->key = kept;
}

void effects_store_json(struct coord *c, const char *kind, const char *key, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (text)
        effects_store_bytes(c, kind, key, text, strlen(text));
    else
        record_lost(c, kind, key);
    free(text);
    json_decref(value);
}

void effects_forget(struct coord *c, const char *kind, const char *key)
{
    effects_store_bytes(c, kind, key, NULL, 0);
}
