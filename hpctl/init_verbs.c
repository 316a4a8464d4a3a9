/* `hpctl cluster init`: begin a cluster. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hpctl/context.h"
#include "hpctl/reach.h"
#include "hpctl/verbs.h"
#include "transport/data_choice.h"
#include "transport/keys.h"

static int run_coordinator_init(const char *dir, struct err *e)
{
    pid_t pid = fork();
    if (pid == 0) {
        char self[2048], program[2100] = "hp-coordinator";
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        char *slash = n > 0 ? (self[n] = '\0', strrchr(self, '/')) : NULL;
        if (slash)
            snprintf(program, sizeof program, "%.*s/hp-coordinator", (int)(slash - self), self);
        execlp(access(program, X_OK) == 0 ? program : "hp-coordinator", "hp-coordinator", "--init",
               "--dir", dir, (char *)NULL);
        _exit(127);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0) {
        err_set(e, HP_EIO, "hp-coordinator --init --dir %s did not succeed", dir);
        return err_hint(
            e, "what it said stands above; hp-coordinator must lie beside hpctl or on the PATH");
    }
    return 0;
}

/* Beside the clusters that `local up` makes. */
static void default_folder(const char *name, char *out, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state)
        snprintf(out, size, "%s/hp/%s/coordinator", state, name);
    else
        snprintf(out, size, "%s/.local/state/hp/%s/coordinator", home ? home : "/var/lib/hp", name);
}

/* What was asked for. */
struct init_wish {
    const char *name, *listen, *http, *certificate, *key;
    struct data_policy data;
    char dir[1024], real_certificate[PATH_MAX];
};

static int wish_read(struct invocation *in, struct init_wish *w, struct err *e)
{
    const char *dir = invocation_option(in, "dir");
    w->name = invocation_option_or(in, "name", "home");
    w->listen = invocation_option_or(in, "listen", "127.0.0.1:7070");
    w->http = invocation_option_or(in, "http", "127.0.0.1:8080");
    w->certificate = invocation_option(in, "http-cert");
    w->key = invocation_option(in, "http-key");
    int rc = context_check_name(w->name, e);
    if (rc == 0)
        rc = data_policy_set(&w->data, invocation_option(in, "data"),
                             invocation_option(in, "trust"), e);
    if (rc == 0 && !w->certificate != !w->key)
        rc = err_set(e, HP_EUSAGE,
                     "--http-cert and --http-key go together: a certificate and its key");
    if (rc == 0 && w->certificate && !realpath(w->certificate, w->real_certificate))
        rc = err_set(e, HP_ENOENT, "--http-cert %s: %s", w->certificate, strerror(errno));
    if (rc < 0)
        return rc;
    if (dir)
        snprintf(w->dir, sizeof w->dir, "%s", dir);
    else
        default_folder(w->name, w->dir, sizeof w->dir);
    const char *port = strrchr(w->listen, ':');
    if (!port || strcmp(port, ":0") == 0)
        return err_set(
            e, HP_EUSAGE,
            "--listen: \"%s\" is not HOST:PORT with a fixed port: agents must find it again",
            w->listen);
    return 0;
}

/* Keys in the folder, unless an earlier `cluster init` has made them, and a name that is free. */
static int keys_make(const struct init_wish *w, struct key_pair *server, struct key_pair *admin,
                     struct err *e)
{
    char file[1100];
    snprintf(file, sizeof file, "%s/server.key", w->dir);
    bool made = key_pair_load(file, server, NULL) == 0;
    int rc = context_check_free(w->name, made ? server->public_key : NULL, false, e);
    rc = rc < 0 ? rc : run_coordinator_init(w->dir, e);
    rc = rc < 0 ? rc : key_pair_load(file, server, e);
    snprintf(file, sizeof file, "%s/admin.key", w->dir);
    return rc < 0 ? rc : key_pair_load(file, admin, e);
}

static void context_fill(const struct init_wish *w, struct context *c)
{
    char http[200];
    snprintf(c->name, sizeof c->name, "%s", w->name);
    snprintf(c->listen, sizeof c->listen, "%s", w->listen);
    snprintf(c->data, sizeof c->data, "%s", w->data.mode);
    snprintf(c->trust, sizeof c->trust, "%s", w->data.trust);
    snprintf(c->http_listen, sizeof c->http_listen, "%s", w->http);
    if (w->certificate)
        snprintf(c->http_ca, sizeof c->http_ca, "%s", w->real_certificate);
    reach_from_here(w->listen, c->control, sizeof c->control);
    reach_from_here(w->http, http, sizeof http);
    snprintf(c->http, sizeof c->http, "%s://%s", w->certificate ? "https" : "http", http);
}

static void next_steps_print(struct invocation *in, const struct init_wish *w)
{
    printf("keys are in %s; context \"%s\" speaks of this cluster now\nstart it here:\n  "
           "hp-coordinator --dir %s --listen %s --http %s --name %s",
           w->dir, w->name, w->dir, w->listen, w->http, w->name);
    if (invocation_option(in, "data") || invocation_option(in, "trust"))
        printf(" --data %s%s%s", w->data.mode, w->data.trust[0] ? " --trust " : "", w->data.trust);
    if (w->certificate)
        printf(" --http-cert %s --http-key %s", w->real_certificate, w->key);
    printf("\nthen invite the other boxes:\n  hpctl node token create\n");
}

static int run_init(struct invocation *in, struct err *e)
{
    struct init_wish w;
    struct context c = {0};
    struct key_pair server;
    int rc = wish_read(in, &w, e);
    rc = rc < 0 ? rc : keys_make(&w, &server, &c.admin, e);
    if (rc < 0)
        return rc;
    context_fill(&w, &c);
    memcpy(c.server_key, server.public_key, KEY_TEXT);
    if ((rc = context_save(&c, true, e)) < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in,
                                     json_pack("{s:s, s:s, s:s, s:s}", "context", c.name, "dir",
                                               w.dir, "control", c.control, "http", c.http),
                                     e);
    next_steps_print(in, &w);
    return 0;
}

static const struct command_option init_options[] = {
    {"name", "N", "of the cluster and its context (default: home)", 0},
    {"dir", "DIR", "where the coordinator keeps its state", 0},
    {"listen", "ADDR:PORT",
     "control channel for agents and hpctl (default 127.0.0.1:7070; 0.0.0.0:7070 for other boxes)",
     0},
    {"http", "ADDR:PORT", "OpenAI API (default 127.0.0.1:8080)", 0},
    {"http-cert", "FILE",
     "PEM of the API's certificate: it speaks HTTPS, and this context trusts that file", 0},
    {"http-key", "FILE", "PEM of the certificate's key", 0},
    {"data", "auto|ucx|tcp",
     "data channel between agents; auto: UCX on loopback and trusted networks, encrypted TCP "
     "elsewhere",
     0},
    {"trust", "CIDR,...",
     "networks on which everybody is trusted, such as 10.1.0.0/16: traffic there is not encrypted",
     0},
    {0},
};

const struct command init_verbs[] = {
    {"cluster init", "", 0, 0, "make the keys of a cluster whose coordinator runs on this box",
     NULL,
     "  hpctl cluster init\n  hpctl cluster init --name office --listen 0.0.0.0:7070 --http "
     "0.0.0.0:8080\n  hpctl cluster init --listen 0.0.0.0:7070 --trust 10.1.0.0/16",
     init_options, run_init, false},
    {0},
};
