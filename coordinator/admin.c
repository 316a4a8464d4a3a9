#include "coordinator/admin.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "coordinator/core_int.h"
#include "coordinator/costs.h"
#include "coordinator/drain.h"
#include "coordinator/truth.h"

enum {
    ADMIN_WAIT_MS = 5000,
    ADMIN_MAX_IDS = 1 << 20,
    ADMIN_MAX_TOGETHER = 64,
    ADMIN_TOKEN_TTL_S = 3600,
    ADMIN_LOG_LINES = 200
};

struct question {
    uint64_t peer, id;
    const json_t *arguments;
    struct pack_span blob;
    json_t *result; /* of the verb; null where it stays NULL */
};

/* ---- arguments
 * ------------------------------------------------------------------------------------------------
 */

static int text_argument(const struct question *q, const char *key, const char **out, struct err *e)
{
    *out = json_string_value(json_object_get(q->arguments, key));
    return *out ? 0 : err_set(e, HP_EINVAL, "the question has no \"%s\"", key);
}

static uint64_t number_argument(const struct question *q, const char *key, uint64_t fallback)
{
    const json_t *v = json_object_get(q->arguments, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v)
                                                            : fallback;
}

static int member_argument(struct core *c, const struct question *q, const char *key,
                           struct member **out, struct err *e)
{
    const char *name;
    int rc = text_argument(q, key, &name, e);
    if (rc < 0)
        return rc;
    *out = member_find(c, name);
    return *out ? 0 : err_set(e, HP_ENOENT, "there is no agent \"%.100s\" in this cluster", name);
}

static int deployment_argument(struct core *c, const struct question *q, const char *key,
                               struct deployment **out, struct err *e)
{
    const char *name;
    int rc = text_argument(q, key, &name, e);
    if (rc < 0)
        return rc;
    *out = deployment_find(c, name);
    return *out ? 0 : err_set(e, HP_ENOENT, "there is no deployment \"%.100s\"", name);
}

/* ---- nodes
 * ----------------------------------------------------------------------------------------------------
 */

static int verb_node_ls(struct core *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_members; i++)
        json_array_append_new(q->result, member_describe(c, c->members[i], false));
    return 0;
}

static int verb_node_describe(struct core *c, struct question *q, struct err *e)
{
    struct member *m;
    int rc = member_argument(c, q, "name", &m, e);
    if (rc == 0)
        q->result = member_describe(c, m, true);
    return rc;
}

static int verb_node_drain(struct core *c, struct question *q, struct err *e)
{
    struct member *m;
    int rc = member_argument(c, q, "name", &m, e);
    if (rc == 0)
        rc = drain_start(c, m, json_is_true(json_object_get(q->arguments, "force")), q->peer, q->id,
                         e);
    if (rc == 0)
        q->result = member_describe(c, m, false);
    return rc;
}

static int verb_node_undrain(struct core *c, struct question *q, struct err *e)
{
    struct member *m;
    int rc = member_argument(c, q, "name", &m, e);
    if (rc < 0)
        return rc;
    drain_undo(c, m);
    q->result = member_describe(c, m, false);
    return 0;
}

static int verb_node_rm(struct core *c, struct question *q, struct err *e)
{
    struct member *m;
    int rc = member_argument(c, q, "name", &m, e);
    if (rc == 0)
        rc = members_remove(c, m, e);
    return rc;
}

static int verb_topo(struct core *c, struct question *q, struct err *e)
{
    if (json_is_true(json_object_get(q->arguments, "measure"))) {
        int rc = links_measure(c, q->peer, q->id, e);
        return rc < 0 ? rc : HP_PENDING;
    }
    q->result = links_cluster(c);
    return 0;
}

static int verb_profile(struct core *c, struct question *q, struct err *e)
{
    int rc = profiling_start(c, q->peer, q->id, q->arguments, q->blob, e);
    return rc < 0 ? rc : HP_PENDING;
}

static int verb_profile_ls(struct core *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = profiles_describe(c);
    return 0;
}

static int verb_profile_rm(struct core *c, struct question *q, struct err *e)
{
    const char *model, *kind = json_string_value(json_object_get(q->arguments, "kind"));
    int removed = 0, rc = text_argument(q, "model", &model, e);
    if (rc == 0)
        rc = profiles_remove(c, model, kind ? kind : "", &removed, e);
    if (rc == 0)
        q->result = json_pack("{s:i}", "removed", removed);
    return rc;
}

