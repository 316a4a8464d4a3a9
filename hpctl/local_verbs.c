/* `hpctl local up|ls|start|down`: a cluster on this box. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/suggestion.h"
#include "common/units.h"
#include "hpctl/context.h"
#include "hpctl/local_cluster.h"
#include "hpctl/local_lock.h"
#include "hpctl/local_members.h"
#include "hpctl/local_options.h"
#include "hpctl/local_process.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"
#include "hpctl/waiting.h"
#include "hpctl/watched.h"

enum { STOP_PATIENCE_MS = 10000 }; /* a coordinator drains for 5 s before it ends */

/* The numbers of an agent's cores, or "-" for what has none. */
static void cores_cell(struct table *t, const json_t *ids)
{
    struct buffer cores = {0};
    for (size_t i = 0; i < json_array_size(ids); i++)
        buffer_printf(&cores, "%s%lld", i ? "," : "",
                      (long long)json_integer_value(json_array_get(ids, i)));
    table_cell(t, "%s", ids ? buffer_cstr(&cores) : "-");
    buffer_free(&cores);
}

static void process_row(struct table *t, const char *cluster, const char *name,
                        const json_t *process, const char *member)
{
    table_cell(t, "%s", cluster);
    table_cell(t, "%s", name);
    table_cell(t, "%s", shown_member(process, "pid").s);
    cores_cell(t, json_object_get(process, "cores"));
    table_cell(t, "%s", string_member(process, "state"));
    table_cell(t, "%s", member);
}

static int print_clusters(const json_t *list, struct err *e)
{
    static const struct table_column columns[] = {{"CLUSTER", NULL, NULL},
                                                  {"PROCESS", NULL, NULL},
                                                  {">PID", NULL, NULL},
                                                  {"CORES", NULL, NULL},
                                                  {"STATE", NULL, NULL},
                                                  {"MEMBER", NULL, NULL},
                                                  {0}};
    struct table *t = table_create(columns);
    size_t i, k;
    json_t *c, *a;
    json_array_foreach(list, i, c)
    {
        process_row(t, string_member(c, "name"), "coordinator", json_object_get(c, "coordinator"),
                    string_member(c, "http"));
        json_array_foreach(json_object_get(c, "agents"), k, a)
            process_row(t, "", string_member(a, "name"), a, string_member(a, "member"));
    }
    return table_print(&t, "no local cluster; `hpctl local up` makes one", e);
}

/* Once there is a context, `local down` finds what an hpctl that was killed has left. */
static int processes_start(struct local_cluster *c, struct progress_bar *bar, struct err *e)
{
    progress_show(bar, "starting the coordinator", 0, 0);
    int rc = local_start_coordinator(c, e);
    rc = rc < 0 ? rc : local_make_context(c, true, e);
    rc = rc < 0 ? rc : local_save(c, e); /* with its ports */
    rc = rc < 0 ? rc : local_start_agents(c, bar, e);
    return rc < 0 ? rc : local_wait_ready(c, NULL, bar, e);
}

static int cluster_begin(const struct invocation *in, struct local_cluster *c, struct err *e)
{
    struct progress_bar bar;
    uint64_t cores;
    int rc;
    if ((rc = local_read_options(in, c, &cores, e)) < 0 || (rc = local_refuse_running(c, e)) < 0 ||
        (rc = context_check_free(c->name, NULL, true, e)) < 0 ||
        (rc = local_deal_cores(c, cores, e)) < 0 || (rc = fs_folder_make(c->dir, 0700, e)) < 0)
        return rc;
    progress_init(&bar, in->json);
    rc = processes_start(c, &bar, e);
    progress_end(&bar);
    if (rc < 0) {
        local_stop(c, STOP_PATIENCE_MS);
        context_remove(c->name, NULL);
    }
    return rc;
}

