/* `hpctl cluster init` and `hpctl doctor`: begin a cluster, and find what keeps one from working.
 */
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hpctl/client.h"
#include "hpctl/http_client.h"
#include "hpctl/reach.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"
#include "transport/data_choice.h"

/* ---- cluster init
 * -------------------------------------------------------------------------------------------------------------------------
 */

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
    char dir[1024], file[1100], http[200];
    const char *asked = invocation_option(in, "dir"),
               *name = invocation_option_or(in, "name", "home");
    const char *listen = invocation_option_or(in, "listen", "127.0.0.1:7070"),
               *api = invocation_option_or(in, "http", "127.0.0.1:8080");
    struct data_policy data;
    int rc = context_check_name(name, e);
    rc = rc < 0 ? rc
                : data_policy_set(&data, invocation_option(in, "data"),
                                  invocation_option(in, "trust"), e);
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
    if ((rc = run_coordinator_init(dir, e)) < 0)
        return rc;
    snprintf(c.name, sizeof c.name, "%s", name);
    snprintf(c.listen, sizeof c.listen, "%s", listen);
    snprintf(c.data, sizeof c.data, "%s", data.mode);
    snprintf(c.trust, sizeof c.trust, "%s", data.trust);
    snprintf(c.http_listen, sizeof c.http_listen, "%s", api);
    reach_from_here(listen, c.control, sizeof c.control);
    reach_from_here(api, http, sizeof http);
    snprintf(c.http, sizeof c.http, "http://%s", http);
    snprintf(file, sizeof file, "%s/server.key", dir);
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
    printf("\nthen invite the other boxes:\n  hpctl node token create\n");
    return 0;
}

/* ---- doctor
 * -----------------------------------------------------------------------------------------------------------------------------------
 */

enum verdict { FINE, WORTH_KNOWING, WRONG };

struct findings {
    json_t *list;
    int worst;
};

static void find(struct findings *f, const char *check, enum verdict verdict, const char *text,
                 const char *hint)
{
    static const char *const words[] = {"ok", "warning", "failed"};
    json_array_append_new(f->list, json_pack("{s:s, s:s, s:s, s:s}", "check", check, "state",
                                             words[verdict], "text", text, "hint", hint));
    if ((int)verdict > f->worst)
        f->worst = (int)verdict;
}

static void check_processor(struct findings *f)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
        unsigned a = 0, b = 0, c = 0, d = 0;
        bool bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5));
        find(f, "processor", FINE,
             bf16 ? "AVX-512 with bf16: the fastest kernels"
                  : "AVX-512 without bf16: matrix products in float32",
             "");
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        find(f, "processor", FINE, "AVX2: vector kernels, matrix products in float32", "");
    } else {
        find(f, "processor", WORTH_KNOWING, "neither AVX2 nor AVX-512: everything runs, slowly",
             "give stages to boxes with newer processors");
    }
}

static void check_memory(struct findings *f)
{
    double total = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE),
           free_now = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    find(f, "memory", total < 1e9 ? WORTH_KNOWING : FINE,
         text_format("%s, %s unused now", text_bytes(total), text_bytes(free_now)),
         total < 1e9 ? "little for a model: deploy over several boxes" : "");
}

static void check_disk(struct findings *f)
{
    const char *home = getenv("HOME");
    struct statvfs s;
    if (!home || statvfs(home, &s) != 0) {
        find(f, "disk", WORTH_KNOWING, "cannot tell the space below HOME",
             "agents keep weights below --dir");
        return;
    }
    double room = (double)s.f_bavail * (double)s.f_frsize;
    find(f, "disk", room < 2e9 ? WORTH_KNOWING : FINE,
         text_format("%s free below %s", text_bytes(room), home),
         room < 2e9 ? "agents keep weights below --dir: put that on a larger disk" : "");
}