/* ---- tokens and keys
 * ------------------------------------------------------------------------------------------- */

static int verb_token_create(struct core *c, struct question *q, struct err *e)
{
    char token[TOKEN_TEXT];
    uint64_t ttl = number_argument(q, "ttl_s", ADMIN_TOKEN_TTL_S);
    int rc = members_invite(c, ttl, token, e);
    if (rc == 0)
        q->result = json_pack("{s:s, s:I}", "token", token, "expires_s",
                              (json_int_t)(core_unix_s(c) + ttl));
    return rc;
}

static int verb_token_ls(struct core *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_invites; i++) {
        const struct member_invite *v = &c->invites[i];
        json_array_append_new(
            q->result,
            json_pack("{s:s%, s:I, s:I, s:s, s:b}", "digest", v->digest, (size_t)12, "created_s",
                      (json_int_t)v->created_s, "expires_s", (json_int_t)v->expires_s, "used_by",
                      v->used_by, "good", !v->used_by[0] && v->expires_s > core_unix_s(c)));
    }
    return 0;
}

/* Names of keys are printed on terminals and asked for again: refused, not mended. */
static int key_name_check(const char *name, struct err *e)
{
    size_t n = strlen(name), most = sizeof((struct core_api_key *)0)->name - 1;
    if (n == 0 || n > most)
        return err_set(e, HP_EINVAL, "the name of an API key has 1 to %zu bytes, this one %zu",
                       most, n);
    uint32_t c;
    for (int length; *name; name += length)
        if ((length = utf8_decode(name, strlen(name), &c)) <= 0 || c < 0x20 ||
            (c >= 0x7f && c < 0xa0))
            return err_set(e, HP_EINVAL, "the name of an API key has no control characters");
    return 0;
}

static int verb_key_create(struct core *c, struct question *q, struct err *e)
{
    const char *name;
    int rc = text_argument(q, "name", &name, e);
    if (rc < 0 || (rc = key_name_check(name, e)) < 0)
        return rc;
    for (size_t i = 0; i < c->n_api_keys; i++)
        if (strcmp(c->api_keys[i].name, name) == 0)
            return err_set(e, HP_EEXIST, "there is an API key \"%.60s\" already", name);
    uint8_t chance[24];
    char key[3 + 2 * sizeof chance + 1] = "hp-";
    c->env->random_bytes(c->env->ctx, chance, sizeof chance);
    for (size_t i = 0; i < sizeof chance; i++)
        snprintf(key + 3 + 2 * i, 3, "%02x", chance[i]);
    struct core_api_key *k = core_array_add(&c->api_keys, &c->n_api_keys, sizeof *k);
    if (!k)
        return err_set(e, HP_ENOMEM, "no memory for an API key");
    join_token_secret_digest(key, k->digest);
    core_text_set(k->name, sizeof k->name, name);
    k->created_s = core_unix_s(c);
    core_keep_json(c, "key", k->digest,
                   json_pack("{s:s, s:I}", "name", k->name, "created_s", (json_int_t)k->created_s));
    q->result = json_pack("{s:s, s:s}", "name", k->name, "key", key);
    return 0;
}

static int verb_key_ls(struct core *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_api_keys; i++)
        json_array_append_new(q->result,
                              json_pack("{s:s, s:I}", "name", c->api_keys[i].name, "created_s",
                                        (json_int_t)c->api_keys[i].created_s));
    return 0;
}

static int verb_key_rm(struct core *c, struct question *q, struct err *e)
{
    const char *name;
    int rc = text_argument(q, "name", &name, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < c->n_api_keys; i++)
        if (strcmp(c->api_keys[i].name, name) == 0) {
            core_forget(c, "key", c->api_keys[i].digest);
            core_array_remove(c->api_keys, &c->n_api_keys, sizeof *c->api_keys, i);
            return 0;
        }
    return err_set(e, HP_ENOENT, "there is no API key \"%.60s\"", name);
}

/* ---- deployments
 * -------------------------------------------------------------------------------------------------
 */

