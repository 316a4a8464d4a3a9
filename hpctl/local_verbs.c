/* `hpctl local up|ls|start|down`: a cluster on this box. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cluster.h"
#include "common/env.h"
#include "hpctl/client.h"
#include "hpctl/local.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"
#include "transport/data_choice.h"

enum { READY_PATIENCE_MS = 30000, STOP_PATIENCE_MS = 5000, ASK_PATIENCE_MS = 2000 };

/* ---- what a cluster looks like
 * --------------------------------------------------------------------------------------------------------
 */

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

static json_t *describe(const struct local_cluster *c)
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
    return json_pack("{s:s, s:s, s:s+, s:{s:i, s:s}, s:o}", "name", c->name, "dir", c->dir, "http",
                     "http://", c->http, "coordinator", "pid", (int)c->coordinator_pid, "state",
                     local_process_state(c->coordinator_pid, c->coordinator_started), "agents",
                     agents);
}

static void print_clusters(const json_t *list)
{
    static const char *const columns[] = {"CLUSTER", "PROCESS", ">PID", "CORES",
                                          "STATE",   "MEMBER",  NULL};
    struct table *t = table_create(columns);
    size_t i, k;
    json_t *c, *a;
    json_array_foreach(list, i, c)
    {
        const json_t *coordinator = json_object_get(c, "coordinator");
        const char *first[] = {text_member(c, "name"),
                               "coordinator",
                               text_member(coordinator, "pid"),
                               "-",
                               text_member(coordinator, "state"),
                               text_member(c, "http")};
        table_row(t, first);
        json_array_foreach(json_object_get(c, "agents"), k, a)
        {
            char cores[128] = "";
            const json_t *ids = json_object_get(a, "cores");
            for (size_t j = 0; j < json_array_size(ids); j++) {
                size_t n = strlen(cores);
                snprintf(cores + n, sizeof cores - n, "%s%lld", j ? "," : "",
                         (long long)json_integer_value(json_array_get(ids, j)));
            }
            const char *row[] = {"",    text_member(a, "name"),  text_member(a, "pid"),
                                 cores, text_member(a, "state"), text_member(a, "member")};
            table_row(t, row);
        }
    }
    table_print(&t, "no local cluster; `hpctl local up` makes one");
}

/* ---- up
 * ----------------------------------------------------------------------------------------------------------------------------------
 */

static int default_dir(const char *name, char *out, size_t size, struct err *e)
{
    const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if ((!xdg || !*xdg) && (!home || !*home))
        return err_set(e, HP_EUSAGE,
                       "neither HOME nor XDG_STATE_HOME says where to keep the cluster: use --dir");
    int n = xdg && *xdg ? snprintf(out, size, "%s/hp/%s", xdg, name)
                        : snprintf(out, size, "%s/.local/state/hp/%s", home, name);
    return n < (int)size ? 0 : err_set(e, HP_EUSAGE, "the path of the state folder is too long");
}

static int absolute(const char *path, char *out, size_t size, struct err *e)
{
    char here[2048];
    int n = path[0] == '/'
                ? snprintf(out, size, "%s", path)
                : snprintf(out, size, "%s/%s", getcwd(here, sizeof here) ? here : ".", path);
    return n > 0 && (size_t)n < size ? 0 : err_set(e, HP_EUSAGE, "path too long: %s", path);
}

/* Deals the cores of this box out, `each` to every agent; shares them where there are too few. */
static void deal_cores(struct local_cluster *c, uint64_t each)
{
    cpu_set_t set;
    int own[LOCAL_MAX_CORES], n = 0, next = 0;
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE && n < LOCAL_MAX_CORES; i++)
        if (CPU_ISSET((size_t)i, &set))
            own[n++] = i;
    if (each == 0)
        each = n / c->n_agents > 0 ? (uint64_t)(n / c->n_agents) : 1;
    if (each > (uint64_t)n)
        each = (uint64_t)n;
    if (each * (uint64_t)c->n_agents > (uint64_t)n)
        fprintf(stderr,
                "hpctl: warning: %d agents of %llu core%s share the %d cores of this box: fine to "
                "try, slow to run\n",
                c->n_agents, (unsigned long long)each, each == 1 ? "" : "s", n);
    for (int i = 0; i < c->n_agents; i++)
        for (uint64_t k = 0; k < each; k++)
            c->agents[i].cores[c->agents[i].n_cores++] = own[next++ % n];
}

