/* hp-coordinator: one process a cluster. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/descriptors.h"
#include "common/heap.h"
#include "common/host_address.h"
#include "common/log.h"
#include "common/units.h"
#include "coordinator/coordinator.h"
#include "coordinator/gateway/gateway.h"
#include "coordinator/gateway/origin.h"

enum { DRAIN_SECONDS = 5 };
static const uint64_t MAX_BODY_BYTES = 1ull << 30;

static const char help[] =
    "hp-coordinator: knows the agents of a cluster, places models on them, and serves the OpenAI "
    "API\n"
    "\n"
    "usage: hp-coordinator [options]\n"
    "\n"
    "  --dir D             state: keys, store, heads of models (default: "
    "$XDG_STATE_HOME/hodgepodge/coordinator)\n"
    "  --listen ADDR:PORT  control channel for agents and hpctl (default: 127.0.0.1:7070; port 0: "
    "any free one)\n"
    "  --http ADDR:PORT    OpenAI API (default: 127.0.0.1:8080; port 0: any free one; none: no "
    "API).\n"
    "                      Beyond loopback it waits for the first API key\n"
    "  --grpc ADDR:PORT    KServe's v2 protocol over gRPC, too (default: none; a PORT alone: on "
    "127.0.0.1).\n"
    "                      Beyond loopback it waits for the first API key. Not encrypted: with "
    "--http-cert on loopback alone\n"
    "  --http-host NAME    on loopback: another name under which the API is spoken to, beside "
    "localhost and 127.0.0.1;\n"
    "                      pages of that host may use it as well. May be given several times\n"
    "  --http-origin ORIGIN  pages of this origin (https://app.example) may use the API from\n"
    "                      browsers (CORS); may be given more than once\n"
    "  --http-cert F, --http-key F   PEM files of a certificate and its key: the API speaks HTTPS "
    "alone; read again when they change\n"
    "  --http-open         on loopback: no key is needed, although there are some\n"
    "  --http-max-body B   largest request body: " UNITS_BYTES_HELP "\n"
    "                      (default: 8 MiB, or 16 bytes a token of the longest context)\n"
    "  --drain-seconds S   after SIGTERM, running requests may go on for so long (default: 5); a "
    "second signal ends at once\n"
    "  --resume-seconds S  so long requests with an Idempotency-Key go on without a reader, their "
    "answers are kept,\n"
    "                      and agents go on without a coordinator (default: 120; at most 3600)\n"
    "  --name N            name of the cluster (default: hodgepodge)\n"
    "  --data KIND         data channel of the agents: auto (default): UCX on loopback and on "
    "trusted networks, encrypted TCP\n"
    "                      elsewhere; ucx; tcp\n"
    "  --trust CIDR,...    networks on which everybody is trusted, such as 10.1.0.0/16: what "
    "crosses them is not encrypted\n"
    "  --init              make folder and keys, and end\n"
    "  --version, --help\n"
    "\n"
    "It writes DIR/coordinator.json with the addresses that it got, and DIR/admin.key, the key "
    "that hpctl needs.\n"
    "\n"
    "examples:\n"
    "  hp-coordinator --listen 0.0.0.0:7070\n"
    "  hp-coordinator --dir /tmp/try --listen 127.0.0.1:0 --http 127.0.0.1:0\n";

struct program_options {
    struct coordinator_config config;
    char dir[1024], grpc[80];
    const char *hosts[GATEWAY_MAX_HOSTS], *origins[GATEWAY_MAX_HOSTS];
    uint64_t drain_s;
    bool init, done;
};

static void dir_default(char *out, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state)
        snprintf(out, size, "%s/hodgepodge/coordinator", state);
    else
        snprintf(out, size, "%s/.local/state/hodgepodge/coordinator",
                 home && *home ? home : "/var/lib");
}

static int number_read(const char *name, const char *text, uint64_t max, uint64_t *out,
                       struct err *e)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || v > max)
        return err_set(e, HP_EUSAGE, "--%s: \"%s\" is not a whole number up to %llu", name, text,
                       (unsigned long long)max);
    *out = v;
    return 0;
}

static int size_read(const char *name, const char *text, uint64_t max, uint64_t *out, struct err *e)
{
    if (strcmp(text, "0") == 0) {
        *out = 0;
        return 0;
    }
    if (!units_bytes_parse(text, out) || *out > max)
        return err_set(e, HP_EUSAGE,
                       "--%s: \"%s\" is not a size such as " UNITS_BYTES_HELP ", up to %llu", name,
                       text, (unsigned long long)max);
    return 0;
}

static int host_add(struct program_options *o, const char *name, struct err *e)
{
    if (o->config.n_http_hosts == GATEWAY_MAX_HOSTS)
        return err_set(e, HP_EUSAGE, "--http-host may be given %d times", GATEWAY_MAX_HOSTS);
    if (!host_is_name(name))
        return err_set(e, HP_EUSAGE,
                       "--http-host \"%.100s\" is not the name of a host such as api.example, "
                       "without http:// and without a port",
                       name);
    o->hosts[o->config.n_http_hosts++] = name;
    o->config.http_hosts = o->hosts;
    return 0;
}

static int origin_add(struct program_options *o, const char *origin, struct err *e)
{
    if (o->config.n_http_origins == GATEWAY_MAX_HOSTS)
        return err_set(e, HP_EUSAGE, "--http-origin may be given %d times", GATEWAY_MAX_HOSTS);
    if (!origin_is_whole(origin))
        return err_set(e, HP_EUSAGE,
                       "--http-origin \"%.100s\" is no origin of pages such as "
                       "https://app.example or http://10.0.0.5:3000, without a path",
                       origin);
    o->origins[o->config.n_http_origins++] = origin;
    o->config.http_origins = o->origins;
    return 0;
}

static const struct option option_table[] = {{"dir", required_argument, NULL, 'd'},
                                             {"listen", required_argument, NULL, 'l'},
                                             {"http", required_argument, NULL, 'h'},
                                             {"grpc", required_argument, NULL, 'G'},
                                             {"name", required_argument, NULL, 'n'},
                                             {"init", no_argument, NULL, 'i'},
                                             {"help", no_argument, NULL, 'H'},
                                             {"version", no_argument, NULL, 'V'},
                                             {"http-host", required_argument, NULL, 'o'},
                                             {"http-origin", required_argument, NULL, 'g'},
                                             {"http-open", no_argument, NULL, 'O'},
                                             {"http-cert", required_argument, NULL, 'C'},
                                             {"http-key", required_argument, NULL, 'K'},
                                             {"http-max-body", required_argument, NULL, 'b'},
                                             {"drain-seconds", required_argument, NULL, 'D'},
                                             {"resume-seconds", required_argument, NULL, 'R'},
                                             {"data", required_argument, NULL, 'c'},
                                             {"trust", required_argument, NULL, 'T'},
                                             {0}};

/* Options of the API that do not go without each other. */
static int api_check(const struct coordinator_config *c, struct err *e)
{
    if (c->grpc && strcmp(c->http, "none") == 0)
        return err_set(e, HP_EUSAGE, "--grpc is part of the API that --http none leaves out");
    if (!c->http_certificate != !c->http_key)
        return err_set(e, HP_EUSAGE,
                       "--http-cert and --http-key go together: a certificate and its key");
    return 0;
}

