/* `hpctl doctor`: finds what keeps this box or the cluster from working. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/backend/choices.h"
#include "common/host_limits.h"
#include "hpctl/client.h"
#include "hpctl/gpu_look.h"
#include "hpctl/http_client.h"
#include "hpctl/reach.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"
#include "hpctl/waiting.h"

enum severity { FINE, WORTH_KNOWING, WRONG };

struct findings {
    json_t *list;
    int worst;
};

static void finding_add(struct findings *f, const char *check, enum severity verdict,
                        const char *text, const char *hint)
{
    static const char *const words[] = {"ok", "warning", "failed"};
    json_array_append_new(f->list, json_pack("{s:s, s:s, s:s, s:s}", "check", check, "state",
                                             words[verdict], "text", text, "hint", hint));
    if ((int)verdict > f->worst)
        f->worst = (int)verdict;
}

/* Kernels as a list of agent/backend/choices.h: one line each. Plain loops are slow. */
static void kernels_add(struct findings *f, const char *whose, const json_t *kernels)
{
    const json_t *k;
    size_t i;
    json_array_foreach(kernels, i, k)
    {
        const char *how = string_member(k, "how");
        bool slow = strcmp(how, "plain loops") == 0;
        finding_add(f, i ? shown_of("  %s", string_member(k, "what")).s : whose,
                    slow ? WORTH_KNOWING : FINE, shown_of("%s: %s", how, string_member(k, "why")).s,
                    slow ? "everything runs, slowly: give stages to boxes with newer processors"
                         : "");
    }
}

/* As an agent here would compute. */
static void check_processor(struct findings *f)
{
    struct device_config c = {.backend = "cpu", .n_threads = 1};
    struct device *d;
    struct err e = {0};
    if (device_open(&c, &d, &e) < 0) {
        finding_add(f, "processor", WRONG, e.text, e.hint);
        return;
    }
    json_t *kernels = device_choices_json(d);
    kernels_add(f, "processor", kernels);
    json_decref(kernels);
    device_close(&d);
}

/* As an agent or `hpctl serve` here would compute on one. */
static void check_gpu(struct findings *f)
{
    struct gpu_look look;
    gpu_look(&look);
    if (look.state == GPU_NONE)
        finding_add(f, "GPU", FINE,
                    "none that could compute: neither NVIDIA's driver nor libhp-cuda.so is here",
                    "");
    else if (look.state == GPU_USABLE)
        finding_add(f, "GPU", FINE,
                    shown_of("cuda:0 is %s, %s of its %s are free; libhp-cuda.so and the driver "
                             "work",
                             look.facts.name, shown_bytes((double)look.facts.free_bytes).s,
                             shown_bytes((double)look.facts.total_bytes).s)
                        .s,
                    "");
    else
        finding_add(f, "GPU", WORTH_KNOWING,
                    look.card[0] ? shown_of("%s is here: %s", look.card, look.why.text).s
                                 : look.why.text,
                    look.why.hint[0] ? look.why.hint : "models run on the CPU");
}

static void check_memory(struct findings *f)
{
    static struct host_limits limits;
    struct shown of_box = {""};
    host_limits_read("", &limits);
    double total = (double)limits.memory_bytes;
    uint64_t free_now = limits.memory_bytes;
    host_memory_free("", &free_now);
    if (limits.memory_group[0])
        of_box = shown_of(" of the box's %s (%s)", shown_bytes((double)limits.box_bytes).s,
                          limits.memory_group);
    finding_add(f, "memory", total < 1e9 ? WORTH_KNOWING : FINE,
                shown_of("%s%s, %s could be had now", shown_bytes(total).s, of_box.s,
                         shown_bytes((double)free_now).s)
                    .s,
                total < 1e9 ? "little for a model: deploy over several boxes" : "");
}

static void check_disk(struct findings *f)
{
    const char *home = getenv("HOME");
    struct statvfs s;
    if (!home || statvfs(home, &s) != 0) {
        finding_add(f, "disk", WORTH_KNOWING, "cannot tell the space below HOME",
                    "agents keep weights below --dir");
        return;
    }
    double room = (double)s.f_bavail * (double)s.f_frsize;
    finding_add(f, "disk", room < 2e9 ? WORTH_KNOWING : FINE,
                shown_of("%s free below %s", shown_bytes(room).s, home).s,
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
        finding_add(f, names[i], there ? FINE : WORTH_KNOWING,
                    there ? path : "does not lie beside hpctl",
                    there ? "" : "`make` builds all three programs");
    }
}

