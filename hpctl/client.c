#include "hpctl/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "transport/control.h"
#include "transport/message.h"

enum {
    FIRST_PATIENCE_MS = 4000,
    PATIENCE_MS = 60000,
    PULSE_MS = 500,     /* between two looks at whether the coordinator is still there */
    SILENCE_MS = 1500,  /* without a word for so long the user is told */
    ABSENCE_MS = 30000, /* and after so long the question is given up */
};

/* Pulses are `version` questions whose ids have this bit. */
#define PULSE_ID (UINT64_C(1) << 62)

struct client {
    struct context context;
    uv_loop_t loop;
    uv_timer_t timer, pulse;
    struct control *control;
    uint64_t next_id;
    /* of the question under way */
    const struct client_ask *ask;
    uint64_t id, patience_ms;
    json_t *result;
    struct buffer *blob;
    size_t blob_start; /* bytes that the blob had before the question */
    struct err *e;
    int rc; /* HP_PENDING while it is open */
    bool answered;
    /* whether the coordinator is there */
    uint64_t boot; /* of the coordinator that was asked; 0: not known yet */
    uint64_t heard_ns, pulsed_ns;
    bool silence_told, asked_again;
};

/* Something listens there that is not the coordinator of this context. */
static int other_key(struct client *c)
{
    err_set(c->e, HP_EDENIED,
            "what listens at %s does not prove itself with the key that the context \"%s\" has of "
            "its coordinator",
            c->context.control, c->context.name);
    return err_hint(c->e, "another cluster may have that port now, or the key in the context's "
                          "file or in the coordinator's server.key was changed; nothing was asked");
}

static void on_late(uv_timer_t *timer)
{
    struct client *c = timer->data;
    if (c->rc != HP_PENDING)
        return;
    if (!c->answered && control_contact(c->control) == CONTROL_UNPROVEN) {
        c->rc = other_key(c);
    } else if (!c->answered) {
        c->rc = err_set(c->e, HP_ENOCLUSTER, "no answer from the coordinator at %s",
                        c->context.control);
        err_hint(c->e, c->context.local_dir[0]
                           ? "`hpctl local ls` shows whether it runs; `hpctl local start "
                             "--coordinator` starts it"
                           : "is hp-coordinator running there, and is the port reachable?");
    } else {
        c->rc = err_set(c->e, HP_ETIMEOUT, "%s: no answer for %.0f s", c->ask->verb,
                        (double)c->patience_ms / 1000);
    }
}

static void wait_on(struct client *c)
{
    uv_timer_start(&c->timer, on_late, c->patience_ms, 0);
}

/* While nothing was answered yet: a key that is not proven now will not be later. */
static void on_look(uv_timer_t *timer)
{
    struct client *c = timer->data;
    if (c->rc == HP_PENDING && !c->answered && control_contact(c->control) == CONTROL_UNPROVEN)
        c->rc = other_key(c);
}

static int send_ask(struct client *c, const struct client_ask *ask, uint64_t id)
{
    char *arguments = ask->arguments ? json_dumps(ask->arguments, JSON_COMPACT) : NULL;
    if (ask->arguments && !arguments)
        return err_no_memory(c->e, "a question");
    struct message m = {.type = MESSAGE_ASK, .id = id};
    m.u.ask = (struct message_ask){ask->verb, arguments ? arguments : "{}", ask->blob};
    struct buffer wire = {0};
    message_encode(&m, &wire);
    int rc = wire.failed ? err_no_memory(c->e, "a question")
                         : control_send(c->control, 0, wire.data, wire.size, c->e);
    buffer_free(&wire);
    free(arguments);
    return rc;
}

/* ---- is the coordinator still the one that was asked? ---- */

static double silent_ms(const struct client *c)
{
    return (double)(env_now_ns(&env_real) - c->heard_ns) / 1e6 / env_time_scale();
}

