/* Starting and ending the processes of a local cluster. */
#include "hpctl/local_cluster.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fs.h"
#include "common/json.h"
#include "hpctl/context.h"
#include "hpctl/local_process.h"

enum { START_PATIENCE_MS = 20000, POLL_MS = 20, MAX_ARGUMENTS = 64 };

static bool deadline_passed(uint64_t from_ns, uint64_t patience_ms)
{
    return (double)(env_now_ns(&env_real) - from_ns) / 1e6 > (double)patience_ms * env_time_scale();
}

static void copy_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

/* ---- coordinator ---- */

/* coordinator.json, which a coordinator writes when it listens. True once it is the one of this
 * process. */
static bool read_ports(struct local_cluster *c, char *server_key, size_t size)
{
    char file[700];
    json_t *root;
    struct json_at at;
    uint64_t pid;
    const char *control, *http, *grpc, *key;
    snprintf(file, sizeof file, "%s/coordinator/coordinator.json", c->dir);
    if (json_load_at(file, &root, &at, NULL) < 0)
        return false;
    bool ready = json_get_u64(&at, "pid", &pid, NULL) == 0 && (pid_t)pid == c->coordinator_pid &&
                 json_get_string(&at, "control", &control, NULL) == 0 &&
                 json_get_string(&at, "http", &http, NULL) == 0 &&
                 json_opt_string(&at, "grpc", "", &grpc, NULL) == 0 &&
                 json_get_string(&at, "public_key", &key, NULL) == 0;
    if (ready) {
        copy_text(c->control, sizeof c->control, control);
        copy_text(c->http, sizeof c->http, http);
        copy_text(c->grpc, sizeof c->grpc, grpc);
        if (server_key)
            copy_text(server_key, size, key);
    }
    json_decref(root);
    return ready;
}

static int process_note(const void *cluster, struct err *e)
{
    return local_save(cluster, e);
}

int local_start_coordinator(struct local_cluster *c, struct err *e)
{
    char program[2100], dir[600], log[640];
    local_program_beside("hp-coordinator", program, sizeof program);
    snprintf(dir, sizeof dir, "%s/coordinator", c->dir);
    snprintf(log, sizeof log, "%s/log", dir);
    int rc = fs_folder_make(dir, 0700, e);
    if (rc < 0)
        return rc;
    char *arguments[] = {program,
                         "--dir",
                         dir,
                         "--name",
                         c->name,
                         "--listen",
                         c->control,
                         "--http",
                         c->http,
                         "--data",
                         c->data[0] ? c->data : "auto",
                         "--grpc",
                         c->grpc[0] ? c->grpc : "none",
                         NULL};
    rc = local_process_start(arguments, log, (struct local_noting){process_note, c},
                             &c->coordinator_pid, &c->coordinator_started, e);
    if (rc < 0)
        return rc;
    uint64_t from = env_now_ns(&env_real);
    while (!read_ports(c, NULL, 0)) {
        waitpid(c->coordinator_pid, NULL, WNOHANG);
        if (!local_process_is_alive(c->coordinator_pid, c->coordinator_started))
            return local_process_died("the coordinator", log, e);
        if (local_interrupted()) {
            kill(c->coordinator_pid, SIGTERM);
            return err_set(e, HP_ECANCELED, "interrupted");
        }
        if (deadline_passed(from, START_PATIENCE_MS)) {
            kill(c->coordinator_pid, SIGKILL);
            return err_set(e, HP_ETIMEOUT,
                           "the coordinator did not listen within %d s; its log is %s",
                           START_PATIENCE_MS / 1000, log);
        }
        local_pause_ms(POLL_MS);
    }
    return 0;
}