static int run_up(struct invocation *in, struct err *e)
{
    static struct local_cluster c;
    sigset_t before;
    int lock;
    c = (struct local_cluster){0};
    local_interrupt_delay(&before);
    int rc = local_lock_take(&lock, e);
    if (rc == 0)
        rc = cluster_begin(in, &c, e);
    local_lock_drop(&lock);
    if (rc < 0)
        return rc; /* interrupted or not, that ends hpctl */
    local_interrupt_allow(&before);
    json_t *o = local_describe(&c);
    if (in->json)
        return invocation_print_json(in, o, e);
    json_t *list = json_pack("[o]", o);
    rc = print_clusters(list, e);
    json_decref(list);
    if (c.grpc[0])
        printf("\nKServe v2 over gRPC: %s", c.grpc);
    printf("\nOpenAI API: http://%s/v1    in a browser: http://%s/    state: %s\ndeploy a model: "
           "hpctl deploy MODEL.gguf    "
           "end it: hpctl local down%s%s\n",
           c.http, c.http, c.dir, strcmp(c.name, "local") ? " --name " : "",
           strcmp(c.name, "local") ? c.name : "");
    return rc;
}

/* ---- ls, start, down ---- */

static int clusters_show(const void *ctx, const struct invocation *in, struct err *e)
{
    static struct local_cluster c;
    (void)ctx;
    json_t *names = context_list(), *list = json_array(), *name;
    struct err ignored;
    size_t i;
    json_array_foreach(names, i, name)
    {
        if (local_load(json_string_value(name), &c, &ignored) == 0)
            json_array_append_new(list, local_describe(&c));
    }
    json_decref(names);
    if (in->json)
        return invocation_print_json(in, list, e);
    int rc = print_clusters(list, e);
    json_decref(list);
    return rc;
}

static int run_ls(struct invocation *in, struct err *e)
{
    return watched_run(in, clusters_show, NULL, e);
}

static int find_agent(struct local_cluster *c, const char *name, struct local_agent **out,
                      struct err *e)
{
    struct suggestion near = {0};
    for (int i = 0; i < c->n_agents; i++) {
        if (strcmp(c->agents[i].name, name) == 0) {
            *out = &c->agents[i];
            return 0;
        }
        suggestion_try(&near, name, c->agents[i].name);
    }
    err_set(e, HP_ENOENT, "the local cluster \"%s\" has no agent \"%s\"", c->name, name);
    return near.best ? err_hint(e, "did you mean \"%s\"? `hpctl local ls` lists them", near.best)
                     : err_hint(e, "`hpctl local ls` lists its agents");
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
    if (rc == 0)
        rc = local_start_coordinator(c, e);
    return rc == 0 ? local_make_context(c, false, e) : rc;
}

/* What is asked for, as the file has it now; `name` "": the one agent that is dead. */
static int start_again(struct local_cluster *c, const char *name, bool coordinator,
                       struct local_agent **a, struct err *e)
{
    int rc = coordinator ? start_coordinator_again(c, e)
             : *name     ? find_agent(c, name, a, e)
                         : only_dead(c, a, e);
    if (rc == 0 && *a)
        rc = check_dead((*a)->name, (*a)->pid, (*a)->started, e);
    if (rc == 0 && *a)
        rc = local_start_again(c, *a, e);
    return rc < 0 ? rc : local_save(c, e);
}

static int run_start(struct invocation *in, struct err *e)
{
    static struct local_cluster c;
    const char *name = invocation_option_or(in, "agent", "");
    bool coordinator = invocation_flag(in, "coordinator");
    struct local_agent *a = NULL;
    struct progress_bar bar;
    sigset_t before;
    int lock;
    if (*name && coordinator)
        return err_set(e, HP_EUSAGE, "say which one: --agent A or --coordinator");
    local_interrupt_delay(&before);
    int rc = local_lock_take(&lock, e);
    if (rc == 0 && (rc = local_load(invocation_option(in, "name"), &c, e)) == 0)
        rc = start_again(&c, name, coordinator, &a, e);
    local_lock_drop(&lock);
    local_interrupt_allow(&before);
    progress_init(&bar, in->json);
    if (rc == 0 && a)
        rc = local_wait_ready(&c, a, &bar, e);
    progress_end(&bar);
    if (rc < 0)
        return rc;
    json_t *o = local_describe(&c);
    if (in->json)
        return invocation_print_json(in, o, e);
    printf("%s runs again\n", coordinator ? "the coordinator" : a->name);
    json_decref(o);
    return 0;
}

