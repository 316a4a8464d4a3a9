#include "hpctl/own_cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fs.h"
#include "common/heap.h"
#include "common/host.h"
#include "hpctl/client.h"
#include "hpctl/deploying.h"
#include "hpctl/embedded.h"
#include "hpctl/local_options.h"
#include "hpctl/local_process.h"
#include "hpctl/model_manifest.h"
#include "hpctl/own_devices.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"

enum { DRAIN_MS = 5000, LOOK_MS = 2, LOOKS_UNSHOWN = 100, READY_PATIENCE_MS = 30000 };

struct own_cluster {
    struct embedded *embedded;
    char dir[512], name[DEPLOYMENT_NAME_BYTES];
    char names[1000], measured[1000]; /* kept for the next time, beyond the cluster's own folder */
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

/* Waits until hpctl has ended, however it did, or has closed the pipe; then removes `dir`. */
static void janitor_run(int pipe_end, const char *dir)
{
    char unused;
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    setsid();
    while (read(pipe_end, &unused, 1) < 0 && errno == EINTR)
        ;
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
        janitor_run(ends[0], c->dir);
    }
    close(ends[0]);
    c->told = ends[1];
    return c->janitor > 0 ? 0 : err_set(e, HP_EIO, "cannot fork: %s", strerror(errno));
}

/* ---- the cluster ---- */

static int folder_make(struct own_cluster *c, struct err *e)
{
    int rc = local_default_dir("own-XXXXXX", c->dir, sizeof c->dir, e);
    rc = rc < 0 ? rc : fs_folder_above_make(c->dir, 0700, e);
    if (rc == 0 && !mkdtemp(c->dir))
        rc = err_set(e, HP_EIO, "cannot make the folder %s: %s", c->dir, strerror(errno));
    return rc;
}

/* Whether the agent has joined. */
static int agent_is_ready(struct client *client, bool *out, struct err *e)
{
    json_t *members = NULL;
    int rc = client_get(client, "node.ls", NULL, &members, e);
    *out = rc == 0 && strcmp(string_member(json_array_get(members, 0), "state"), "ready") == 0;
    json_decref(members);
    return rc;
}

static int agent_await(const struct own_cluster *c, struct client *client, struct progress_bar *bar,
                       struct err *e)
{
    uint64_t from = env_now_ns(&env_real);
    bool ready = false;
    int rc = agent_is_ready(client, &ready, e);
    for (int looks = 0; rc == 0 && !ready; looks++) {
        if ((double)(env_now_ns(&env_real) - from) / 1e6 > READY_PATIENCE_MS * env_time_scale())
            return err_set(e, HP_ETIMEOUT, "its agent has not joined within %d s",
                           READY_PATIENCE_MS / 1000);
        if (looks >= LOOKS_UNSHOWN)
            progress_show(bar, "starting", 0, 0);
        local_pause_ms(LOOK_MS);
        rc = own_cluster_check(c, e);
        rc = rc < 0 ? rc : agent_is_ready(client, &ready, e);
    }
    return rc;
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
    progress_once(&d.bar, "getting the model ready");
    if (o->name)
        snprintf(d.name, sizeof d.name, "%s", o->name);
    else
        deploying_name(o->path, d.name, sizeof d.name);
    memcpy(c->name, d.name, sizeof c->name);
    d.options = json_pack("{s:s, s:s}", "source_machine", host, "source_path", real_path);
    int rc = d.options ? 0 : err_set(e, HP_EINVAL, "the model's path is not valid UTF-8");
    if (rc == 0 && o->options)
        json_object_update(d.options, o->options);
    rc = rc < 0 ? rc : client_open_at(embedded_context(c->embedded), 0, &client, e);
    rc = rc < 0 ? rc : agent_await(c, client, &d.bar, e);
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
    cache_folder_find(below, c->measured, sizeof c->measured);
}

static uint64_t option_whole(const struct own_options *o, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(o->options, name));
}

/* A GPU that nobody asked for and that does not come up is done without. */
static int parts_start(struct own_cluster *c, const struct own_options *o, const char *http,
                       struct err *e)
{
    struct own_devices d;
    const struct embedded_options within = {
        .share = &d.share, .dir = c->dir, .measured = c->measured, .http = http};
    const struct own_devices_ask ask = {.path = o->path,
                                        .devices = o->devices,
                                        .n_devices = o->n_devices,
                                        .max_context = option_whole(o, "max_context"),
                                        .max_sequences = option_whole(o, "max_sequences")};
    int rc = own_devices_find(&ask, &d, e);
    rc = rc < 0 ? rc : embedded_start(&within, &c->embedded, e);
    if (d.chosen && (rc == HP_EDEVICE || rc == HP_ENOMEM)) {
        rc = own_devices_cpu(e, &d, e);
        rc = rc < 0 ? rc : embedded_start(&within, &c->embedded, e);
    }
    if (rc == 0 && d.said[0])
        fprintf(stderr, "hpctl: %s\n", d.said);
    return rc;
}

static int cluster_begin(struct own_cluster *c, const struct own_options *o, const char *real_path,
                         struct err *e)
{
    char http[64];
    snprintf(http, sizeof http, "127.0.0.1:%llu", (unsigned long long)o->port);
    heap_return_large();
    kept_folders_find(c);
    int rc = folder_make(c, e);
    if (rc < 0 || (rc = janitor_start(c, e)) < 0)
        return rc;
    c->maker = manifest_maker_start(o->path, c->names); /* while it starts */
    rc = parts_start(c, o, http, e);
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

const struct context *own_cluster_context(const struct own_cluster *c)
{
    return embedded_context(c->embedded);
}

const char *own_cluster_name(const struct own_cluster *c)
{
    return c->name;
}

int own_cluster_check(const struct own_cluster *c, struct err *e)
{
    return embedded_check(c->embedded, e) < 0 ? err_at(e, "its agent") : 0;
}

bool own_cluster_serves(const struct own_cluster *c, struct err *why)
{
    struct client *client;
    json_t *told = NULL;
    int rc = client_open_at(embedded_context(c->embedded), 0, &client, NULL);
    if (rc < 0)
        return true; /* own_cluster_check says what is wrong */
    rc =
        client_get(client, "deployment.describe", json_pack("{s:s}", "name", c->name), &told, NULL);
    client_close(&client);
    bool broken = rc == 0 && strcmp(string_member(told, "state"), "broken") == 0;
    if (broken)
        err_set(why, HP_EIO, "%s", shown_plain(string_member(told, "text")).s);
    json_decref(told);
    return !broken;
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
    embedded_stop(&c->embedded, DRAIN_MS);
    if (c->told >= 0)
        close(c->told);
    while (c->janitor > 0 && waitpid(c->janitor, NULL, 0) < 0 && errno == EINTR)
        ;
    free(c);
    *out = NULL;
}