static void check_member(struct findings *f, const json_t *m)
{
    const char *state = string_member(m, "state"), *name = string_member(m, "name");
    bool ready = strcmp(state, "ready") == 0, draining = strcmp(state, "draining") == 0,
         same = strcmp(string_member(m, "program"), HP_VERSION) == 0;
    struct shown undrain = shown_of("`hpctl node undrain %s` gives it stages again", name);
    finding_add(f, shown_of("agent %s", name).s,
                !ready && !draining ? WRONG
                : same && ready     ? FINE
                                    : WORTH_KNOWING,
                shown_of("%s on %s, version %s", state, string_member(m, "hostname"),
                         string_member(m, "program"))
                    .s,
                draining ? undrain.s
                : !ready ? "is hp-agent running there? its log says more"
                : same   ? ""
                         : "run the same release everywhere");
}

/* Agents that compute alike are told of together. */
struct kernels_seen {
    json_t *kernels; /* of an agent's node */
    struct buffer names;
};

/* What computes on each agent: by name, agents with equal lists once. */
/* The same instructions, and all else goes the same way: what was found out by measuring has its
 * figures in `why`, which differ from agent to agent. */
static bool kernels_are_alike(const json_t *a, const json_t *b)
{
    bool alike = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; alike && i < json_array_size(a); i++) {
        const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
        alike = json_equal(json_object_get(x, "what"), json_object_get(y, "what")) &&
                json_equal(json_object_get(x, "how"), json_object_get(y, "how")) &&
                (i || json_equal(json_object_get(x, "why"), json_object_get(y, "why")));
    }
    return alike;
}

static void check_kernels(struct findings *f, struct client *client, const json_t *members)
{
    enum { KINDS_MAX = 16 };
    struct kernels_seen seen[KINDS_MAX] = {0};
    size_t n = 0, i, k;
    const json_t *m;
    json_array_foreach(members, i, m)
    {
        struct err e = {0};
        json_t *whole = NULL, *about = json_pack("{s:s}", "name", string_member(m, "name"));
        if (client_get(client, "node.describe", about, &whole, &e) < 0)
            continue;
        json_t *kernels = json_object_get(json_object_get(whole, "node"), "kernels");
        for (k = 0; k < n && !kernels_are_alike(seen[k].kernels, kernels); k++)
            ;
        if (json_array_size(kernels) && k < KINDS_MAX) {
            n += k == n;
            seen[k].kernels = seen[k].kernels ? seen[k].kernels : json_incref(kernels);
            buffer_printf(&seen[k].names, "%s%s", seen[k].names.size ? ", " : "kernels of ",
                          string_member(m, "name"));
        }
        json_decref(whole);
    }
    for (k = 0; k < n; k++) {
        kernels_add(f, shown_of("%s", buffer_cstr(&seen[k].names)).s, seen[k].kernels);
        json_decref(seen[k].kernels);
        buffer_free(&seen[k].names);
    }
}

static void check_members(struct findings *f, struct client *client)
{
    struct err e = {0};
    json_t *members = NULL, *m, *deployments = NULL, *d;
    size_t i;
    if (client_get(client, "node.ls", NULL, &members, &e) < 0) {
        finding_add(f, "agents", WRONG, e.text, e.hint);
        return;
    }
    json_array_foreach(members, i, m) check_member(f, m);
    if (json_array_size(members) == 0)
        finding_add(f, "agents", WORTH_KNOWING, "none has joined",
                    "`hpctl node token create` invites one");
    if (client_get(client, "deployment.ls", NULL, &deployments, &e) == 0)
        json_array_foreach(deployments, i, d)
        {
            bool serving = strcmp(string_member(d, "state"), "serving") == 0;
            finding_add(
                f, shown_of("deployment %s", string_member(d, "name")).s, serving ? FINE : WRONG,
                serving ? "serving"
                        : shown_of("%s: %s", string_member(d, "state"), string_member(d, "text")).s,
                serving ? "" : "`hpctl describe NAME` shows its stages");
        }
    check_kernels(f, client, members);
    json_decref(members);
    json_decref(deployments);
}

