#include "hpctl/own_cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/host.h"
#include "hpctl/client.h"
#include "hpctl/deploying.h"
#include "hpctl/local_members.h"
#include "hpctl/local_options.h"
#include "hpctl/local_process.h"
#include "hpctl/model_manifest.h"
#include "hpctl/progress.h"

enum { PROCESSES = 2, END_PATIENCE_MS = 6000, LOOK_MS = 10 };

/* One line of what the janitor is told. */
struct own_process {
    pid_t pid;
    uint64_t started;
};

struct own_cluster {
    struct local_cluster local;
    struct context where;
    char name[DEPLOYMENT_NAME_BYTES];
    char names[1000]; /* where the chunks' names are kept, beyond the cluster's own folder */
    struct manifest_maker *maker;
    pid_t janitor;
    int told; /* the janitor's pipe: it cleans up once nobody holds this end */
};

bool own_cluster_is_file(const char *argument)
{
    static const char ending[] = ".gguf";
    size_t n = strlen(argument), of = sizeof ending - 1;
    return strchr(argument, '/') || (n > of && strcmp(argument + n - of, ending) == 0);
}

/* ---- the janitor ---- */

static void processes_signal(const struct own_process *p, int n, int which)
{
    for (int i = 0; i < n; i++)
        if (local_process_is_alive(p[i].pid, p[i].started))
            kill(p[i].pid, which);
}

static bool processes_live(const struct own_process *p, int n)
{
    for (int i = 0; i < n; i++)
        if (local_process_is_alive(p[i].pid, p[i].started))
            return true;
    return false;
}

/* Waits until hpctl has ended or has closed the pipe; then ends its processes and removes `dir`. */
static void janitor_run(int pipe_end, const char *dir)
{
    struct own_process p[PROCESSES];
    int n = 0;
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    setsid();
    for (ssize_t got; n < PROCESSES;) {
        got = read(pipe_end, &p[n], sizeof *p);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != sizeof *p)
            break;
        n++;
    }
    char rest;
    while (n == PROCESSES && (read(pipe_end, &rest, 1) > 0 || errno == EINTR))
        errno = 0;
    processes_signal(p, n, SIGTERM);
    processes_signal(p, n, SIGCONT);
    for (int ms = 0; ms < END_PATIENCE_MS && processes_live(p, n); ms += LOOK_MS)
        local_pause_ms(LOOK_MS);
    processes_signal(p, n, SIGKILL);
    execl("/bin/rm", "rm", "-rf", "--", dir, (char *)NULL);
    _exit(1);
}

static int janitor_start(struct own_cluster *c, struct err *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(e, HP_EIO, "cannot make a pipe: %s", strerror(errno));
    fflush(NULL);
    c->janitor = fork();
    if (c->janitor == 0) {
        close(ends[1]);
        janitor_run(ends[0], c->local.dir);
    }
    close(ends[0]);
    c->told = ends[1];
    return c->janitor > 0 ? 0 : err_set(e, HP_EIO, "cannot fork: %s", strerror(errno));
}

static int janitor_tell(const struct own_cluster *c, pid_t pid, uint64_t started, struct err *e)
{
    struct own_process p = {pid, started};
    return pid <= 0 || write(c->told, &p, sizeof p) == sizeof p
               ? 0
               : err_set(e, HP_EIO, "who cleans up has ended: %s", strerror(errno));
}

/* ---- the cluster ---- */

static int folder_make(struct own_cluster *c, struct err *e)
{
    char config[sizeof c->local.dir + 16], *slash;
    int rc = local_default_dir("own-XXXXXX", c->local.dir, sizeof c->local.dir, e);
    if (rc < 0)
        return rc;
    if ((slash = strrchr(c->local.dir, '/')) != NULL) {
        *slash = '\0';
        rc = fs_folder_make(c->local.dir, 0700, e);
        *slash = '/';
    }
    if (rc < 0)
        return rc;
    if (!mkdtemp(c->local.dir))
        return err_set(e, HP_EIO, "cannot make the folder %s: %s", c->local.dir, strerror(errno));
    snprintf(config, sizeof config, "%s/config", c->local.dir);
    return setenv("HP_CONFIG_DIR", config, 1) == 0 ? 0 : err_no_memory(e, "a folder's name");
}

/* A process that has begun is the janitor's to end, also where it did not get far. */
static int processes_start(struct own_cluster *c, struct progress_bar *bar, struct err *e)
{
    struct local_cluster *l = &c->local;
    struct local_agent *a = &l->agents[0];
    struct err ignored;
    progress_show(bar, "starting", 0, 0);
    int rc = local_start_coordinator(l, e),
        told = janitor_tell(c, l->coordinator_pid, l->coordinator_started, rc == 0 ? e : &ignored);
    rc = rc < 0 ? rc : told;
    if (rc < 0 || (rc = local_make_context(l, true, e)) < 0)
        return rc;
    rc = local_start_agents(l, bar, e);
    told = janitor_tell(c, a->pid, a->started, rc == 0 ? e : &ignored);
    rc = rc < 0 ? rc : told;
    if (rc == 0)
        rc = local_wait_ready(l, NULL, bar, e);
    return rc == 0 ? context_load(l->name, &c->where, e) : rc;
}

