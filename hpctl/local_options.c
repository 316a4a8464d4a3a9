#include "hpctl/local_options.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cluster.h"
#include "common/host_limits.h"
#include "hpctl/context.h"
#include "hpctl/local_process.h"
#include "transport/data_choice.h"

int local_default_dir(const char *name, char *out, size_t size, struct err *e)
{
    const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if ((!xdg || !*xdg) && (!home || !*home))
        return err_set(e, HP_EUSAGE,
                       "neither HOME nor XDG_STATE_HOME says where to keep the cluster: use --dir");
    int n = xdg && *xdg ? snprintf(out, size, "%s/hp/%s", xdg, name)
                        : snprintf(out, size, "%s/.local/state/hp/%s", home, name);
    return n < (int)size ? 0 : err_set(e, HP_EUSAGE, "the path of the state folder is too long");
}

static int path_absolute(const char *path, char *out, size_t size, struct err *e)
{
    char here[2048];
    int n = path[0] == '/'
                ? snprintf(out, size, "%s", path)
                : snprintf(out, size, "%s/%s", getcwd(here, sizeof here) ? here : ".", path);
    return n > 0 && (size_t)n < size ? 0 : err_set(e, HP_EUSAGE, "path too long: %s", path);
}

int local_deal_cores(struct local_cluster *c, uint64_t each, struct err *e)
{
    cpu_set_t set;
    int own[LOCAL_MAX_CORES], n = 0, next = 0;
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE && n < LOCAL_MAX_CORES; i++)
        if (CPU_ISSET((size_t)i, &set))
            own[n++] = i;
    if (each == 0)
        each = n / c->n_agents > 0 ? (uint64_t)(n / c->n_agents) : 1;
    if (each > (uint64_t)n) {
        fprintf(stderr,
                "hpctl: warning: --cores %llu is more than the %d that this box has for them\n",
                (unsigned long long)each, n);
        each = (uint64_t)n;
    }
    if (each * (uint64_t)c->n_agents > (uint64_t)n)
        fprintf(stderr,
                "hpctl: warning: %d agents of %llu core%s share the %d cores of this box: fine to "
                "try, slow to run\n",
                c->n_agents, (unsigned long long)each, each == 1 ? "" : "s", n);
    for (int i = 0; i < c->n_agents; i++)
        for (uint64_t k = 0; k < each; k++)
            c->agents[i].cores[c->agents[i].n_cores++] = own[next++ % n];
    return each >= c->devices
               ? 0
               : err_set(e, HP_EUSAGE,
                         "--devices %llu: each agent has %llu cores (--cores), and a device needs "
                         "one of its own",
                         (unsigned long long)c->devices, (unsigned long long)each);
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

/* "SPEC", of a0, or "AGENT=SPEC": what has a comma, a colon or a slash is no agent's name. */
static int device_agent(const struct local_cluster *c, const char *text, const char **spec,
                        struct err *e)
{
    size_t n = strcspn(text, "=,:/");
    *spec = text;
    if (text[n] != '=')
        return 0;
    *spec = text + n + 1;
    for (int i = 0; i < c->n_agents; i++)
        if (strlen(c->agents[i].name) == n && strncmp(c->agents[i].name, text, n) == 0)
            return i;
    return err_set(e, HP_EUSAGE, "--device %s: there is no agent %.*s; they are a0 to a%d", text,
                   (int)n, text, c->n_agents - 1);
}

static int device_say(struct local_cluster *c, const char *text, struct err *e)
{
    const char *spec;
    int before = 0, agent = device_agent(c, text, &spec, e);
    if (agent < 0)
        return agent;
    for (int i = 0; i < c->n_said; i++)
        before += c->said[i].agent == agent;
    if (before == LOCAL_MAX_DEVICES || c->n_said == LOCAL_MAX_SAID)
        return err_set(e, HP_EUSAGE, "--device %s: an agent has at most %d devices", spec,
                       LOCAL_MAX_DEVICES);
    if (strlen(spec) >= LOCAL_DEVICE_TEXT)
        return err_set(e, HP_EUSAGE, "--device %s: something is missing in it, or it is too long",
                       spec);
    c->said[c->n_said].agent = agent;
    snprintf(c->said[c->n_said++].spec, LOCAL_DEVICE_TEXT, "%s", spec);
    return 0;
}

static int devices_read(const struct invocation *in, struct local_cluster *c, struct err *e)
{
    const char *all[COMMAND_MAX_GIVEN];
    int n = invocation_values(in, "device", all, COMMAND_MAX_GIVEN), rc = 0;
    if (n && (c->devices > 1 || c->pace_cluster[0]))
        return err_set(e, HP_EUSAGE,
                       "--device goes with neither --devices nor --pace: it says "
                       "what an agent's devices are");
    for (int i = 0; rc == 0 && i < n; i++)
        rc = device_say(c, all[i], e);
    return rc;
}

/* Options that say nothing of a cluster by themselves. */
struct local_given {
    uint64_t agents, memory_bytes, http_port, grpc_port;
    const char *pace, *profile;
};