int local_make_context(const struct local_cluster *c, bool make_current, struct err *e)
{
    struct local_cluster copy = *c;
    struct context context = {0};
    char file[700];
    copy_text(context.name, sizeof context.name, c->name);
    copy_text(context.local_dir, sizeof context.local_dir, c->dir);
    if (!read_ports(&copy, context.server_key, sizeof context.server_key))
        return err_set(e, HP_EIO,
                       "%s/coordinator/coordinator.json does not say where the coordinator listens",
                       c->dir);
    copy_text(context.control, sizeof context.control, copy.control);
    snprintf(context.http, sizeof context.http, "http://%s", copy.http);
    snprintf(file, sizeof file, "%s/coordinator/admin.key", c->dir);
    int rc = key_pair_load(file, &context.admin, e);
    return rc == 0 ? context_save(&context, make_current, e) : rc;
}

/* ---- agents ---- */

/* An agent that has not been told yet which data channel its cluster wants would open another one
 * first. */
static void data_channel_tell(const struct local_cluster *c, const char *dir)
{
    char file[700], text[64];
    snprintf(file, sizeof file, "%s/data-channel", dir);
    int n = snprintf(text, sizeof text, "%s\n\n", c->data);
    if (c->data[0] && access(file, F_OK) != 0)
        fs_file_write(file, text, (size_t)n, 0600, NULL);
}

void local_cores_text(const char *prefix, const int *cores, int n, char out[LOCAL_CORES_TEXT])
{
    size_t used = (size_t)snprintf(out, LOCAL_CORES_TEXT, "%s", prefix);
    for (int i = 0; i < n && used < LOCAL_CORES_TEXT; i++)
        used +=
            (size_t)snprintf(out + used, LOCAL_CORES_TEXT - used, "%s%d", i ? "," : "", cores[i]);
}

/* Those that were asked for; returns how many arguments there are. */
static int said_arguments(const struct local_cluster *c, const struct local_agent *a,
                          char text[LOCAL_MAX_DEVICES][LOCAL_CORES_TEXT], char **arguments)
{
    int n = 0;
    for (int i = 0; i < c->n_said && n < LOCAL_MAX_DEVICES; i++) {
        if (&c->agents[c->said[i].agent] != a)
            continue;
        copy_text(text[n], LOCAL_CORES_TEXT, c->said[i].spec);
        arguments[2 * n] = "--device";
        arguments[2 * n + 1] = text[n];
        n++;
    }
    return 2 * n;
}

/* "cpu:0,1" for each of the agent's devices, in `text`; returns how many arguments there are. */
static int devices_arguments(const struct local_cluster *c, const struct local_agent *a,
                             char text[LOCAL_MAX_DEVICES][LOCAL_CORES_TEXT], char **arguments)
{
    int n = c->devices > 1 ? (int)c->devices : 0;
    for (int d = 0; d < n; d++) {
        int first = d * a->n_cores / n, end = (d + 1) * a->n_cores / n;
        local_cores_text("cpu:", a->cores + first, end - first, text[d]);
        arguments[2 * d] = "--device";
        arguments[2 * d + 1] = text[d];
    }
    return 2 * n;
}

/* Returns how many arguments that makes. */
static int spill_argument(const char *option, uint64_t bytes, char text[32], char **arguments)
{
    if (!bytes)
        return 0;
    snprintf(text, 32, "%llu", (unsigned long long)bytes);
    arguments[0] = (char *)(uintptr_t)option;
    arguments[1] = text;
    return 2;
}

/* An agent's command line, and the texts that it points at. */
struct agent_command {
    char program[2100], dir[600], log[640], cores[LOCAL_CORES_TEXT], memory[32], token_file[640],
        devices[LOCAL_MAX_DEVICES][LOCAL_CORES_TEXT], spilled[2][32];
    char *arguments[MAX_ARGUMENTS];
};

static void agent_files_name(const struct local_cluster *c, const struct local_agent *a,
                             struct agent_command *m)
{
    local_program_beside("hp-agent", m->program, sizeof m->program);
    snprintf(m->dir, sizeof m->dir, "%s/agents/%s", c->dir, a->name);
    snprintf(m->log, sizeof m->log, "%s/log", m->dir);
    snprintf(m->token_file, sizeof m->token_file, "%s/token", m->dir);
}

