#include "hpctl/local.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"
#include "common/json.h"
#include "hpctl/context.h"

enum { START_PATIENCE_MS = 20000, POLL_MS = 20, MAX_ARGUMENTS = 40, LOG_TAIL_BYTES = 600 };

static void nap(void)
{
    nanosleep(&(struct timespec){0, POLL_MS * 1000000L}, NULL);
}

static bool deadline_passed(uint64_t from_ns, uint64_t patience_ms)
{
    return (double)(env_now_ns(&env_real) - from_ns) / 1e6 > (double)patience_ms * env_time_scale();
}

/* ---- processes
 * ------------------------------------------------------------------------------------------------------------------------
 */

/* State letter and start time from /proc/PID/stat; false when there is no such process. */
static bool process_stat(pid_t pid, char *state, uint64_t *started)
{
    char file[64], text[1024];
    snprintf(file, sizeof file, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(file, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *after_name = strrchr(text, ')');
    if (!after_name || sscanf(after_name + 1, " %c", state) != 1)
        return false;
    const char *field = after_name + 2;
    for (int i = 3; i < 22 && field; i++)
        field = strchr(field + 1, ' ');
    *started = field ? strtoull(field, NULL, 10) : 0;
    return true;
}

const char *local_process_state(pid_t pid, uint64_t started)
{
    char state;
    uint64_t now_started;
    if (pid <= 0 || !process_stat(pid, &state, &now_started) || now_started != started ||
        state == 'Z' || state == 'X')
        return "dead";
    return state == 'T' || state == 't' ? "stopped" : "running";
}

static bool is_alive(pid_t pid, uint64_t started)
{
    return strcmp(local_process_state(pid, started), "dead") != 0;
}

/* Programs lie beside hpctl, in the build folder as well as where they are installed. */
static void program_beside(const char *name, char *out, size_t size)
{
    char self[2048];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(out, size, "%s/%s", slash ? self : ".", name);
    if (access(out, X_OK) != 0)
        snprintf(out, size, "%s", name);
}

void local_log_tail(const char *log, char *out, size_t size)
{
    FILE *f = fopen(log, "r");
    out[0] = '\0';
    if (!f)
        return;
    if (fseek(f, -(long)(size - 1), SEEK_END) != 0)
        rewind(f);
    size_t n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    fclose(f);
    while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == ' '))
        out[--n] = '\0';
}

/* Runs a program in the background, in a session of its own, with its output appended to `log`. It
 * gets nothing else of what hpctl's caller had open: a lock or a pipe that a daemon held would keep
 * others waiting for as long as the cluster runs. */
static int spawn(char *const *arguments, const char *log, pid_t *pid, uint64_t *started,
                 struct err *e)
{
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, HP_EIO, "cannot write %s: %s", log, strerror(errno));
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0) {
        close(fd);
        return err_set(e, HP_EIO, "cannot start %s: %s", arguments[0], strerror(errno));
    }
    fflush(NULL);
    *pid = fork();
    if (*pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        setsid();
        dup2(null, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
        execvp(arguments[0], arguments);
        int why = errno;
        ssize_t ignored = write(pipe_fd[1], &why, sizeof why);
        _exit(ignored ? 127 : 126);
    }
    int why = 0;
    close(pipe_fd[1]);
    bool failed = *pid < 0 || read(pipe_fd[0], &why, sizeof why) == sizeof why;
    close(pipe_fd[0]);
    close(fd);
    if (failed) {
        err_set(e, HP_EIO, "cannot start %s: %s", arguments[0], strerror(why ? why : errno));
        return err_hint(e, "it should lie beside hpctl; build all with `make`");
    }
    char state;
    if (!process_stat(*pid, &state, started))
        *started = 0;
    return 0;
}

static int died(const char *what, const char *log, struct err *e)
{
    char tail[LOG_TAIL_BYTES];
    local_log_tail(log, tail, sizeof tail);
    err_set(e, HP_EIO, "%s ended while it started; the end of its log: %s", what, tail);
    return err_hint(e, "the whole log is %s", log);
}