static int state_forget(const struct local_cluster *c, struct err *e)
{
    char command[1100];
    if (strchr(c->dir, '\'') || strlen(c->dir) < 4)
        return err_set(e, HP_EINVAL, "will not remove the folder %s; do it by hand", c->dir);
    snprintf(command, sizeof command, "rm -rf -- '%s/coordinator' '%s/agents' '%s/local.json'",
             c->dir, c->dir, c->dir);
    if (system(command) != 0)
        return err_set(e, HP_EIO, "cannot remove all of %s", c->dir);
    rmdir(c->dir);
    return 0;
}

/* Streams may go on for as long as its coordinator drains. */
static int take_down(const struct invocation *in, const char *name, bool purge, struct err *e)
{
    static struct local_cluster c;
    struct waiting *w = waiting_begin(shown_of("%s ends", name).s, 0, in->json);
    int lock, rc = local_lock_take(&lock, e);
    rc = rc < 0 ? rc : local_load(name, &c, e);
    if (rc == 0) {
        local_stop(&c, STOP_PATIENCE_MS);
        rc = purge ? state_forget(&c, e) : 0;
        rc = rc < 0 ? rc : context_remove(c.name, e);
    }
    local_lock_drop(&lock);
    waiting_end(&w);
    return rc;
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
        if ((rc = take_down(in, json_string_value(name), invocation_flag(in, "purge"), e)) < 0)
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

/* ---- the table ---- */

static const struct command_option list_options[] = {WATCH_OPTION, {0}};

static const struct command_option up_options[] = {
    {"agents", "N", "how many agents (default 3)", 0},
    {"cores", "K", "cores of each (default: an equal part of this box's)", 0},
    {"devices", "K",
     "devices of each agent: parts of its cores that run stages by themselves "
     "(default 1)",
     0},
    {"device", "[AGENT=]SPEC",
     "a device of an agent (default a0), as hp-agent --device says it: cuda:0, cpu:0-3, ...; may "
     "be "
     "given more than once",
     0},
    {"memory", "BYTES", "memory limit of each: " UNITS_BYTES_HELP " (default: an equal part)", 0},
    {"kv-spill-memory", "BYTES", "of that, for KV cache that was given up (default: none)", 0},
    {"kv-spill-disk", "BYTES", "disk of each for the same (default: none)", 0},
    {"pace", "CLUSTER.json",
     "one agent for each device of this cluster, as slow as it, with its links and memory", 0},
    {"profile", "P.json", "what the model costs on those devices (with --pace)", 0},
    {"data", "auto|ucx|tcp",
     "data channel between the agents (default auto, which is UCX on loopback)", 0},
    {"http-port", "P", "port of the OpenAI API (default 0: any free one)", 0},
    {"grpc-port", "P",
     "port of KServe's v2 protocol over gRPC (0: any free one; default: it is not spoken)", 0},
    {"dir", "DIR", "where its state lies (default: the user's state folder)", 0},
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
     "finds its deployments again. Options are not kept: give those of the last time once more.",
     "  hpctl local up\n  hpctl local up --agents 2 --cores 1 -o json\n  hpctl local up --pace "
     "testbed.cluster.json --profile llama-7b.profile.json",
     up_options, run_up, false},
    {"local ls", "", 0, 0, "list the clusters on this box", NULL,
     "  hpctl local ls\n  hpctl local ls --watch\n  hpctl local ls -o json", list_options, run_ls,
     false},
    {"local start", "", 0, 0, "start again what was killed", NULL,
     "  hpctl local start --agent a1\n  hpctl local start --coordinator", start_options, run_start,
     false},
    {"local down", "", 0, 0, "end a cluster on this box", NULL,
     "  hpctl local down\n  hpctl local down --all --purge", down_options, run_down, false},
    {0},
};
