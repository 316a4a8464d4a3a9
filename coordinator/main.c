/* hp-coordinator: one process a cluster. */
#include "common/log.h"
#include "coordinator/coordinator.h"

#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "hp-coordinator: knows the agents of a cluster, places models on them, and serves the OpenAI API\n"
    "\n"
    "usage: hp-coordinator [options]\n"
    "\n"
    "  --dir D             state: keys, store, heads of models (default: $XDG_STATE_HOME/hodgepodge/coordinator)\n"
    "  --listen ADDR:PORT  control channel for agents and hpctl (default: 127.0.0.1:7070; port 0: any free one)\n"
    "  --http ADDR:PORT    OpenAI API (default: 127.0.0.1:8080; port 0: any free one; none: no API).\n"
    "                      Beyond loopback it waits for the first API key\n"
    "  --name N            name of the cluster (default: hodgepodge)\n"
    "  --init              make folder and keys, and end\n"
    "  --version, --help\n"
    "\n"
    "It writes DIR/coordinator.json with the addresses that it got, and DIR/admin.key, the key that hpctl needs.\n"
    "\n"
    "examples:\n"
    "  hp-coordinator --listen 0.0.0.0:7070\n"
    "  hp-coordinator --dir /tmp/try --listen 127.0.0.1:0 --http 127.0.0.1:0\n";

struct options {
    struct coordinator_config config;
    char dir[1024];
    bool init, done;
};

static void dir_default(char *out, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state)
        snprintf(out, size, "%s/hodgepodge/coordinator", state);
    else
        snprintf(out, size, "%s/.local/state/hodgepodge/coordinator", home && *home ? home : "/var/lib");
}

static int options_read(int argc, char **argv, struct options *o, struct err *e)
{
    static const struct option table[] = {{"dir", required_argument, NULL, 'd'},  {"listen", required_argument, NULL, 'l'},
                                          {"http", required_argument, NULL, 'h'}, {"name", required_argument, NULL, 'n'},
                                          {"init", no_argument, NULL, 'i'},       {"help", no_argument, NULL, 'H'},
                                          {"version", no_argument, NULL, 'V'},    {0}};
    dir_default(o->dir, sizeof o->dir);
    o->config = (struct coordinator_config){o->dir, "127.0.0.1:7070", "127.0.0.1:8080", "hodgepodge"};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (c) {
        case 'd': o->config.dir = optarg; break;
        case 'l': o->config.listen = optarg; break;
        case 'h': o->config.http = optarg; break;
        case 'n': o->config.name = optarg; break;
        case 'i': o->init = true; break;
        case 'H':
            fputs(help, stdout);
            o->done = true;
            return 0;
        case 'V':
            puts("hp-coordinator " HP_VERSION);
            o->done = true;
            return 0;
        default: return err_set(e, HP_EUSAGE, "%s: unknown option, or one without its value; --help lists them", argv[optind - 1]);
        }
    }
    return optind < argc ? err_set(e, HP_EUSAGE, "%s: hp-coordinator takes options only; --help lists them", argv[optind]) : 0;
}

static void on_signal(uv_signal_t *s, int number)
{
    log_info("coordinator", "stopping", "signal=%d", number);
    uv_stop(s->loop);
}

static int serve(const struct coordinator_config *config, struct err *e)
{
    uv_loop_t loop;
    uv_signal_t term, interrupt;
    struct coordinator *c;
    uv_loop_init(&loop);
    int rc = coordinator_open(&loop, config, &c, e);
    if (rc == 0) {
        uv_signal_init(&loop, &term);
        uv_signal_init(&loop, &interrupt);
        uv_signal_start(&term, on_signal, SIGTERM);
        uv_signal_start(&interrupt, on_signal, SIGINT);
        uv_run(&loop, UV_RUN_DEFAULT);
        if (coordinator_failure(c)->code) {
            *e = *coordinator_failure(c);
            rc = e->code;
        }
        coordinator_close(&c);
        uv_close((uv_handle_t *)&term, NULL);
        uv_close((uv_handle_t *)&interrupt, NULL);
    }
    uv_run(&loop, UV_RUN_DEFAULT); /* until every handle is closed */
    uv_loop_close(&loop);
    return rc;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct err e = {0};
    signal(SIGPIPE, SIG_IGN);
    int rc = options_read(argc, argv, &o, &e);
    if (rc == 0 && !o.done)
        rc = o.init ? coordinator_init(o.config.dir, &e) : serve(&o.config, &e);
    if (rc < 0) {
        fprintf(stderr, "hp-coordinator: %s\n", e.text);
        if (e.hint[0])
            fprintf(stderr, "  %s\n", e.hint);
    }
    return status_exit_code(rc);
}