/* ---- the file
 * ------------------------------------------------------------------------------------------------------------------------------
 */

int local_save(const struct local_cluster *c, struct err *e)
{
    json_t *agents = json_array();
    for (int i = 0; i < c->n_agents; i++) {
        const struct local_agent *a = &c->agents[i];
        json_t *cores = json_array();
        for (int k = 0; k < a->n_cores; k++)
            json_array_append_new(cores, json_integer(a->cores[k]));
        json_array_append_new(
            agents, json_pack("{s:s, s:i, s:I, s:o, s:I, s:s}", "name", a->name, "pid", (int)a->pid,
                              "started", (json_int_t)a->started, "cores", cores, "memory_bytes",
                              (json_int_t)a->memory_bytes, "as", a->as));
    }
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:s, s:s, s:o}", "format",
                          "hp-local/1", "name", c->name, "dir", c->dir, "http", c->http, "control",
                          c->control, "coordinator_pid", (int)c->coordinator_pid,
                          "coordinator_started", (json_int_t)c->coordinator_started, "pace_cluster",
                          c->pace_cluster, "pace_profile", c->pace_profile, "agents", agents);
    if (o && c->data[0])
        json_object_set_new(o, "data", json_string(c->data));
    char file[600];
    snprintf(file, sizeof file, "%s/local.json", c->dir);
    int rc = o ? json_save(o, file, e) : err_set(e, HP_ENOMEM, "out of memory");
    json_decref(o);
    return rc;
}

static void copy_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

static int read_agent(const struct json_at *at, struct local_agent *a, struct err *e)
{
    struct json_at cores;
    const char *name, *as;
    uint64_t pid;
    size_t n;
    int rc;
    if ((rc = json_get_string(at, "name", &name, e)) < 0 ||
        (rc = json_get_u64(at, "pid", &pid, e)) < 0 ||
        (rc = json_get_u64(at, "started", &a->started, e)) < 0 ||
        (rc = json_get_u64(at, "memory_bytes", &a->memory_bytes, e)) < 0 ||
        (rc = json_opt_string(at, "as", "", &as, e)) < 0 ||
        (rc = json_get(at, "cores", &cores, e)) < 0 || (rc = json_as_array(&cores, &n, e)) < 0)
        return rc;
    copy_text(a->name, sizeof a->name, name);
    copy_text(a->as, sizeof a->as, as);
    a->pid = (pid_t)pid;
    for (size_t i = 0; i < n && i < LOCAL_MAX_CORES; i++) {
        struct json_at item = json_item(&cores, i);
        uint64_t core;
        if ((rc = json_as_u64(&item, &core, e)) < 0)
            return rc;
        a->cores[a->n_cores++] = (int)core;
    }
    return 0;
}

static int read_local(const struct json_at *at, struct local_cluster *c, struct err *e)
{
    static const struct {
        const char *key;
        size_t offset, size;
    } texts[] = {
        {"name", offsetof(struct local_cluster, name), sizeof c->name},
        {"dir", offsetof(struct local_cluster, dir), sizeof c->dir},
        {"http", offsetof(struct local_cluster, http), sizeof c->http},
        {"control", offsetof(struct local_cluster, control), sizeof c->control},
        {"pace_cluster", offsetof(struct local_cluster, pace_cluster), sizeof c->pace_cluster},
        {"pace_profile", offsetof(struct local_cluster, pace_profile), sizeof c->pace_profile},
    };
    struct json_at agents;
    uint64_t pid;
    size_t n;
    const char *data;
    int rc = json_expect_format(at, "hp-local/1", e);
    if (rc == 0 && (rc = json_opt_string(at, "data", "", &data, e)) == 0)
        copy_text(c->data, sizeof c->data, data);
    for (size_t i = 0; rc == 0 && i < sizeof texts / sizeof *texts; i++) {
        const char *text;
        if ((rc = json_get_string(at, texts[i].key, &text, e)) == 0)
            copy_text((char *)c + texts[i].offset, texts[i].size, text);
    }
    if (rc < 0 || (rc = json_get_u64(at, "coordinator_pid", &pid, e)) < 0 ||
        (rc = json_get_u64(at, "coordinator_started", &c->coordinator_started, e)) < 0 ||
        (rc = json_get(at, "agents", &agents, e)) < 0 || (rc = json_as_array(&agents, &n, e)) < 0)
        return rc;
    c->coordinator_pid = (pid_t)pid;
    for (size_t i = 0; i < n && i < LOCAL_MAX_AGENTS && rc == 0; i++) {
        struct json_at item = json_item(&agents, i);
        rc = read_agent(&item, &c->agents[c->n_agents++], e);
    }
    return rc;
}