/* Paced: one agent for each device of the cluster file, named after it. */
static int agents_of_pace(struct local_cluster *c, struct err *e)
{
    struct cluster cluster = {0};
    int rc = cluster_load(c->pace_cluster, &cluster, e);
    if (rc < 0)
        return rc;
    if (cluster.n_devices == 0 || cluster.n_devices > LOCAL_MAX_AGENTS)
        rc = err_set(e, HP_EINVAL, "%s has %d devices; a paced cluster has 1 to %d",
                     c->pace_cluster, cluster.n_devices, LOCAL_MAX_AGENTS);
    for (int i = 0; rc == 0 && i < cluster.n_devices; i++) {
        struct local_agent *a = &c->agents[c->n_agents++];
        snprintf(a->as, sizeof a->as, "%s", cluster.devices[i].id);
        snprintf(a->name, sizeof a->name, "%s", cluster.devices[i].id);
        for (char *s = a->name; *s; s++)
            if (*s == '/')
                *s = '.';
    }
    cluster_free(&cluster);
    return rc;
}

static int read_options(const struct invocation *in, struct local_cluster *c, uint64_t *cores,
                        struct err *e)
{
    const char *dir = invocation_option(in, "dir"), *pace = invocation_option(in, "pace"),
               *profile = invocation_option(in, "profile");
    uint64_t agents, memory, port;
    int rc;
    snprintf(c->name, sizeof c->name, "%s", invocation_option_or(in, "name", "local"));
    if ((rc = context_check_name(invocation_option_or(in, "name", "local"), e)) < 0 ||
        (rc = invocation_u64(in, "agents", 3, &agents, e)) < 0 ||
        (rc = invocation_u64(in, "cores", 0, cores, e)) < 0 ||
        (rc = invocation_bytes(in, "memory", 0, &memory, e)) < 0 ||
        (rc = invocation_u64(in, "http-port", 0, &port, e)) < 0 ||
        (rc = dir ? absolute(dir, c->dir, sizeof c->dir, e)
                  : default_dir(c->name, c->dir, sizeof c->dir, e)) < 0)
        return rc;
    if (agents < 1 || agents > LOCAL_MAX_AGENTS || port > 65535 || *cores > LOCAL_MAX_CORES)
        return err_set(e, HP_EUSAGE,
                       "--agents is 1 to %d, --cores up to %d, --http-port up to 65535",
                       LOCAL_MAX_AGENTS, LOCAL_MAX_CORES);
    if (!pace != !profile)
        return err_set(e, HP_EUSAGE,
                       "--pace and --profile go together: a cluster file and what the model costs "
                       "on its devices");
    struct data_policy data;
    if ((rc = data_policy_set(&data, invocation_option(in, "data"), "", e)) < 0)
        return rc;
    snprintf(c->data, sizeof c->data, "%s", data.mode);
    snprintf(c->http, sizeof c->http, "127.0.0.1:%llu", (unsigned long long)port);
    snprintf(c->control, sizeof c->control, "127.0.0.1:0");
    if (pace) {
        if ((rc = absolute(pace, c->pace_cluster, sizeof c->pace_cluster, e)) < 0 ||
            (rc = absolute(profile, c->pace_profile, sizeof c->pace_profile, e)) < 0 ||
            (rc = agents_of_pace(c, e)) < 0)
            return rc;
    } else {
        for (; c->n_agents < (int)agents; c->n_agents++)
            snprintf(c->agents[c->n_agents].name, sizeof c->agents[0].name, "a%d", c->n_agents);
    }
    /* Agents of one box must not each believe that they have all of it. A paced one has its
     * device's. */
    if (memory == 0 && !pace)
        memory = (uint64_t)((double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) * 0.9 /
                            c->n_agents);
    for (int i = 0; i < c->n_agents; i++)
        c->agents[i].memory_bytes = memory;
    return 0;
}

