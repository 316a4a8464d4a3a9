#include "hpctl/local_members.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "hpctl/client.h"
#include "hpctl/local_process.h"
#include "hpctl/shown.h"

enum { READY_PATIENCE_MS = 30000, ASK_PATIENCE_MS = 2000 };

/* The coordinator's word for each agent ("ready"), or NULL when it does not answer. */
static json_t *member_states(const struct local_cluster *c)
{
    struct context context;
    struct client *client;
    struct err ignored;
    json_t *members = NULL;
    if (strcmp(local_process_state(c->coordinator_pid, c->coordinator_started), "running") != 0 ||
        context_load(c->name, &context, &ignored) < 0 ||
        client_open_at(&context, ASK_PATIENCE_MS, &client, &ignored) < 0)
        return NULL;
    if (client_get(client, "node.ls", NULL, &members, &ignored) < 0)
        members = NULL;
    client_close(&client);
    return members;
}

static const json_t *member_find(const json_t *members, const char *name)
{
    size_t i;
    json_t *m;
    json_array_foreach(members, i, m)
    {
        const char *own = json_string_value(json_object_get(m, "name"));
        if (own && strcmp(own, name) == 0)
            return m;
    }
    return NULL;
}

static const char *member_state(const json_t *members, const char *name)
{
    const char *state = json_string_value(json_object_get(member_find(members, name), "state"));
    return state ? state : "unknown";
}

/* Ready (or draining), and heard of since `since_ns`: what an earlier process of that name said
 * does not count. */
static bool member_is_there(const json_t *members, const char *name, uint64_t since_ns)
{
    const char *state = member_state(members, name);
    double heard_s = number_member(member_find(members, name), "heard_s");
    return (strcmp(state, "ready") == 0 || strcmp(state, "draining") == 0) &&
           heard_s * 1e9 < (double)(env_now_ns(&env_real) - since_ns);
}

json_t *local_describe(const struct local_cluster *c)
{
    json_t *agents = json_array(), *members = member_states(c);
    for (int i = 0; i < c->n_agents; i++) {
        const struct local_agent *a = &c->agents[i];
        json_t *cores = json_array();
        for (int k = 0; k < a->n_cores; k++)
            json_array_append_new(cores, json_integer(a->cores[k]));
        json_array_append_new(agents, json_pack("{s:s, s:i, s:o, s:s, s:s}", "name", a->name, "pid",
                                                (int)a->pid, "cores", cores, "state",
                                                local_process_state(a->pid, a->started), "member",
                                                member_state(members, a->name)));
    }
    json_decref(members);
    json_t *o = json_pack("{s:s, s:s, s:s+, s:{s:i, s:s}, s:o}", "name", c->name, "dir", c->dir,
                          "http", "http://", c->http, "coordinator", "pid", (int)c->coordinator_pid,
                          "state", local_process_state(c->coordinator_pid, c->coordinator_started),
                          "agents", agents);
    if (o && c->grpc[0])
        json_object_set_new(o, "grpc", json_string(c->grpc));
    return o;
}

static int start_invited(struct local_cluster *c, struct client *client, struct local_agent *a,
                         struct err *e)
{
    json_t *made = NULL;
    int rc = client_get(client, "token.create", json_pack("{s:i}", "ttl_s", 600), &made, e);
    const char *token = json_string_value(json_object_get(made, "token"));
    if (rc == 0 && !token)
        rc = err_set(e, HP_EPROTO, "the coordinator made no join token");
    if (rc == 0)
        rc = local_start_agent(c, a, token, e);
    json_decref(made);
    return rc;
}

int local_start_agents(struct local_cluster *c, struct progress_bar *bar, struct err *e)
{
    struct context context;
    struct client *client;
    int rc = context_load(c->name, &context, e);
    if (rc < 0 || (rc = client_open_at(&context, READY_PATIENCE_MS, &client, e)) < 0)
        return rc;
    for (int i = 0; rc == 0 && i < c->n_agents; i++) {
        progress_show(bar, "starting agents", i, c->n_agents);
        rc = local_interrupted() ? err_set(e, HP_ECANCELED, "interrupted")
                                 : start_invited(c, client, &c->agents[i], e);
    }
    client_close(&client);
    return rc;
}