int local_load(const char *name, struct local_cluster *out, struct err *e)
{
    struct context context;
    char file[600];
    json_t *root;
    struct json_at at;
    int rc = context_load(name, &context, e);
    if (rc < 0)
        return rc == HP_ENOCLUSTER && name
                   ? (err_set(e, HP_ENOENT, "there is no local cluster \"%s\"", name),
                      err_hint(e, "`hpctl local ls` lists them"), HP_ENOENT)
                   : rc;
    if (!context.local_dir[0])
        return err_set(e, HP_ENOENT, "the cluster \"%s\" was not made by `hpctl local up`",
                       context.name);
    snprintf(file, sizeof file, "%s/local.json", context.local_dir);
    if ((rc = json_load_at(file, &root, &at, e)) < 0)
        return rc;
    *out = (struct local_cluster){0};
    rc = read_local(&at, out, e);
    json_decref(root);
    return rc;
}

/* ---- coordinator
 * -----------------------------------------------------------------------------------------------------------------------------
 */

/* coordinator.json, which a coordinator writes when it listens. True once it is the one of this
 * process. */
static bool read_ports(struct local_cluster *c, char *server_key, size_t size)
{
    char file[700];
    json_t *root;
    struct json_at at;
    uint64_t pid;
    const char *control, *http, *key;
    snprintf(file, sizeof file, "%s/coordinator/coordinator.json", c->dir);
    if (json_load_at(file, &root, &at, NULL) < 0)
        return false;
    bool ready = json_get_u64(&at, "pid", &pid, NULL) == 0 && (pid_t)pid == c->coordinator_pid &&
                 json_get_string(&at, "control", &control, NULL) == 0 &&
                 json_get_string(&at, "http", &http, NULL) == 0 &&
                 json_get_string(&at, "public_key", &key, NULL) == 0;
    if (ready) {
        copy_text(c->control, sizeof c->control, control);
        copy_text(c->http, sizeof c->http, http);
        if (server_key)
            copy_text(server_key, size, key);
    }
    json_decref(root);
    return ready;
}

int local_start_coordinator(struct local_cluster *c, struct err *e)
{
    char program[2100], dir[600], log[640];
    program_beside("hp-coordinator", program, sizeof program);
    snprintf(dir, sizeof dir, "%s/coordinator", c->dir);
    snprintf(log, sizeof log, "%s/log", dir);
    int rc = make_folders(dir, e);
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
                         NULL};
    if ((rc = spawn(arguments, log, &c->coordinator_pid, &c->coordinator_started, e)) < 0)
        return rc;
    uint64_t from = env_now_ns(&env_real);
    while (!read_ports(c, NULL, 0)) {
        waitpid(c->coordinator_pid, NULL, WNOHANG);
        if (!is_alive(c->coordinator_pid, c->coordinator_started))
            return died("the coordinator", log, e);
        if (deadline_passed(from, START_PATIENCE_MS)) {
            kill(c->coordinator_pid, SIGKILL);
            return err_set(e, HP_ETIMEOUT,
                           "the coordinator did not listen within %d s; its log is %s",
                           START_PATIENCE_MS / 1000, log);
        }
        nap();
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
    return rc < 0 ? rc : context_save(&context, make_current, e);
}