static int options_read(int argc, char **argv, struct program_options *o, struct err *e)
{
    const char *data = NULL, *trust = NULL;
    dir_default(o->dir, sizeof o->dir);
    o->config = (struct coordinator_config){
        .dir = o->dir, .listen = "127.0.0.1:7070", .http = "127.0.0.1:8080", .name = "hodgepodge"};
    o->drain_s = DRAIN_SECONDS;
    opterr = 0;
    int rc = 0;
    for (int c; rc == 0 && (c = getopt_long(argc, argv, "", option_table, NULL)) != -1;) {
        switch (c) {
        case 'd': o->config.dir = optarg; break;
        case 'l': o->config.listen = optarg; break;
        case 'h': o->config.http = optarg; break;
        case 'G':
            snprintf(o->grpc, sizeof o->grpc, "%s%s",
                     strchr(optarg, ':') ? "" : "127.0.0.1:", optarg);
            o->config.grpc = strcmp(optarg, "none") == 0 ? NULL : o->grpc;
            break;
        case 'n': o->config.name = optarg; break;
        case 'c': data = optarg; break;
        case 'T': trust = optarg; break;
        case 'i': o->init = true; break;
        case 'O': o->config.http_open = true; break;
        case 'C': o->config.http_certificate = optarg; break;
        case 'K': o->config.http_key = optarg; break;
        case 'o': rc = host_add(o, optarg, e); break;
        case 'g': rc = origin_add(o, optarg, e); break;
        case 'b':
            rc = size_read("http-max-body", optarg, MAX_BODY_BYTES, &o->config.http_max_body_bytes,
                           e);
            break;
        case 'D': rc = number_read("drain-seconds", optarg, 86400, &o->drain_s, e); break;
        case 'R':
            rc = number_read("resume-seconds", optarg, 3600, &o->config.resume_ms, e);
            o->config.resume_ms *= 1000;
            break;
        case 'H':
            fputs(help, stdout);
            o->done = true;
            return 0;
        case 'V':
            puts("hp-coordinator " HP_VERSION);
            o->done = true;
            return 0;
        default:
            return err_set(e, HP_EUSAGE,
                           "%s: unknown option, or one without its value; --help lists them",
                           argv[optind - 1]);
        }
    }
    if (rc < 0)
        return rc;
    if (optind < argc)
        return err_set(e, HP_EUSAGE, "%s: hp-coordinator takes options only; --help lists them",
                       argv[optind]);
    rc = api_check(&o->config, e);
    return rc < 0 ? rc : data_policy_set(&o->config.data, data, trust, e);
}

