/* The simulated cluster: what hpctl asks. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/store/store.h"
#include "tests/sim/cluster_int.h"

static void upload(struct sim *s, const json_t *part)
{
    const json_t *targets = json_object_get(part, "targets");
    for (size_t i = 0; s->uploader && i < json_array_size(targets); i++) {
        const json_t *t = json_array_get(targets, i);
        for (int k = 0; k < s->n_agents; k++)
            if (strcmp(s->agents[k]->name, json_string_value(json_object_get(t, "agent"))) == 0) {
                s->uploads += json_array_size(json_object_get(t, "chunks"));
                sim_agent_uploaded(s, s->agents[k], json_object_get(t, "chunks"));
            }
    }
}

void sim_admin_answer(struct sim *s, const struct coord_action *a)
{
    struct arena arena = {0};
    struct message m;
    struct err e = {0};
    int rc = message_decode(a->bytes, a->size, &arena, &m, &e);
    assert(rc == 0 && m.type == MESSAGE_ANSWER);
    json_t *result = json_loads(m.u.answer.result, JSON_DECODE_ANY, NULL);
    buffer_append(&s->logits, m.u.answer.blob.data, m.u.answer.blob.size);
    const char *phase = json_string_value(json_object_get(result, "phase"));
    if (m.u.answer.more && phase && strcmp(phase, "upload") == 0)
        upload(s, result);
    if (m.u.answer.more || (s->awaited && m.id != s->awaited)) {
        json_decref(result);
    } else {
        s->answered_last = m.id;
        json_decref(s->answer);
        s->answer = result;
        s->answered++;
        s->answer_error = (struct err){0};
        if (strcmp(m.u.answer.code, "ok") != 0) {
            err_set(&s->answer_error, status_of_word(m.u.answer.code), "%s", m.u.answer.text);
            err_hint(&s->answer_error, "%s", m.u.answer.hint);
        }
    }
    arena_free(&arena);
}

void sim_ask(struct sim *s, const char *verb, json_t *arguments, const struct buffer *blob)
{
    char *text = arguments ? json_dumps(arguments, 0) : NULL;
    struct message m = {.type = MESSAGE_ASK, .id = ++s->asked};
    if (s->awaited != s->asked)
        s->awaited = 0;
    m.u.ask.verb = verb;
    m.u.ask.arguments = text ? text : "{}";
    if (blob)
        m.u.ask.blob = (struct pack_span){blob->data, blob->size};
    struct buffer bytes = {0};
    message_encode(&m, &bytes);
    s->logits.size = 0;
    coord_message(s->core, SIM_ADMIN_PEER, admin_key, bytes.data, bytes.size);
    sim_core_settle(s);
    buffer_free(&bytes);
    free(text);
    json_decref(arguments);
}

/* What is asked next is waited for: until something else is asked no other ask's answer counts. */
static void answer_await(struct sim *s)
{
    s->awaited = s->asked + 1;
}

static bool is_answered(struct sim *s)
{
    return s->answered_last == s->awaited;
}

static int answer_wait(struct sim *s)
{
    return sim_run_until(s, is_answered, 120000) ? s->answer_error.code : HP_ETIMEOUT;
}

int sim_ask_wait(struct sim *s, const char *verb, json_t *arguments, const struct buffer *blob)
{
    answer_await(s);
    sim_ask(s, verb, arguments, blob);
    return answer_wait(s);
}

void sim_deploy_ask(struct sim *s, const char *name, json_t *options)
{
    struct buffer manifest = {0};
    toy_manifest("toy", &manifest);
    sim_ask(s, "deploy", json_pack("{s:s, s:o}", "name", name, "options", options), &manifest);
    buffer_free(&manifest);
}

int sim_deploy_with(struct sim *s, const char *name, json_t *options)
{
    answer_await(s);
    sim_deploy_ask(s, name, options);
    return answer_wait(s);
}

int sim_deploy(struct sim *s, const char *agents, const char *layers, uint64_t slice)
{
    return sim_deploy_with(s, "toy",
                           json_pack("{s:s*, s:s*, s:s*, s:I, s:I, s:s*}", "agents", agents,
                                     "layers", layers, "speculate", s->speculate, "slice",
                                     (json_int_t)slice, "replicate_kv", (json_int_t)s->replicate_kv,
                                     "replicate_to", s->replicate_to));
}

void sim_deploy_as(struct sim *s, const char *name, const char *agents)
{
    sim_deploy_ask(s, name, json_pack("{s:s*, s:s*}", "agents", agents, "speculate", s->speculate));
}

void sim_drain(struct sim *s, int agent, bool undo)
{
    char name[8];
    snprintf(name, sizeof name, "a%d", agent);
    if (s->core)
        sim_ask(s, undo ? "node.undrain" : "node.drain", json_pack("{s:s}", "name", name), NULL);
}

bool sim_serves_name(struct sim *s, const char *name)
{
    struct request_model m;
    return s->core && s->requests.find(s->requests.ctx, NULL, name, &m, NULL) == 0 && m.serving;
}

bool sim_serves(struct sim *s)
{
    return sim_serves_name(s, "toy");
}
