#include "hpctl/client.h"

#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "transport/control.h"
#include "transport/message.h"

enum { FIRST_PATIENCE_MS = 4000, PATIENCE_MS = 60000 };

struct client {
    struct context context;
    uv_loop_t loop;
    uv_timer_t timer;
    struct control *control;
    uint64_t next_id;
    /* of the question under way */
    const struct client_ask *ask;
    uint64_t id, patience_ms;
    json_t *result;
    struct buffer *blob;
    struct err *e;
    int rc; /* HP_PENDING while it is open */
    bool answered;
};

static void on_late(uv_timer_t *timer)
{
    struct client *c = timer->data;
    if (c->rc != HP_PENDING)
        return;
    if (!c->answered) {
        c->rc = err_set(c->e, HP_ENOCLUSTER, "no answer from the coordinator at %s", c->context.control);
        err_hint(c->e, c->context.local_dir[0] ? "`hpctl local ls` shows whether it runs; `hpctl local start --coordinator` starts it"
                                               : "is hp-coordinator running there, and is the port reachable?");
    } else {
        c->rc = err_set(c->e, HP_ETIMEOUT, "%s: no answer for %.0f s", c->ask->verb, (double)c->patience_ms / 1000);
    }
}

static void wait_on(struct client *c) { uv_timer_start(&c->timer, on_late, c->patience_ms, 0); }

static int take_answer(struct client *c, const struct message_answer *a)
{
    if (*a->code && strcmp(a->code, "ok") != 0) {
        int rc = err_set(c->e, status_of_word(a->code), "%s", a->text);
        err_hint(c->e, "%s", a->hint);
        return rc;
    }
    json_t *value = *a->result ? json_loads(a->result, JSON_DECODE_ANY, NULL) : json_null();
    if (!value)
        return err_set(c->e, HP_EPROTO, "%s: the coordinator's answer is not JSON", c->ask->verb);
    if (a->more) {
        int rc = c->ask->progress ? c->ask->progress(c->ask->ctx, value, c->e) : 0;
        if (rc == 0 && c->blob)
            buffer_append(c->blob, a->blob.data, a->blob.size);
        json_decref(value);
        return rc < 0 ? rc : HP_PENDING;
    }
    if (c->blob)
        buffer_append(c->blob, a->blob.data, a->blob.size);
    c->result = value;
    return 0;
}

static void on_message(void *ctx, uint64_t peer, const char *key, const uint8_t *bytes, size_t size)
{
    struct client *c = ctx;
    struct arena arena = {0};
    struct message m;
    (void)peer, (void)key;
    if (c->rc != HP_PENDING)
        return;
    int rc = message_decode(bytes, size, &arena, &m, c->e);
    if (rc == HP_EPROTO) {
        c->rc = rc;
    } else if (rc == 0 && m.id == c->id) {
        c->answered = true;
        wait_on(c);
        if (m.type == MESSAGE_ANSWER) {
            c->rc = take_answer(c, &m.u.answer);
        } else if (m.type == MESSAGE_REFUSED) {
            c->rc = err_set(c->e, status_of_word(m.u.refused.code), "%s", m.u.refused.text);
            err_hint(c->e, "%s", m.u.refused.hint);
        }
    }
    arena_free(&arena);
}

static int send_ask(struct client *c, const struct client_ask *ask)
{
    char *arguments = ask->arguments ? json_dumps(ask->arguments, JSON_COMPACT) : NULL;
    struct message m = {.type = MESSAGE_ASK, .id = c->id};
    m.u.ask = (struct message_ask){ask->verb, arguments ? arguments : "{}", ask->blob};
    struct buffer wire = {0};
    message_encode(&m, &wire);
    int rc = wire.failed ? err_set(c->e, HP_ENOMEM, "out of memory for a question") : control_send(c->control, 0, wire.data, wire.size, c->e);
    buffer_free(&wire);
    free(arguments);
    return rc;
}

int client_ask(struct client *c, const struct client_ask *ask, json_t **result, struct buffer *blob, struct err *e)
{
    struct err own = {0};
    c->ask = ask;
    c->id = ++c->next_id;
    c->e = e ? e : &own;
    c->blob = blob;
    c->result = NULL;
    c->patience_ms = (uint64_t)((double)(ask->patience_ms ? ask->patience_ms : PATIENCE_MS) * env_time_scale());
    c->rc = HP_PENDING;
    int rc = send_ask(c, ask);
    json_decref(ask->arguments);
    if (rc < 0)
        return rc;
    wait_on(c);
    while (c->rc == HP_PENDING)
        uv_run(&c->loop, UV_RUN_ONCE);
    uv_timer_stop(&c->timer);
    if (c->rc == 0 && result)
        *result = c->result;
    else
        json_decref(c->result);
    c->ask = NULL;
    return c->rc;
}

int client_get(struct client *c, const char *verb, json_t *arguments, json_t **result, struct err *e)
{
    struct client_ask ask = {.verb = verb, .arguments = arguments};
    return client_ask(c, &ask, result, NULL, e);
}

int client_get_once(const char *context, const char *verb, json_t *arguments, json_t **result, struct err *e)
{
    struct client *c;
    int rc = client_open(context, &c, e);
    if (rc < 0) {
        json_decref(arguments);
        return rc;
    }
    rc = client_get(c, verb, arguments, result, e);
    client_close(&c);
    return rc;
}

int client_open_at(const struct context *context, uint64_t patience_ms, struct client **out, struct err *e)
{
    struct client *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, HP_ENOMEM, "out of memory");
    c->context = *context;
    c->rc = 0;
    uv_loop_init(&c->loop);
    uv_timer_init(&c->loop, &c->timer);
    c->timer.data = c;
    struct control_callbacks cb = {c, on_message};
    int rc = control_connect_zmq(&c->loop, context->control, context->server_key, &context->admin, &cb, &c->control, e);
    if (rc == 0) {
        struct client_ask hello = {.verb = "version", .patience_ms = patience_ms};
        rc = client_ask(c, &hello, NULL, NULL, e);
    }
    if (rc < 0)
        client_close(&c);
    else
        *out = c;
    return rc;
}

int client_open(const char *context, struct client **out, struct err *e)
{
    struct context where;
    int rc = context_load(context, &where, e);
    return rc < 0 ? rc : client_open_at(&where, FIRST_PATIENCE_MS, out, e);
}

void client_close(struct client **out)
{
    struct client *c = *out;
    *out = NULL;
    if (!c)
        return;
    control_close(&c->control);
    uv_close((uv_handle_t *)&c->timer, NULL);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    free(c);
}

const struct context *client_context(const struct client *c) { return &c->context; }