static int refuse_running(const struct local_cluster *c, struct err *e)
{
    struct local_cluster before;
    struct err ignored;
    if (local_load(c->name, &before, &ignored) < 0)
        return 0;
    bool alive = strcmp(local_process_state(before.coordinator_pid, before.coordinator_started),
                        "dead") != 0;
    for (int i = 0; i < before.n_agents; i++)
        alive |= strcmp(local_process_state(before.agents[i].pid, before.agents[i].started),
                        "dead") != 0;
    if (!alive)
        return 0;
    err_set(e, HP_EEXIST, "a local cluster \"%s\" runs already, in %s", c->name, before.dir);
    return err_hint(
        e, "`hpctl local down --name %s` ends it; --name gives the new one another name", c->name);
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

static int start_agents(struct local_cluster *c, struct progress *bar, struct err *e)
{
    struct context context;
    struct client *client;
    int rc = context_load(c->name, &context, e);
    if (rc < 0 || (rc = client_open_at(&context, READY_PATIENCE_MS, &client, e)) < 0)
        return rc;
    for (int i = 0; rc == 0 && i < c->n_agents; i++) {
        progress_show(bar, "starting agents", i, c->n_agents);
        rc = start_invited(c, client, &c->agents[i], e);
    }
    client_close(&client);
    return rc;
}

/* Starts an agent that was there before. One that the cluster has forgotten (`node rm`) is invited
 * anew. */
static int start_again(struct local_cluster *c, struct local_agent *a, struct err *e)
{
    struct context context;
    struct client *client;
    struct err ignored;
    json_t *members = NULL;
    int rc;
    if (context_load(c->name, &context, &ignored) < 0 ||
        client_open_at(&context, ASK_PATIENCE_MS, &client, &ignored) < 0) {
        err_set(e, HP_ENOCLUSTER,
                "the coordinator of \"%s\" does not run, and %s could not join it", c->name,
                a->name);
        return err_hint(e, "`hpctl local start --coordinator` first");
    }
    rc = client_get(client, "node.ls", NULL, &members, e);
    if (rc == 0)
        rc = strcmp(member_state(members, a->name), "unknown") == 0
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

/* Waits until the coordinator calls `which` (NULL: every agent) ready, or one of them has died.
 * Draining is as good as ready. */
static int wait_ready(const struct local_cluster *c, const struct local_agent *which,
                      struct progress *bar, struct err *e)
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
        if ((double)(env_now_ns(&env_real) - from) / 1e6 > READY_PATIENCE_MS * env_time_scale()) {
            err_set(e, HP_ETIMEOUT, "only %d of %d agents joined within %d s", ready, wanted,
                    READY_PATIENCE_MS / 1000);
            return err_hint(e, "their logs are %s/agents/*/log", c->dir);
        }
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
}

static int run_up(struct invocation *in, struct err *e)
{
    static struct local_cluster c;
    struct progress bar;
    uint64_t cores;
    int rc;
    c = (struct local_cluster){0};
    if ((rc = read_options(in, &c, &cores, e)) < 0 || (rc = refuse_running(&c, e)) < 0 ||
        (rc = make_folders(c.dir, e)) < 0)
        return rc;
    deal_cores(&c, cores);
    progress_init(&bar, in->json);
    progress_show(&bar, "starting the coordinator", 0, 0);
    rc = local_start_coordinator(&c, e);
    if (rc == 0 && (rc = local_make_context(&c, true, e)) == 0 &&
        (rc = start_agents(&c, &bar, e)) == 0 && (rc = local_save(&c, e)) == 0)
        rc = wait_ready(&c, NULL, &bar, e);
    progress_end(&bar);
    if (rc < 0) {
        struct err first = *e;
        local_stop(&c, STOP_PATIENCE_MS);
        context_remove(c.name, NULL);
        *e = first;
        return rc;
    }
    json_t *o = describe(&c);
    if (in->json)
        return invocation_print_json(in, o, e);
    json_t *list = json_pack("[o]", o);
    print_clusters(list);
    json_decref(list);
    printf("\nOpenAI API: http://%s/v1    state: %s\ndeploy a model: hpctl deploy MODEL.gguf    "
           "end it: hpctl local down%s%s\n",
           c.http, c.dir, strcmp(c.name, "local") ? " --name " : "",
           strcmp(c.name, "local") ? c.name : "");
    return 0;
}

/* ---- ls, start, down
 * -----------------------------------------------------------------------------------------------------------------------
 */

static int run_ls(struct invocation *in, struct err *e)
{
    static struct local_cluster c;
    json_t *names = context_list(), *list = json_array(), *name;
    struct err ignored;
    size_t i;
    json_array_foreach(names, i, name)
    {
        if (local_load(json_string_value(name), &c, &ignored) == 0)
            json_array_append_new(list, describe(&c));
    }
    json_decref(names);
    if (in->json)
        return invocation_print_json(in, list, e);
    print_clusters(list);
    json_decref(list);
    return 0;
}

static int find_agent(struct local_cluster *c, const char *name, struct local_agent **out,
                      struct err *e)
{
    for (int i = 0; i < c->n_agents; i++)
        if (strcmp(c->agents[i].name, name) == 0) {
            *out = &c->agents[i];
            return 0;
        }
    err_set(e, HP_ENOENT, "the local cluster \"%s\" has no agent \"%s\"", c->name, name);
    return err_hint(e, "`hpctl local ls` lists its agents");
}

static int check_dead(const char *what, pid_t pid, uint64_t started, struct err *e)
{
    const char *state = local_process_state(pid, started);
    if (strcmp(state, "dead") == 0)
        return 0;
    err_set(e, HP_EEXIST, "%s is %s (pid %d)", what, state, (int)pid);
    return strcmp(state, "stopped") == 0 ? err_hint(e, "`kill -CONT %d` lets it go on", (int)pid)
                                         : HP_EEXIST;
}

/* The one agent that is dead, when nobody said which. */
static int only_dead(struct local_cluster *c, struct local_agent **out, struct err *e)
{
    int dead = 0;
    for (int i = 0; i < c->n_agents; i++)
        if (strcmp(local_process_state(c->agents[i].pid, c->agents[i].started), "dead") == 0) {
            *out = &c->agents[i];
            dead++;
        }
    if (dead == 1)
        return 0;
    err_set(e, HP_EUSAGE,
            dead ? "%d agents are dead: say which with --agent A"
                 : "all %d agents run; --coordinator starts the coordinator",
            dead ? dead : c->n_agents);
    return err_hint(e, "`hpctl local ls` shows them");
}

static int start_coordinator_again(struct local_cluster *c, struct err *e)
{
    int rc = check_dead("the coordinator", c->coordinator_pid, c->coordinator_started, e);
    rc = rc < 0 ? rc : local_start_coordinator(c, e);
    return rc < 0 ? rc : local_make_context(c, false, e);
}

static int start_agent_again(struct local_cluster *c, struct local_agent *a, bool quiet,
                             struct err *e)
{
    struct progress bar;
    int rc = check_dead(a->name, a->pid, a->started, e);
    if (rc < 0 || (rc = start_again(c, a, e)) < 0)
        return rc;
    progress_init(&bar, quiet);
    rc = local_save(c, e);
    rc = rc < 0 ? rc : wait_ready(c, a, &bar, e);
    progress_end(&bar);
    return rc;
}

static int run_start(struct invocation *in, struct err *e)
{
    static struct local_cluster c;
    const char *name = invocation_option_or(in, "agent", "");
    bool coordinator = invocation_flag(in, "coordinator");
    struct local_agent *a = NULL;
    int rc;
    if (*name && coordinator)
        return err_set(e, HP_EUSAGE, "say which one: --agent A or --coordinator");
    if ((rc = local_load(invocation_option(in, "name"), &c, e)) < 0)
        return rc;
    if (coordinator)
        rc = start_coordinator_again(&c, e);
    else if ((rc = *name ? find_agent(&c, name, &a, e) : only_dead(&c, &a, e)) == 0)
        rc = start_agent_again(&c, a, in->json, e);
    if (rc < 0 || (rc = local_save(&c, e)) < 0)
        return rc;
    json_t *o = describe(&c);
    if (in->json)
        return invocation_print_json(in, o, e);
    printf("%s runs again\n", coordinator ? "the coordinator" : a->name);
    json_decref(o);
    return 0;
}

static int take_down(const char *name, bool purge, struct err *e)
{
    static struct local_cluster c;
    int rc = local_load(name, &c, e);
    if (rc < 0)
        return rc;
    local_stop(&c, STOP_PATIENCE_MS);
    if (purge) {
        char command[1100];
        if (strchr(c.dir, '\'') || strlen(c.dir) < 4)
            return err_set(e, HP_EINVAL, "will not remove the folder %s; do it by hand", c.dir);
        snprintf(command, sizeof command, "rm -rf -- '%s/coordinator' '%s/agents' '%s/local.json'",
                 c.dir, c.dir, c.dir);
        if (system(command) != 0)
            return err_set(e, HP_EIO, "cannot remove all of %s", c.dir);
        rmdir(c.dir);
    }
    return context_remove(c.name, e);
}

static int run_down(struct invocation *in, struct err *e)
{
    json_t *names = NULL, *name, *done = json_array();
    struct err ignored;
    size_t i;
    int rc = 0;
    if (invocation_flag(in, "all")) {
        names = context_list();
    } else {
        static struct local_cluster c;
        if ((rc = local_load(invocation_option(in, "name"), &c, e)) == 0)
            names = json_pack("[s]", c.name);
    }
    json_array_foreach(names, i, name)
    {
        static struct local_cluster c;
        if (local_load(json_string_value(name), &c, &ignored) < 0)
            continue; /* a context of another kind */
        if ((rc = take_down(json_string_value(name), invocation_flag(in, "purge"), e)) < 0)
            break;
        json_array_append(done, name);
    }
    json_decref(names);
    if (rc == 0 && in->json)
        return invocation_print_json(in, done, e);
    json_array_foreach(done, i, name) printf("%s is down\n", json_string_value(name));
    json_decref(done);
    return rc;
}

/* ---- the table
 * -----------------------------------------------------------------------------------------------------------------------------------
 */

static const struct command_option up_options[] = {
    {"agents", "N", "how many agents (default 3)", 0},
    {"cores", "K", "cores of each (default: an equal part of this box's)", 0},
    {"memory", "BYTES", "memory limit of each, such as 4GiB (default: an equal part)", 0},
    {"pace", "CLUSTER.json",
     "one agent for each device of this cluster, as slow as it, with its links and memory", 0},
    {"profile", "P.json", "what the model costs on those devices (with --pace)", 0},
    {"data", "auto|ucx|tcp",
     "data channel between the agents (default auto, which is UCX on loopback)", 0},
    {"http-port", "P", "port of the OpenAI API (default 0: any free one)", 0},
    {"dir", "D", "where its state lies (default: the user's state folder)", 0},
    {"name", "N", "name of the cluster and its context (default: local)", 0},
    {0},
};
static const struct command_option start_options[] = {
    {"agent", "A", "start this agent again (default: the one that is dead)", 0},
    {"coordinator", NULL, "start the coordinator again", 0},
    {"name", "N", "of the cluster (default: the current one)", 0},
    {0},
};
static const struct command_option down_options[] = {
    {"name", "N", "of the cluster (default: the current one)", 0},
    {"all", NULL, "every local cluster", 0},
    {"purge", NULL, "forget its state too: keys, deployments, copies of weights", 0},
    {0},
};

const struct command local_verbs[] = {
    {"local up", "", 0, 0, "start a cluster on this box: a coordinator and agents on loopback",
     "State stays below --dir when the cluster is taken down; the next `up` with the same folder "
     "finds its deployments again.",
     "  hpctl local up\n  hpctl local up --agents 2 --cores 1 -o json\n  hpctl local up --pace "
     "testbed.cluster.json --profile llama-7b.profile.json",
     up_options, run_up, false},
    {"local ls", "", 0, 0, "list the clusters on this box", NULL,
     "  hpctl local ls\n  hpctl local ls -o json", NULL, run_ls, false},
    {"local start", "", 0, 0, "start again what was killed", NULL,
     "  hpctl local start --agent a1\n  hpctl local start --coordinator", start_options, run_start,
     false},
    {"local down", "", 0, 0, "end a cluster on this box", NULL,
     "  hpctl local down\n  hpctl local down --all --purge", down_options, run_down, false},
    {0},
};