static int verb_deploy(struct core *c, struct question *q, struct err *e)
{
    const char *name;
    int rc = text_argument(q, "name", &name, e);
    if (rc == 0)
        rc = deployments_deploy(c, q->peer, q->id, name, json_object_get(q->arguments, "options"),
                                q->blob, e);
    return rc < 0 ? rc : HP_PENDING;
}

static int verb_deployment_ls(struct core *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_deployments; i++)
        json_array_append_new(q->result, deployment_describe(c, c->deployments[i], false));
    return 0;
}

static int verb_deployment_describe(struct core *c, struct question *q, struct err *e)
{
    struct deployment *d;
    int rc = deployment_argument(c, q, "name", &d, e);
    if (rc == 0) {
        q->result = deployment_describe(c, d, true);
        json_object_set_new(q->result, "prefill",
                            truth_describe(d, (size_t)number_argument(q, "prefills", 1)));
    }
    return rc;
}

static int verb_undeploy(struct core *c, struct question *q, struct err *e)
{
    struct deployment *d;
    int rc = deployment_argument(c, q, "name", &d, e);
    if (rc < 0)
        return rc;
    deployments_undeploy(c, d, q->peer, q->id);
    return HP_PENDING;
}

/* ---- weights
 * ---------------------------------------------------------------------------------------------------------
 */

static bool model_in_use(const struct core *c, const char *id)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (strcmp(c->deployments[i]->model->id, id) == 0)
            return true;
    return false;
}

static json_t *weights_row(json_t *rows, const struct core *c, const struct member_model *m)
{
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row) if (strcmp(json_string_value(json_object_get(row, "model")),
                                                m->id) == 0) return row;
    row = json_pack("{s:s, s:s, s:b, s:[]}", "model", m->id, "name", m->name, "in_use",
                    model_in_use(c, m->id), "agents");
    json_array_append_new(rows, row);
    return row;
}

static int verb_weights_ls(struct core *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_models; k++) {
            const struct member_model *m = &c->members[i]->models[k];
            json_array_append_new(json_object_get(weights_row(q->result, c, m), "agents"),
                                  json_pack("{s:s, s:I}", "agent", c->members[i]->name, "bytes",
                                            (json_int_t)m->bytes));
        }
    return 0;
}

/* A model by its id, the beginning of it, or its name. */
static int model_argument(struct core *c, const struct question *q, char id[DIGEST_HEX],
                          struct err *e)
{
    const char *asked;
    int rc = text_argument(q, "model", &asked, e), found = 0;
    if (rc < 0)
        return rc;
    id[0] = 0;
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_models; k++) {
            const struct member_model *m = &c->members[i]->models[k];
            bool meant = strcmp(m->name, asked) == 0 ||
                         (strlen(asked) >= 6 && strncmp(m->id, asked, strlen(asked)) == 0);
            if (!meant || strcmp(m->id, id) == 0)
                continue;
            found++;
            core_text_set(id, DIGEST_HEX, m->id);
        }
    if (found > 1)
        return err_set(e, HP_EINVAL, "\"%.100s\" means %d models: give the id", asked, found);
    return found ? 0 : err_set(e, HP_ENOENT, "no agent holds weights of a model \"%.100s\"", asked);
}

static int verb_weights_rm(struct core *c, struct question *q, struct err *e)
{
    char id[DIGEST_HEX];
    struct digest digest;
    int rc = model_argument(c, q, id, e);
    if (rc < 0)
        return rc;
    if (model_in_use(c, id))
        return err_set(e, HP_EBUSY, "a deployment uses this model: undeploy it first");
    rc = digest_from_hex(id, &digest, e);
    struct core_relay *r = rc < 0 ? NULL
                                  : core_relay_add(c, MESSAGE_STORE_STATE, NULL, q->peer, q->id,
                                                   core_now(c) + core_ms(ADMIN_WAIT_MS));
    if (!r)
        return rc < 0 ? rc : err_set(e, HP_EBUSY, "too many questions wait for agents");
    core_text_set(r->what, sizeof r->what, id);
    r->awaited = 0;
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        for (size_t k = 0; k < m->n_models && member_present(m); k++)
            if (strcmp(m->models[k].id, id) == 0) {
                struct message rm = {.type = MESSAGE_STORE_REMOVE, .id = r->id};
                rm.u.store_remove.model = (struct pack_span){digest.bytes, sizeof digest.bytes};
                core_say(c, m->peer, &rm);
                r->awaited++;
            }
    }
    if (r->awaited)
        return HP_PENDING;
    core_relay_end(c, r);
    return err_set(e, HP_ELINK, "the agents that hold this model are not here now");
}