/* ---- agents
 * ----------------------------------------------------------------------------------------------------------------------------------
 */

/* An agent that has not been told yet which data channel its cluster wants would open another one
 * first. */
static void data_channel_tell(const struct local_cluster *c, const char *dir)
{
    char file[700];
    snprintf(file, sizeof file, "%s/data-channel", dir);
    FILE *f = c->data[0] && access(file, F_OK) != 0 ? fopen(file, "we") : NULL;
    if (f) {
        fprintf(f, "%s\n\n", c->data);
        fclose(f);
    }
}

int local_start_agent(struct local_cluster *c, struct local_agent *a, const char *token,
                      struct err *e)
{
    char program[2100], dir[600], log[640], cores[1200] = "", memory[32], token_file[640];
    program_beside("hp-agent", program, sizeof program);
    snprintf(dir, sizeof dir, "%s/agents/%s", c->dir, a->name);
    snprintf(log, sizeof log, "%s/log", dir);
    snprintf(token_file, sizeof token_file, "%s/token", dir);
    snprintf(memory, sizeof memory, "%llu", (unsigned long long)a->memory_bytes);
    for (int i = 0; i < a->n_cores; i++) {
        size_t n = strlen(cores);
        snprintf(cores + n, sizeof cores - n, "%s%d", i ? "," : "", a->cores[i]);
    }
    int rc = make_folders(dir, e);
    if (rc < 0)
        return rc;
    data_channel_tell(c, dir);
    char *arguments[MAX_ARGUMENTS] = {program, "--join",  c->control, "--dir",     dir, "--name",
                                      a->name, "--cores", cores,      "--network", "lo"};
    int n = 11;
    if (*token) {
        int fd = open(token_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        bool bad = fd < 0 || write(fd, token, strlen(token)) != (ssize_t)strlen(token);
        if (fd >= 0)
            close(fd);
        if (bad)
            return err_set(e, HP_EIO, "cannot write %s: %s", token_file, strerror(errno));
        arguments[n++] = "--token-file";
        arguments[n++] = token_file;
    }
    if (a->memory_bytes) {
        arguments[n++] = "--memory";
        arguments[n++] = memory;
    }
    if (c->pace_cluster[0]) {
        char *const paced[] = {"--pace",        c->pace_cluster, "--profile",
                               c->pace_profile, "--as",          a->as};
        memcpy(arguments + n, paced, sizeof paced);
        n += (int)(sizeof paced / sizeof *paced);
    }
    arguments[n] = NULL;
    if ((rc = spawn(arguments, log, &a->pid, &a->started, e)) < 0)
        return rc;
    /* Bad arguments end an agent at once; all else shows in what the coordinator says of it. */
    for (int i = 0; i < 5; i++) {
        nap();
        waitpid(a->pid, NULL, WNOHANG);
        if (!is_alive(a->pid, a->started))
            return died(a->name, log, e);
    }
    return 0;
}

/* ---- the end
 * ------------------------------------------------------------------------------------------------------------------------------------
 */

static void signal_all(const struct local_cluster *c, int which)
{
    for (int i = 0; i < c->n_agents; i++)
        if (is_alive(c->agents[i].pid, c->agents[i].started))
            kill(c->agents[i].pid, which);
    if (is_alive(c->coordinator_pid, c->coordinator_started))
        kill(c->coordinator_pid, which);
}

static bool any_alive(const struct local_cluster *c)
{
    bool any = false;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    for (int i = 0; i < c->n_agents; i++)
        any |= is_alive(c->agents[i].pid, c->agents[i].started);
    return any || is_alive(c->coordinator_pid, c->coordinator_started);
}

void local_stop(struct local_cluster *c, uint64_t patience_ms)
{
    uint64_t from = env_now_ns(&env_real);
    signal_all(c, SIGTERM);
    signal_all(c, SIGCONT); /* one that was stopped must wake up to end */
    while (any_alive(c) && !deadline_passed(from, patience_ms))
        nap();
    signal_all(c, SIGKILL);
    while (any_alive(c))
        nap();
}