static void agent_arguments_make(struct local_cluster *c, struct local_agent *a, bool with_token,
                                 struct agent_command *m)
{
    char *const always[] = {m->program, "--join",    c->control, "--dir",
                            m->dir,     "--name",    a->name,    "--cores",
                            m->cores,   "--network", "lo",       "--chaos-links"};
    int n = sizeof always / sizeof *always;
    char **next = m->arguments;
    local_cores_text("", a->cores, a->n_cores, m->cores);
    snprintf(m->memory, sizeof m->memory, "%llu", (unsigned long long)a->memory_bytes);
    memcpy(next, always, sizeof always);
    if (with_token) {
        next[n++] = "--token-file";
        next[n++] = m->token_file;
    }
    if (a->memory_bytes) {
        next[n++] = "--memory";
        next[n++] = m->memory;
    }
    n += spill_argument("--kv-spill-memory", c->spill_memory_bytes, m->spilled[0], next + n);
    n += spill_argument("--kv-spill-disk", c->spill_disk_bytes, m->spilled[1], next + n);
    int n_said = said_arguments(c, a, m->devices, next + n);
    n += n_said ? n_said : devices_arguments(c, a, m->devices, next + n);
    if (c->pace_cluster[0]) {
        char *const paced[] = {"--pace",        c->pace_cluster, "--profile",
                               c->pace_profile, "--as",          a->as};
        memcpy(next + n, paced, sizeof paced);
        n += (int)(sizeof paced / sizeof *paced);
    }
    next[n] = NULL;
}

/* Bad arguments end an agent at once; all else shows in what the coordinator says of it. */
static int agent_await(const struct local_agent *a, const char *log, struct err *e)
{
    for (int i = 0; i < 5; i++) {
        local_pause_ms(POLL_MS);
        waitpid(a->pid, NULL, WNOHANG);
        if (!local_process_is_alive(a->pid, a->started))
            return local_process_died(a->name, log, e);
    }
    return 0;
}

int local_start_agent(struct local_cluster *c, struct local_agent *a, const char *token,
                      struct err *e)
{
    struct agent_command m;
    agent_files_name(c, a, &m);
    int rc = fs_folder_make(m.dir, 0700, e);
    if (rc < 0)
        return rc;
    data_channel_tell(c, m.dir);
    if (*token && (rc = fs_file_write(m.token_file, token, strlen(token), 0600, e)) < 0)
        return rc;
    agent_arguments_make(c, a, *token, &m);
    rc = local_process_start(m.arguments, m.log, (struct local_noting){process_note, c}, &a->pid,
                             &a->started, e);
    return rc < 0 ? rc : agent_await(a, m.log, e);
}

/* ---- the end ---- */

static void signal_all(const struct local_cluster *c, int which)
{
    for (int i = 0; i < c->n_agents; i++)
        if (local_process_is_alive(c->agents[i].pid, c->agents[i].started))
            kill(c->agents[i].pid, which);
    if (local_process_is_alive(c->coordinator_pid, c->coordinator_started))
        kill(c->coordinator_pid, which);
}

static bool any_alive(const struct local_cluster *c)
{
    bool any = false;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    for (int i = 0; i < c->n_agents; i++)
        any |= local_process_is_alive(c->agents[i].pid, c->agents[i].started);
    return any || local_process_is_alive(c->coordinator_pid, c->coordinator_started);
}

void local_stop(struct local_cluster *c, uint64_t patience_ms)
{
    uint64_t from = env_now_ns(&env_real);
    signal_all(c, SIGTERM);
    signal_all(c, SIGCONT); /* one that was stopped must wake up to end */
    while (any_alive(c) && !deadline_passed(from, patience_ms))
        local_pause_ms(POLL_MS);
    signal_all(c, SIGKILL);
    while (any_alive(c))
        local_pause_ms(POLL_MS);
}