/* Whether the agent still knows whom to trust: a file that was lost or damaged is made anew from a
 * join token. */
static bool agent_knows_key(const struct local_cluster *c, const struct local_agent *a,
                            const char *server_key)
{
    char file[700], text[KEY_TEXT + 1] = "";
    snprintf(file, sizeof file, "%s/agents/%s/coordinator.key", c->dir, a->name);
    FILE *f = fopen(file, "r");
    bool same = f && fgets(text, sizeof text, f) && strncmp(text, server_key, KEY_TEXT - 1) == 0;
    if (f)
        fclose(f);
    return same;
}

/* A coordinator that runs may be late with its answer; one that does not is not waited for. */
static uint64_t patience_ms(const struct local_cluster *c)
{
    return local_process_is_alive(c->coordinator_pid, c->coordinator_started) ? READY_PATIENCE_MS
                                                                              : ASK_PATIENCE_MS;
}

int local_start_again(struct local_cluster *c, struct local_agent *a, struct err *e)
{
    struct context context;
    struct client *client;
    struct err ignored;
    json_t *members = NULL;
    int rc;
    if ((rc = context_load(c->name, &context, &ignored)) < 0 ||
        (rc = client_open_at(&context, patience_ms(c), &client, &ignored)) < 0) {
        if (rc != HP_ENOCLUSTER) {
            *e = ignored;
            return rc;
        }
        err_set(e, HP_ENOCLUSTER,
                "the coordinator of \"%s\" does not run, and %s could not join it", c->name,
                a->name);
        return err_hint(e, "`hpctl local start --coordinator` first");
    }
    rc = client_get(client, "node.ls", NULL, &members, e);
    if (rc == 0)
        rc = strcmp(member_state(members, a->name), "unknown") == 0 ||
                     !agent_knows_key(c, a, context.server_key)
                 ? start_invited(c, client, a, e)
                 : local_start_agent(c, a, "", e);
    json_decref(members);
    client_close(&client);
    return rc;
}

static int agent_died(const struct local_cluster *c, const struct local_agent *a, struct err *e)
{
    char log[700], tail[400];
    snprintf(log, sizeof log, "%s/agents/%s/log", c->dir, a->name);
    local_log_tail(log, tail, sizeof tail);
    err_set(e, HP_EIO, "agent %s ended while it joined; the end of its log: %s", a->name, tail);
    return err_hint(e, "the whole log is %s", log);
}

int local_wait_ready(const struct local_cluster *c, const struct local_agent *which,
                     struct progress_bar *bar, struct err *e)
{
    uint64_t from = env_now_ns(&env_real);
    int wanted = which ? 1 : c->n_agents;
    for (;;) {
        json_t *members = member_states(c);
        const struct local_agent *dead = NULL;
        int ready = 0;
        for (int i = 0; i < c->n_agents; i++) {
            const struct local_agent *a = &c->agents[i];
            if (which && a != which)
                continue;
            ready += member_is_there(members, a->name, which ? from : 0);
            if (strcmp(local_process_state(a->pid, a->started), "dead") == 0)
                dead = a;
        }
        json_decref(members);
        if (dead)
            return agent_died(c, dead, e);
        progress_show(bar, "agents join", ready, wanted);
        if (ready == wanted)
            return 0;
        if (local_interrupted())
            return err_set(e, HP_ECANCELED, "interrupted");
        if ((double)(env_now_ns(&env_real) - from) / 1e6 > READY_PATIENCE_MS * env_time_scale()) {
            err_set(e, HP_ETIMEOUT, "only %d of %d agents joined within %d s", ready, wanted,
                    READY_PATIENCE_MS / 1000);
            return err_hint(e, "their logs are %s/agents/*/log", c->dir);
        }
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
}