struct service {
    uv_loop_t loop;
    struct coordinator *coordinator;
    uint64_t drain_s;
    bool stopping;
};

static void on_drained(void *ctx)
{
    struct service *s = ctx;
    uv_stop(&s->loop);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct service *s = signal->data;
    log_info("coordinator", "stopping", "signal=%d", number);
    if (s->stopping)
        uv_stop(&s->loop);
    else
        coordinator_drain(s->coordinator, s->drain_s * 1000, on_drained, s);
    s->stopping = true;
}

static void signals_start(struct service *s, uv_signal_t signals[2])
{
    static const int numbers[2] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        uv_signal_init(&s->loop, &signals[i]);
        signals[i].data = s;
        uv_signal_start(&signals[i], on_signal, numbers[i]);
    }
}

static int coordinator_serve(const struct program_options *o, struct err *e)
{
    struct service s = {.drain_s = o->drain_s};
    uv_signal_t signals[2];
    int rc = descriptors_raise(e); /* every connection takes one */
    if (rc < 0)
        return rc;
    uv_loop_init(&s.loop);
    rc = coordinator_open(&s.loop, &o->config, &s.coordinator, e);
    if (rc == 0) {
        signals_start(&s, signals);
        uv_run(&s.loop, UV_RUN_DEFAULT);
        coordinator_close(&s.coordinator);
        for (int i = 0; i < 2; i++)
            uv_close((uv_handle_t *)&signals[i], NULL);
    }
    uv_run(&s.loop, UV_RUN_DEFAULT); /* until every handle is closed */
    uv_loop_close(&s.loop);
    return rc;
}

int main(int argc, char **argv)
{
    struct program_options o = {0};
    struct err e = {0};
    heap_return_large();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a failed write, not the end */
    int rc = options_read(argc, argv, &o, &e);
    if (rc == 0 && !o.done)
        rc = o.init ? coordinator_init(o.config.dir, &e) : coordinator_serve(&o, &e);
    if (rc < 0) {
        fprintf(stderr, "hp-coordinator: %s\n", e.text);
        if (e.hint[0])
            fprintf(stderr, "  %s\n", e.hint);
    }
    return status_exit_code(rc);
}