static void tell_silence(struct client *c)
{
    if (!c->silence_told)
        fprintf(stderr, "hpctl: the coordinator at %s does not answer; waiting for it\n",
                c->context.control);
    c->silence_told = true;
}

static void on_pulse(uv_timer_t *timer)
{
    struct client *c = timer->data;
    struct client_ask hello = {.verb = "version"};
    uint64_t now = env_now_ns(&env_real);
    /* A loop that was busy itself (an upload in a callback) has heard nobody: that time counts for
     * nothing. */
    if ((double)(now - c->pulsed_ns) / 1e6 > 3 * PULSE_MS)
        c->heard_ns = now;
    c->pulsed_ns = now;
    if (silent_ms(c) > SILENCE_MS)
        tell_silence(c);
    if (silent_ms(c) > ABSENCE_MS) {
        c->rc =
            err_set(c->e, HP_ELINK, "%s: the coordinator at %s went away before it had answered",
                    c->ask->verb, c->context.control);
        err_hint(
            c->e,
            "what was asked for may have been done or not: look again once the coordinator runs");
        return;
    }
    send_ask(c, &hello, PULSE_ID); /* one that cannot be sent is one that is not answered */
}

/* The answer to a pulse, or to the first question. Another boot number is another run of the
 * coordinator, which knows nothing of the question. */
static void take_boot(struct client *c, const struct message *m)
{
    json_t *value =
        m->type == MESSAGE_ANSWER ? json_loads(m->u.answer.result, JSON_DECODE_ANY, NULL) : NULL;
    uint64_t boot = (uint64_t)json_integer_value(json_object_get(value, "boot"));
    json_decref(value);
    bool other = boot && c->boot && boot != c->boot;
    if (boot)
        c->boot = boot;
    if (!other || c->rc != HP_PENDING || !c->ask)
        return;
    fprintf(stderr, "hpctl: the coordinator was restarted; asking again\n");
    if (c->blob)
        c->blob->size = c->blob_start;
    c->asked_again = true;
    c->silence_told = false;
    int rc = send_ask(c, c->ask, c->id);
    if (rc < 0)
        c->rc = rc;
}

/* What lists the things of this kind, where the coordinator says that there is none of that name.
 */