void admin_store_state(struct core *c, struct member *m, uint64_t id,
                       const struct message_store_state *s)
{
    members_models_set(m, &s->models);
    struct core_relay *r = core_relay_find(c, id, MESSAGE_STORE_STATE);
    if (!r)
        return;
    if (s->code[0] && strcmp(s->code, "ok") != 0) {
        struct err e = {0};
        err_set(&e, core_failure_code(s->code), "agent \"%s\": %s", m->name, s->text);
        core_answer_error(c, r->peer, r->ask, &e);
        core_relay_end(c, r);
    } else if (--r->awaited == 0) {
        core_answer(c, r->peer, r->ask, false, json_pack("{s:s}", "removed", r->what));
        core_relay_end(c, r);
    }
}

/* ---- logs
 * ---------------------------------------------------------------------------------------------------------------
 */

static json_t *log_result(const char *node, const char *text, size_t size)
{
    return json_pack("{s:s, s:o}", "node", node, "text", json_textn(text, size));
}

static json_t *own_log(const struct core *c, size_t lines)
{
    struct buffer text = {0};
    if (c->config.log_read)
        c->config.log_read(c->config.log_ctx, lines, &text);
    json_t *result = log_result("coordinator", buffer_cstr(&text), text.size);
    buffer_free(&text);
    return result;
}

static int verb_logs(struct core *c, struct question *q, struct err *e)
{
    struct member *m;
    uint64_t lines = number_argument(q, "lines", ADMIN_LOG_LINES);
    const char *node = json_string_value(json_object_get(q->arguments, "node"));
    if (node && strcmp(node, "coordinator") == 0 && !member_find(c, node)) {
        q->result = own_log(c, (size_t)lines);
        return 0;
    }
    int rc = member_argument(c, q, "node", &m, e);
    if (rc < 0)
        return rc;
    if (!member_present(m))
        return err_set(e, HP_ELINK, "agent \"%s\" is %s", m->name, member_states[m->state].word);
    struct core_relay *r = core_relay_add(c, MESSAGE_LOG_TEXT, m, q->peer, q->id,
                                          core_now(c) + core_ms(ADMIN_WAIT_MS));
    if (!r)
        return err_set(e, HP_EBUSY, "too many questions wait for agents");
    struct message fetch = {.type = MESSAGE_LOG_FETCH, .id = r->id};
    fetch.u.log_fetch.lines = lines;
    core_say(c, m->peer, &fetch);
    return HP_PENDING;
}

void admin_log_text(struct core *c, struct member *m, uint64_t id, const struct message_log_text *l)
{
    struct core_relay *r = core_relay_answered(c, m, id, MESSAGE_LOG_TEXT);
    if (!r)
        return;
    core_answer(c, r->peer, r->ask, false, log_result(m->name, l->text, strlen(l->text)));
    core_relay_end(c, r);
}

void admin_tick(struct core *c)
{
    for (size_t i = c->n_relays; i-- > 0;) {
        struct core_relay *r = &c->relays[i];
        if (core_now(c) < r->until_ns)
            continue;
        struct err e = {0};
        err_set(&e, HP_ETIMEOUT, "an agent did not answer within %d s", ADMIN_WAIT_MS / 1000);
        if (r->peer)
            core_answer_error(c, r->peer, r->ask, &e);
        core_relay_end(c, r);
    }
}

/* ---- the model on live agents
 * -------------------------------------------------------------------------------------------- */

/* `together` 0: one sequence, by its own slices; else so many at once, by the plan's. */
static int run_ids(struct core *c, struct question *q, uint64_t tokens, uint64_t together,
                   struct err *e)
{
    struct deployment *d;
    int rc = deployment_argument(c, q, "deployment", &d, e);
    if (rc < 0)
        return rc;
    const json_t *list = json_object_get(q->arguments, "ids");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > ADMIN_MAX_IDS)
        return err_set(e, HP_EINVAL, "\"ids\" is not a list of at most %d numbers", ADMIN_MAX_IDS);
    uint32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids)
        return err_set(e, HP_ENOMEM, "no memory for %zu ids", n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > UINT32_MAX)
            rc = err_set(e, HP_EINVAL, "\"ids\"[%zu] is not a token id", i);
        ids[i] = (uint32_t)id;
    }
    if (rc == 0 && together)
        rc = sequences_prefill_open(c, d, q->peer, q->id, ids, n, together, e);
    else if (rc == 0)
        rc = sequences_ask_open(c, d, q->peer, q->id, ids, n, tokens,
                                number_argument(q, "slice", 0), e);
    free(ids);
    return rc < 0 ? rc : HP_PENDING;
}