/* What works and is worse than usual: its cable, its WLAN, or who shares it. */
static void check_link(struct findings *f, const json_t *l)
{
    double late_s = number_member(l, "late_s"), loss = number_member(l, "loss");
    const struct shown pair =
        shown_of("%s to %s", string_member(l, "from"), string_member(l, "to"));
    if (loss > 0)
        finding_add(f, pair.s, WORTH_KNOWING,
                    shown_of("loses %.2g %% of its packets", 100 * loss).s,
                    "look at its cable or WLAN; `hpctl rebalance --dry-run` says what plans make "
                    "of it");
    if (late_s > 0)
        finding_add(f, pair.s, WORTH_KNOWING,
                    shown_of("frames come %s later than usual", shown_seconds(late_s).s).s,
                    "`hpctl topo --measure` measures it anew");
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
    json_array_foreach(bad, i, l) finding_add(
        f, shown_of("%s to %s", string_member(l, "from"), string_member(l, "to")).s, WRONG,
        shown_of("cannot talk to %s: %s", string_member(l, "address"), string_member(l, "why")).s,
        "let that port in (hp-agent --data-port fixes it), or join with another --network");
    json_array_foreach(json_object_get(cluster, "links"), i, l) check_link(f, l);
    if (json_array_size(json_object_get(cluster, "links")) && !json_array_size(bad))
        finding_add(f, "data channel", FINE, "agents that were tried reach each other", "");
    json_decref(cluster);
}

static void check_api(struct findings *f, const struct context *c)
{
    struct err e = {0};
    if (strcmp(reach_of_url(c->http), "none") == 0)
        return;
    int rc = http_answers(c, &e);
    finding_add(f, "HTTP API", rc < 0 ? WRONG : FINE, rc < 0 ? e.text : "answers", e.hint);
}

static void check_cluster(struct findings *f, const char *name)
{
    struct context c;
    struct err e = {0};
    struct client *client;
    if (context_load(name, &c, &e) < 0) {
        finding_add(f, "context", WORTH_KNOWING, e.text, e.hint);
        return;
    }
    finding_add(f, "context", FINE,
                shown_of("%s: coordinator at %s, API at %s", c.name, c.control, c.http).s, "");
    if (client_open_at(&c, 3000, &client, &e) < 0) {
        finding_add(f, "coordinator", WRONG, e.text, e.hint);
        return;
    }
    finding_add(f, "coordinator", FINE, "answers", "");
    check_api(f, &c);
    check_members(f, client);
    check_links(f, client);
    client_close(&client);
}

static void cell_state(struct buffer *cell, const json_t *state)
{
    const char *word = json_string_value(state);
    buffer_printf(cell, "%s",
                  strcmp(word, "ok") == 0        ? "✓"
                  : strcmp(word, "warning") == 0 ? "!"
                                                 : "✗");
}

static int run_doctor(struct invocation *in, struct err *e)
{
    static const struct table_column columns[] = {{"", "state", cell_state},
                                                  {"~CHECK", "check", NULL},
                                                  {"~WHAT", "text", NULL},
                                                  {"~DO", "hint", NULL},
                                                  {0}};
    struct findings f = {.list = json_array()};
    struct waiting *w = waiting_begin("looking", 0, in->json);
    check_processor(&f);
    check_gpu(&f);
    check_memory(&f);
    check_disk(&f);
    check_programs(&f);
    check_cluster(&f, invocation_option(in, "context"));
    waiting_end(&w);
    int worst = f.worst;
    if (in->json) {
        int rc = invocation_print_json(in, f.list, e);
        in->told = rc == 0;
        return rc < 0 || worst < (int)WRONG
                   ? rc
                   : err_set(e, HP_EIO, "something is wrong: see the checks that failed");
    }
    int rc = table_print_list(columns, f.list, NULL, e);
    json_decref(f.list);
    if (rc < 0)
        return rc;
    return worst < (int)WRONG ? 0
                              : err_set(e, HP_EIO, "something is wrong: see the lines marked ✗");
}

static const struct command_option doctor_options[] = {
    {"context", "NAME", "of the cluster (default: the current one)", 0}, {0}};

const struct command doctor_verbs[] = {
    {"doctor", "", 0, 0, "find what keeps this box or the cluster from working",
     "Exit code 1 when something is wrong.", "  hpctl doctor\n  hpctl doctor -o json",
     doctor_options, run_doctor, false},
    {0},
};