static void check_programs(struct findings *f)
{
    char self[2048], path[2200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    static const char *const names[] = {"hp-agent", "hp-coordinator"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%.*s/%s", slash ? (int)(slash - self) : 0, self, names[i]);
        bool there = access(path, X_OK) == 0;
        find(f, names[i], there ? FINE : WORTH_KNOWING, there ? path : "does not lie beside hpctl",
             there ? "" : "`make` builds all three programs");
    }
}

static void check_members(struct findings *f, struct client *client)
{
    struct err e = {0};
    json_t *members = NULL, *m, *deployments = NULL, *d;
    size_t i;
    if (client_get(client, "node.ls", NULL, &members, &e) < 0) {
        find(f, "agents", WRONG, e.text, e.hint);
        return;
    }
    json_array_foreach(members, i, m)
    {
        bool ready = strcmp(text_member(m, "state"), "ready") == 0,
             same = strcmp(text_member(m, "program"), HP_VERSION) == 0;
        find(f, text_format("agent %s", text_member(m, "name")),
             !ready ? WRONG
             : same ? FINE
                    : WORTH_KNOWING,
             text_format("%s on %s, version %s", text_member(m, "state"),
                         text_member(m, "hostname"), text_member(m, "program")),
             !ready ? "is hp-agent running there? its log says more"
             : same ? ""
                    : "run the same release everywhere");
    }
    if (json_array_size(members) == 0)
        find(f, "agents", WORTH_KNOWING, "none has joined",
             "`hpctl node token create` invites one");
    if (client_get(client, "deployment.ls", NULL, &deployments, &e) == 0)
        json_array_foreach(deployments, i, d)
        {
            bool serving = strcmp(text_member(d, "state"), "serving") == 0;
            find(f, text_format("deployment %s", text_member(d, "name")), serving ? FINE : WRONG,
                 serving ? "serving"
                         : text_format("%s: %s", text_member(d, "state"), text_member(d, "text")),
                 serving ? "" : "`hpctl describe NAME` shows its stages");
        }
    json_decref(members);
    json_decref(deployments);
}

/* Pairs of agents whose data channel does not work, though both reach the coordinator: a firewall,
 * or a WLAN that isolates its clients. */
static void check_links(struct findings *f, struct client *client)
{
    struct err e = {0};
    json_t *cluster = NULL, *l;
    size_t i;
    if (client_get(client, "topo", NULL, &cluster, &e) < 0)
        return;
    const json_t *bad = json_object_get(cluster, "unreachable");
    json_array_foreach(bad, i, l)
        find(f, text_format("%s to %s", text_member(l, "from"), text_member(l, "to")), WRONG,
             text_format("cannot talk to %s: %s", text_member(l, "address"), text_member(l, "why")),
             "let that port in (hp-agent --data-port fixes it), or join with another --network");
    if (json_array_size(json_object_get(cluster, "links")) && !json_array_size(bad))
        find(f, "data channel", FINE, "agents that were tried reach each other", "");
    json_decref(cluster);
}

static void check_api(struct findings *f, const struct context *c)
{
    struct err e = {0};
    if (strcmp(c->http, "http://none") == 0)
        return;
    int rc = http_answers(c, &e);
    find(f, "HTTP API", rc < 0 ? WRONG : FINE, rc < 0 ? e.text : "answers", e.hint);
}

static void check_cluster(struct findings *f, const char *name)
{
    struct context c;
    struct err e = {0};
    struct client *client;
    if (context_load(name, &c, &e) < 0) {
        find(f, "context", WORTH_KNOWING, e.text, e.hint);
        return;
    }
    find(f, "context", FINE,
         text_format("%s: coordinator at %s, API at %s", c.name, c.control, c.http), "");
    if (client_open_at(&c, 3000, &client, &e) < 0) {
        find(f, "coordinator", WRONG, e.text, e.hint);
        return;
    }
    find(f, "coordinator", FINE, "answers", "");
    check_api(f, &c);
    check_members(f, client);
    check_links(f, client);
    client_close(&client);
}

static int run_doctor(struct invocation *in, struct err *e)
{
    static const char *const columns[] = {"", "CHECK", "WHAT", "DO", NULL};
    struct findings f = {.list = json_array()};
    json_t *row;
    size_t i;
    check_processor(&f);
    check_memory(&f);
    check_disk(&f);
    check_programs(&f);
    check_cluster(&f, invocation_option(in, "context"));
    int worst = f.worst;
    if (in->json) {
        int rc = invocation_print_json(in, f.list, e);
        return rc < 0 || worst < (int)WRONG
                   ? rc
                   : err_set(e, HP_EIO, "something is wrong: see the checks that failed");
    }
    struct table *t = table_create(columns);
    json_array_foreach(f.list, i, row)
    {
        const char *state = text_member(row, "state");
        const char *cells[] = {strcmp(state, "ok") == 0        ? "✓"
                               : strcmp(state, "warning") == 0 ? "!"
                                                               : "✗",
                               text_member(row, "check"), text_member(row, "text"),
                               text_member(row, "hint")};
        table_row(t, cells);
    }
    table_print(&t, NULL);
    json_decref(f.list);
    return worst < (int)WRONG ? 0
                              : err_set(e, HP_EIO, "something is wrong: see the lines marked ✗");
}

static const struct command_option init_options[] = {
    {"name", "N", "of the cluster and its context (default: home)", 0},
    {"dir", "D", "where the coordinator keeps its state", 0},
    {"listen", "ADDR:PORT",
     "control channel for agents and hpctl (default 127.0.0.1:7070; 0.0.0.0:7070 for other boxes)",
     0},
    {"http", "ADDR:PORT", "OpenAI API (default 127.0.0.1:8080)", 0},
    {"data", "auto|ucx|tcp",
     "data channel between agents; auto: UCX on loopback and trusted networks, encrypted TCP "
     "elsewhere",
     0},
    {"trust", "CIDR,...",
     "networks on which everybody is trusted, such as 10.1.0.0/16: traffic there is not encrypted",
     0},
    {0},
};
static const struct command_option doctor_options[] = {
    {"context", "NAME", "of the cluster (default: the current one)", 0}, {0}};

const struct command doctor_verbs[] = {
    {"cluster init", "", 0, 0, "make the keys of a cluster whose coordinator runs on this box",
     NULL,
     "  hpctl cluster init\n  hpctl cluster init --name office --listen 0.0.0.0:7070 --http "
     "0.0.0.0:8080\n  hpctl cluster init --listen 0.0.0.0:7070 --trust 10.1.0.0/16",
     init_options, run_init, false},
    {"doctor", "", 0, 0, "find what keeps this box or the cluster from working",
     "Exit code 1 when something is wrong.", "  hpctl doctor\n  hpctl doctor -o json",
     doctor_options, run_doctor, false},
    {0},
};
