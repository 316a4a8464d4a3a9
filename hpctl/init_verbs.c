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

static int run_init(struct invocation *in, struct err *e)
{
    struct context c = {0};
    struct key_pair server;
    char dir[1024], file[1100], http[200], real[PATH_MAX];
    const char *asked = invocation_option(in, "dir"),
               *name = invocation_option_or(in, "name", "home");
    const char *certificate = invocation_option(in, "http-cert"),
               *key = invocation_option(in, "http-key");
    const char *listen = invocation_option_or(in, "listen", "127.0.0.1:7070"),
               *api = invocation_option_or(in, "http", "127.0.0.1:8080");
    struct data_policy data;
    int rc = context_check_name(name, e);
    if (rc == 0)
        rc = data_policy_set(&data, invocation_option(in, "data"), invocation_option(in, "trust"),
                             e);
    if (rc == 0 && !certificate != !key)
        rc = err_set(e, HP_EUSAGE,
                     "--http-cert and --http-key go together: a certificate and its key");
    if (rc == 0 && certificate && !realpath(certificate, real))
        rc = err_set(e, HP_ENOENT, "--http-cert %s: %s", certificate, strerror(errno));
    if (rc == 0 && certificate)
        snprintf(c.http_ca, sizeof c.http_ca, "%s", real);
    if (rc < 0)
        return rc;
    if (asked)
        snprintf(dir, sizeof dir, "%s", asked);
    else
        default_folder(name, dir, sizeof dir);
    if (strrchr(listen, ':') == NULL || strcmp(strrchr(listen, ':'), ":0") == 0)
        return err_set(
            e, HP_EUSAGE,
            "--listen: \"%s\" is not HOST:PORT with a fixed port: agents must find it again",
            listen);
    snprintf(file, sizeof file, "%s/server.key", dir);
    bool keys = key_pair_load(file, &server, NULL) == 0; /* made by an earlier `cluster init` */
    if ((rc = context_check_free(name, keys ? server.public_key : NULL, false, e)) < 0 ||
        (rc = run_coordinator_init(dir, e)) < 0)
        return rc;
    snprintf(c.name, sizeof c.name, "%s", name);
    snprintf(c.listen, sizeof c.listen, "%s", listen);
    snprintf(c.data, sizeof c.data, "%s", data.mode);
    snprintf(c.trust, sizeof c.trust, "%s", data.trust);
    snprintf(c.http_listen, sizeof c.http_listen, "%s", api);
    reach_from_here(listen, c.control, sizeof c.control);
    reach_from_here(api, http, sizeof http);
    snprintf(c.http, sizeof c.http, "%s://%s", certificate ? "https" : "http", http);
    if ((rc = key_pair_load(file, &server, e)) < 0)
        return rc;
    memcpy(c.server_key, server.public_key, KEY_TEXT);
    snprintf(file, sizeof file, "%s/admin.key", dir);
    if ((rc = key_pair_load(file, &c.admin, e)) < 0 || (rc = context_save(&c, true, e)) < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in,
                                     json_pack("{s:s, s:s, s:s, s:s}", "context", c.name, "dir",
                                               dir, "control", c.control, "http", c.http),
                                     e);
    bool named = invocation_option(in, "data") || invocation_option(in, "trust");
    printf("keys are in %s; context \"%s\" speaks of this cluster now\nstart it here:\n  "
           "hp-coordinator --dir %s --listen %s --http %s --name %s",
           dir, c.name, dir, listen, api, c.name);
    if (named)
        printf(" --data %s%s%s", data.mode, data.trust[0] ? " --trust " : "", data.trust);
    if (certificate)
        printf(" --http-cert %s --http-key %s", real, key);
    printf("\nthen invite the other boxes:\n  hpctl node token create\n");
    return 0;
}

static const struct command_option init_options[] = {
    {"name", "N", "of the cluster and its context (default: home)", 0},
    {"dir", "D", "where the coordinator keeps its state", 0},
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