static int verb_logits(struct core *c, struct question *q, struct err *e)
{
    return run_ids(c, q, 0, 0, e);
}

static int verb_greedy(struct core *c, struct question *q, struct err *e)
{
    uint64_t tokens = number_argument(q, "tokens", 0);
    if (tokens == 0 || tokens > ADMIN_MAX_IDS)
        return err_set(e, HP_EINVAL, "\"tokens\" is not a number from 1 to %d", ADMIN_MAX_IDS);
    return run_ids(c, q, tokens, 0, e);
}

static int verb_prefill(struct core *c, struct question *q, struct err *e)
{
    uint64_t together = number_argument(q, "sequences", 1);
    if (together == 0 || together > ADMIN_MAX_TOGETHER)
        return err_set(e, HP_EINVAL, "\"sequences\" is not a number from 1 to %d",
                       ADMIN_MAX_TOGETHER);
    return run_ids(c, q, 1, together, e);
}

static int verb_version(struct core *c, struct question *q, struct err *e)
{
    (void)e;
    q->result =
        json_pack("{s:s, s:s, s:i, s:I, s:s}", "version", c->version, "cluster", c->cluster,
                  "protocol", MESSAGE_VERSION, "boot", (json_int_t)c->boot, "http", c->http);
    return 0;
}

/* ---- the table
 * ------------------------------------------------------------------------------------------------------------
 */

static const struct {
    const char *verb;
    /* 0: q->result is the answer; HP_PENDING: it comes later; negative: the error is. */
    int (*run)(struct core *c, struct question *q, struct err *e);
} verbs[] = {
    {"node.ls", verb_node_ls},
    {"node.describe", verb_node_describe},
    {"node.drain", verb_node_drain},
    {"node.undrain", verb_node_undrain},
    {"node.rm", verb_node_rm},
    {"token.create", verb_token_create},
    {"token.ls", verb_token_ls},
    {"key.create", verb_key_create},
    {"key.ls", verb_key_ls},
    {"key.rm", verb_key_rm},
    {"topo", verb_topo},
    {"profile", verb_profile},
    {"profile.ls", verb_profile_ls},
    {"profile.rm", verb_profile_rm},
    {"deploy", verb_deploy},
    {"deployment.ls", verb_deployment_ls},
    {"deployment.describe", verb_deployment_describe},
    {"undeploy", verb_undeploy},
    {"weights.ls", verb_weights_ls},
    {"weights.rm", verb_weights_rm},
    {"logs", verb_logs},
    {"logits", verb_logits},
    {"greedy", verb_greedy},
    {"prefill", verb_prefill},
    {"version", verb_version},
};

/* What has to be stored to be done. `profile` and `weights.rm` change agents and caches alone. */
static bool verb_changes(const char *verb)
{
    static const char *const changing[] = {"node.drain", "node.undrain", "node.rm", "token.create",
                                           "key.create", "key.rm",       "deploy",  "undeploy"};
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        if (strcmp(changing[i], verb) == 0)
            return true;
    return false;
}

static int run_verb(struct core *c, const char *verb, struct question *q, struct err *e)
{
    if (verb_changes(verb) && core_may_change(c, e) < 0)
        return e->code;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verbs[i].verb, verb) == 0)
            return verbs[i].run(c, q, e);
    return err_set(e, HP_EUNSUPPORTED, "this coordinator (%s) does not know \"%.60s\"", c->version,
                   verb);
}

void admin_ask(struct core *c, uint64_t peer, uint64_t id, const struct message_ask *ask)
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
        core_answer_error(c, peer, id, &e);
    else if (rc == 0)
        core_answer(c, peer, id, false, q.result);
    json_decref(arguments);
}
