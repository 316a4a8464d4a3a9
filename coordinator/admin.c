#include "coordinator/admin.h"

#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "coordinator/admin_int.h"
#include "coordinator/asks.h"
#include "coordinator/effects.h"
#include "coordinator/holding.h"

enum { ADMIN_LOG_LINES = 200 };

/* ---- arguments ---- */

/* ---- logs ---- */

static json_t *log_result(const char *node, const char *text, size_t size)
{
    return json_pack("{s:s, s:o}", "node", node, "text", json_textn(text, size));
}

static json_t *own_log(const struct coord *c, size_t lines)
{
    struct buffer text = {0};
    if (c->config.log_read)
        c->config.log_read(c->config.log_ctx, lines, &text);
    json_t *result = log_result("coordinator", buffer_cstr(&text), text.size);
    buffer_free(&text);
    return result;
}

static int verb_logs(struct coord *c, struct question *q, struct err *e)
{
    struct member *m;
    uint64_t lines = admin_number(q, "lines", ADMIN_LOG_LINES);
    const char *node = json_string_value(json_object_get(q->arguments, "node"));
    if (node && strcmp(node, "coordinator") == 0 && !member_find(c, node)) {
        q->result = own_log(c, (size_t)lines);
        return 0;
    }
    int rc = admin_member(c, q, "node", &m, e);
    if (rc < 0)
        return rc;
    if (!member_present(m))
        return err_set(e, HP_ELINK, "agent \"%s\" is %s", m->name, member_states[m->state].word);
    struct agent_ask *r =
        asks_add(c, MESSAGE_LOG_TEXT, m, q->peer, q->id, coord_now(c) + coord_ms(ADMIN_WAIT_MS));
    if (!r)
        return err_set(e, HP_EBUSY, "too many questions wait for agents");
    struct message fetch = {.type = MESSAGE_LOG_FETCH, .id = r->id};
    fetch.u.log_fetch.lines = lines;
    effects_send(c, m->peer, &fetch);
    return HP_PENDING;
}

void admin_log_text(struct coord *c, struct member *m, uint64_t id,
                    const struct message_log_text *l)
{
    struct agent_ask *r = asks_answered(c, m, id, MESSAGE_LOG_TEXT);
    if (!r)
        return;
    effects_answer(c, r->peer, r->ask, false, log_result(m->name, l->text, strlen(l->text)));
    asks_end(c, r);
}

void admin_tick(struct coord *c)
{
    for (size_t i = c->n_asks; i-- > 0;) {
        struct agent_ask *r = &c->asks[i];
        if (coord_now(c) < r->until_ns)
            continue;
        struct err e = {0};
        err_set(&e, HP_ETIMEOUT, "an agent did not answer within %d s", ADMIN_WAIT_MS / 1000);
        if (r->peer)
            effects_answer_error(c, r->peer, r->ask, &e);
        asks_end(c, r);
    }
}

static int verb_version(struct coord *c, struct question *q, struct err *e)
{
    (void)e;
    q->result =
        json_pack("{s:s, s:s, s:i, s:I, s:s}", "version", c->version, "cluster", c->cluster,
                  "protocol", MESSAGE_VERSION, "boot", (json_int_t)c->boot, "http", c->http);
    return 0;
}

static const struct admin_verb own_verbs[] = {
    {"logs", verb_logs, false}, {"version", verb_version, false}, {NULL, NULL, false}};
static const struct admin_verb *const tables[] = {
    admin_node_verbs, admin_key_verbs, admin_deployment_verbs, admin_weight_verbs, admin_run_verbs,
    admin_pool_verbs, own_verbs};

static const struct admin_verb *verb_find(const char *word)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct admin_verb *v = tables[t]; v->verb; v++)
            if (strcmp(v->verb, word) == 0)
                return v;
    return NULL;
}

static int run_verb(struct coord *c, const char *word, struct question *q, struct err *e)
{
    const struct admin_verb *v = verb_find(word);
    if (!v)
        return err_set(e, HP_EUNSUPPORTED, "this coordinator (%s) does not know \"%.60s\"",
                       c->version, word);
    int rc = v->changes ? holding_may_change(c, e) : 0;
    return rc < 0 ? rc : v->run(c, q, e);
}

void admin_ask(struct coord *c, uint64_t peer, uint64_t id, const struct message_ask *ask)
{
    struct err e = {0};
    json_error_t why;
    json_t *arguments = ask->arguments[0] ? json_loads(ask->arguments, JSON_REJECT_DUPLICATES, &why)
                                          : json_object();
    struct question q = {.peer = peer, .id = id, .arguments = arguments, .blob = ask->blob};
    uint64_t lost = c->lost.records;
    int rc =
        json_is_object(arguments)
            ? run_verb(c, ask->verb, &q, &e)
            : err_set(&e, HP_EPARSE, "the arguments of \"%.60s\" are no JSON object", ask->verb);
    if (rc == 0 && c->lost.records != lost) {
        rc = err_set(&e, HP_ENOMEM, "done, but not stored: the coordinator has no memory");
        json_decref(q.result);
    }
    if (rc < 0)
        effects_answer_error(c, peer, id, &e);
    else if (rc == 0)
        effects_answer(c, peer, id, false, q.result);
    json_decref(arguments);
}