static int model_deploy(struct own_cluster *c, const struct own_options *o, const char *real_path,
                        struct err *e)
{
    struct deploying d = {.path = o->path, .ends_with_us = true, .maker = c->maker};
    struct client *client = NULL;
    json_t *result = NULL;
    char host[HOST_ID];
    host_id(host);
    progress_init(&d.bar, o->quiet);
    if (o->name)
        snprintf(d.name, sizeof d.name, "%s", o->name);
    else
        deploying_name(o->path, d.name, sizeof d.name);
    memcpy(c->name, d.name, sizeof c->name);
    d.options = json_pack("{s:s, s:s}", "source_machine", host, "source_path", real_path);
    int rc = d.options ? 0 : err_set(e, HP_EINVAL, "the model's path is not valid UTF-8");
    if (rc == 0 && o->options)
        json_object_update(d.options, o->options);
    if (rc == 0)
        rc = client_open(NULL, &client, e);
    if (rc == 0) {
        c->maker = NULL; /* it is deploying_run's */
        rc = deploying_run(&d, client, &result, e);
    }
    client_close(&client);
    json_decref(d.options);
    json_decref(result);
    return rc;
}

/* A folder below the user's for what can be made again; "": there is none. */
static void cache_folder_find(const char *below, char *out, size_t size)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool own = xdg && xdg[0] == '/';
    int n = own                      ? snprintf(out, size, "%s/hp/%s", xdg, below)
            : home && home[0] == '/' ? snprintf(out, size, "%s/.cache/hp/%s", home, below)
                                     : -1;
    if (n < 0 || (size_t)n >= size || fs_folder_make(out, 0700, NULL) < 0)
        out[0] = '\0';
}

/* What one run leaves for the next: the names of chunks, and of this box what was measured. */
static void kept_folders_find(struct own_cluster *c)
{
    char below[HOST_ID + 16], host[HOST_ID];
    host_id(host);
    snprintf(below, sizeof below, "measured/%s", host);
    cache_folder_find("names", c->names, sizeof c->names);
    cache_folder_find(below, c->local.measured, sizeof c->local.measured);
}

static int cluster_begin(struct own_cluster *c, const struct own_options *o, const char *real_path,
                         struct err *e)
{
    struct local_cluster *l = &c->local;
    struct progress_bar bar;
    snprintf(l->name, sizeof l->name, "own");
    snprintf(l->http, sizeof l->http, "127.0.0.1:%llu", (unsigned long long)o->port);
    snprintf(l->control, sizeof l->control, "127.0.0.1:0");
    snprintf(l->agents[0].name, sizeof l->agents[0].name, "here");
    l->n_agents = 1;
    l->devices = 1;
    l->borrows = true; /* it lives as long as whoever named the file */
    kept_folders_find(c);
    int rc = local_deal_cores(l, 0, e);
    if (rc < 0 || (rc = folder_make(c, e)) < 0 || (rc = janitor_start(c, e)) < 0)
        return rc;
    c->maker = manifest_maker_start(o->path, c->names); /* while they start */
    progress_init(&bar, o->quiet);
    rc = processes_start(c, &bar, e);
    progress_end(&bar);
    return rc == 0 ? model_deploy(c, o, real_path, e) : rc;
}

int own_cluster_open(const struct own_options *o, struct own_cluster **out, struct err *e)
{
    char *real_path = realpath(o->path, NULL);
    *out = NULL;
    if (!real_path) {
        err_set(e, HP_ENOENT, "%s: no such model file or folder", o->path);
        return err_hint(e, "it is a GGUF file or a Hugging Face folder on this box; a deployment's "
                           "name has no slash");
    }
    struct own_cluster *c = calloc(1, sizeof *c);
    int rc = c ? 0 : err_no_memory(e, "a cluster");
    if (c)
        c->told = -1;
    if (rc == 0 && (rc = cluster_begin(c, o, real_path, e)) < 0)
        own_cluster_close(&c);
    free(real_path);
    *out = c;
    return rc;
}

struct context *own_cluster_context(struct own_cluster *c)
{
    return &c->where;
}

const char *own_cluster_name(const struct own_cluster *c)
{
    return c->name;
}

int own_cluster_check(const struct own_cluster *c, struct err *e)
{
    const struct local_cluster *l = &c->local;
    char log[700];
    bool agent = !local_process_is_alive(l->agents[0].pid, l->agents[0].started);
    if (!agent && local_process_is_alive(l->coordinator_pid, l->coordinator_started))
        return 0;
    snprintf(log, sizeof log, "%s/%s/log", l->dir, agent ? "agents/here" : "coordinator");
    return local_process_died(agent ? "its agent" : "its coordinator", log, e);
}

void own_cluster_close(struct own_cluster **out)
{
    struct own_cluster *c = *out;
    if (!c)
        return;
    struct buffer unused = {0};
    struct progress_bar quiet;
    progress_init(&quiet, true);
    if (c->maker)
        manifest_maker_finish(&c->maker, &quiet, &unused, NULL);
    buffer_free(&unused);
    if (c->told >= 0)
        close(c->told);
    while (c->janitor > 0 && waitpid(c->janitor, NULL, 0) < 0 && errno == EINTR)
        ;
    free(c);
    *out = NULL;
}