static int given_read(const struct invocation *in, struct local_cluster *c, uint64_t *cores,
                      struct local_given *g, struct err *e)
{
    const char *dir = invocation_option(in, "dir");
    int rc = context_check_name(invocation_option_or(in, "name", "local"), e);
    g->pace = invocation_option(in, "pace");
    g->profile = invocation_option(in, "profile");
    rc = rc < 0 ? rc : invocation_u64(in, "agents", 3, &g->agents, e);
    rc = rc < 0 ? rc : invocation_u64(in, "cores", 0, cores, e);
    rc = rc < 0 ? rc : invocation_bytes(in, "memory", 0, &g->memory_bytes, e);
    rc = rc < 0 ? rc : invocation_bytes(in, "kv-spill-memory", 0, &c->spill_memory_bytes, e);
    rc = rc < 0 ? rc : invocation_bytes(in, "kv-spill-disk", 0, &c->spill_disk_bytes, e);
    rc = rc < 0 ? rc : invocation_u64(in, "devices", 1, &c->devices, e);
    rc = rc < 0 ? rc : invocation_range(in, "http-port", 0, 0, 65535, &g->http_port, e);
    rc = rc < 0 ? rc : invocation_range(in, "grpc-port", 0, 0, 65535, &g->grpc_port, e);
    if (rc < 0)
        return rc;
    return dir ? path_absolute(dir, c->dir, sizeof c->dir, e)
               : local_default_dir(c->name, c->dir, sizeof c->dir, e);
}

static int given_check(const struct local_cluster *c, uint64_t cores, const struct local_given *g,
                       struct err *e)
{
    if (g->agents < 1 || g->agents > LOCAL_MAX_AGENTS)
        return err_set(e, HP_EUSAGE, "--agents %llu: a local cluster has 1 to %d",
                       (unsigned long long)g->agents, LOCAL_MAX_AGENTS);
    if (cores > LOCAL_MAX_CORES)
        return err_set(e, HP_EUSAGE, "--cores %llu is more than %d", (unsigned long long)cores,
                       LOCAL_MAX_CORES);
    if (c->devices < 1 || c->devices > LOCAL_MAX_DEVICES || (g->pace && c->devices > 1))
        return err_set(e, HP_EUSAGE, "--devices is 1 to %d, and 1 with --pace", LOCAL_MAX_DEVICES);
    if (!g->pace != !g->profile)
        return err_set(e, HP_EUSAGE,
                       "--pace and --profile go together: a cluster file and what the model costs "
                       "on its devices");
    return 0;
}

static int channels_read(const struct invocation *in, struct local_cluster *c,
                         const struct local_given *g, struct err *e)
{
    struct data_policy data;
    int rc = data_policy_set(&data, invocation_option(in, "data"), "", e);
    if (rc < 0)
        return rc;
    snprintf(c->data, sizeof c->data, "%s", data.mode);
    snprintf(c->http, sizeof c->http, "127.0.0.1:%llu", (unsigned long long)g->http_port);
    if (invocation_option(in, "grpc-port"))
        snprintf(c->grpc, sizeof c->grpc, "127.0.0.1:%llu", (unsigned long long)g->grpc_port);
    snprintf(c->control, sizeof c->control, "127.0.0.1:0");
    return 0;
}

/* One for each device of the cluster that they stand for, or as many as were asked for. */
static int agents_name(struct local_cluster *c, const struct local_given *g, struct err *e)
{
    for (; !g->pace && c->n_agents < (int)g->agents; c->n_agents++)
        snprintf(c->agents[c->n_agents].name, sizeof c->agents[0].name, "a%d", c->n_agents);
    if (!g->pace)
        return 0;
    int rc = path_absolute(g->pace, c->pace_cluster, sizeof c->pace_cluster, e);
    rc = rc < 0 ? rc : path_absolute(g->profile, c->pace_profile, sizeof c->pace_profile, e);
    return rc < 0 ? rc : agents_of_pace(c, e);
}

int local_read_options(const struct invocation *in, struct local_cluster *c, uint64_t *cores,
                       struct err *e)
{
    struct local_given g;
    snprintf(c->name, sizeof c->name, "%s", invocation_option_or(in, "name", "local"));
    int rc = given_read(in, c, cores, &g, e);
    rc = rc < 0 ? rc : given_check(c, *cores, &g, e);
    rc = rc < 0 ? rc : channels_read(in, c, &g, e);
    rc = rc < 0 ? rc : agents_name(c, &g, e);
    if (rc < 0)
        return rc;
    /* Agents of one box must not each believe that they have all of it. A paced one has its
     * device's. */
    uint64_t memory_bytes = g.memory_bytes;
    if (memory_bytes == 0 && !g.pace)
        memory_bytes = host_memory_default() / (uint64_t)c->n_agents;
    for (int i = 0; i < c->n_agents; i++)
        c->agents[i].memory_bytes = memory_bytes;
    return devices_read(in, c, e);
}

int local_refuse_running(const struct local_cluster *c, struct err *e)
{
    struct local_cluster before;
    struct err ignored;
    if (local_load(c->name, &before, &ignored) < 0)
        return 0;
    int alive = strcmp(local_process_state(before.coordinator_pid, before.coordinator_started),
                       "dead") != 0;
    for (int i = 0; i < before.n_agents; i++)
        alive += strcmp(local_process_state(before.agents[i].pid, before.agents[i].started),
                        "dead") != 0;
    if (!alive)
        return 0;
    err_set(e, HP_EEXIST, "a local cluster \"%s\" runs already, in %s", c->name, before.dir);
    if (alive <= before.n_agents)
        return err_hint(e, "`hpctl local start --name %s` starts again what was killed of it",
                        c->name);
    return err_hint(
        e, "`hpctl local down --name %s` ends it; --name gives the new one another name", c->name);
}