static const char *listing_verb(const char *verb)
{
    static const char *const rows[][2] = {
        {"node.", "node ls"},       {"logs", "node ls"}, {"deployment.", "ps"},
        {"undeploy", "ps"},         {"rebalance", "ps"}, {"weights.", "weights ls"},
        {"profile.", "profile ls"}, {"key.", "key ls"},  {"deploy", "node ls"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(verb, rows[i][0], strlen(rows[i][0])) == 0)
            return rows[i][1];
    return NULL;
}

/* Interrupted is what this hpctl may be; what the cluster gave up somebody else ended. */
static int refusal_of(const char *word)
{
    int rc = status_of_word(word);
    return rc == HP_ECANCELED ? HP_EBUSY : rc;
}

static int take_answer(struct client *c, const struct message_answer *a)
{
    if (*a->code && strcmp(a->code, "ok") != 0) {
        int rc = err_set(c->e, refusal_of(a->code), "%s", a->text);
        const char *listing = rc == HP_ENOENT && !*a->hint ? listing_verb(c->ask->verb) : NULL;
        if (listing)
            err_hint(c->e, "`hpctl %s` lists them", listing);
        else
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
        return rc == 0 ? HP_PENDING : rc;
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
    c->heard_ns = env_now_ns(&env_real);
    if (rc == HP_EPROTO) {
        c->rc = rc;
    } else if (rc == 0 && m.id == PULSE_ID) {
        take_boot(c, &m);
    } else if (rc == 0 && m.id == c->id) {
        c->answered = true;
        wait_on(c);
        if (!c->boot)
            take_boot(c, &m);
        if (m.type == MESSAGE_ANSWER) {
            c->rc = take_answer(c, &m.u.answer);
        } else if (m.type == MESSAGE_REFUSED) {
            c->rc = err_set(c->e, refusal_of(m.u.refused.code), "%s", m.u.refused.text);
            err_hint(c->e, "%s", m.u.refused.hint);
        }
    }
    arena_free(&arena);
}

/* Verbs that take something away: "no such thing" is success when the question had to be asked a
 * second time. */
static bool verb_removes(const char *verb)
{
    size_t n = strlen(verb);
    return strcmp(verb, "undeploy") == 0 || (n > 3 && strcmp(verb + n - 3, ".rm") == 0);
}

int client_ask(struct client *c, const struct client_ask *ask, json_t **result, struct buffer *blob,
               struct err *e)
{
    struct err own = {0};
    c->ask = ask;
    c->id = ++c->next_id;
    c->e = e ? e : &own;
    c->blob = blob;
    c->blob_start = blob ? blob->size : 0;
    c->result = NULL;
    c->silence_told = c->asked_again = false;
    c->heard_ns = c->pulsed_ns = env_now_ns(&env_real);
    c->patience_ms =
        (uint64_t)((double)(ask->patience_ms ? ask->patience_ms : PATIENCE_MS) * env_time_scale());
    c->rc = HP_PENDING;
    int rc = send_ask(c, ask, c->id);
    if (rc < 0) {
        json_decref(ask->arguments);
        return rc;
    }
    wait_on(c);
    uv_timer_start(&c->pulse, c->boot ? on_pulse : on_look, PULSE_MS, PULSE_MS);
    while (c->rc == HP_PENDING)
        uv_run(&c->loop, UV_RUN_ONCE);
    uv_timer_stop(&c->timer);
    uv_timer_stop(&c->pulse);
    json_decref(ask->arguments);
    if (c->rc == HP_ENOENT && c->asked_again && verb_removes(ask->verb)) {
        *c->e = (struct err){0};
        c->rc = 0; /* the run of the coordinator that was asked first had done it */
        c->result = json_object();
    }
    if (c->rc == 0 && result)
        *result = c->result;
    else
        json_decref(c->result);
    c->ask = NULL;
    return c->rc;
}

int client_get(struct client *c, const char *verb, json_t *arguments, json_t **result,
               struct err *e)
{
    struct client_ask ask = {.verb = verb, .arguments = arguments};
    return client_ask(c, &ask, result, NULL, e);
}

int client_get_once(const char *context, const char *verb, json_t *arguments, json_t **result,
                    struct err *e)
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

static int control_start(struct client *c, struct err *e)
{
    const struct context *to = &c->context;
    struct control_callbacks cb = {.ctx = c, .message = on_message};
    return to->hub ? control_connect_inproc(to->hub, &c->loop, to->control, to->server_key,
                                            &to->admin, &cb, &c->control, e)
                   : control_connect_zmq(&c->loop, to->control, to->server_key, &to->admin, &cb,
                                         &c->control, e);
}

int client_open_at(const struct context *context, uint64_t patience_ms, struct client **out,
                   struct err *e)
{
    struct client *c = calloc(1, sizeof *c);
    if (!c)
        return err_no_memory(e, "a client");
    c->context = *context;
    c->rc = 0;
    uv_loop_init(&c->loop);
    uv_timer_init(&c->loop, &c->timer);
    uv_timer_init(&c->loop, &c->pulse);
    c->timer.data = c->pulse.data = c;
    int rc = control_start(c, e);
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
    return rc == 0 ? client_open_at(&where, FIRST_PATIENCE_MS, out, e) : rc;
}

void client_close(struct client **out)
{
    struct client *c = *out;
    *out = NULL;
    if (!c)
        return;
    control_close(&c->control);
    uv_close((uv_handle_t *)&c->timer, NULL);
    uv_close((uv_handle_t *)&c->pulse, NULL);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    free(c);
}

const struct context *client_context(const struct client *c)
{
    return &c->context;
}
