/* `hpctl node|profile|weights|logs|version`: the cluster itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "hpctl/ask.h"
#include "hpctl/client.h"
#include "hpctl/local_process.h"
#include "hpctl/node_view.h"
#include "hpctl/reach.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"
#include "hpctl/watched.h"

/* ---- lists ---- */

static void cell_host(struct buffer *cell, const json_t *node)
{
    const char *also = json_string_value(json_object_get(node, "key_also_on"));
    buffer_printf(cell, "%s", string_member(node, "hostname"));
    if (also)
        buffer_printf(cell, " (its key also on %s)", also);
}

/* "2 x Xeon-8c8t", or the kinds of unequal devices in a row. */
static void cell_devices(struct buffer *cell, const json_t *devices)
{
    const json_t *first = json_array_get(devices, 0), *d;
    size_t i, same = 0;
    json_array_foreach(devices, i, d) same +=
        strcmp(string_member(d, "kind"), string_member(first, "kind")) == 0;
    if (same == json_array_size(devices) && same > 1) {
        buffer_printf(cell, "%zu x %s", same, string_member(first, "kind"));
        return;
    }
    json_array_foreach(devices, i, d)
        buffer_printf(cell, "%s%s", i ? ", " : "", string_member(d, "kind"));
}

/* "1 MB of 4 MB, 0 B of 1 GB": in memory and on disk, of what it may. */
static void cell_spills(struct buffer *cell, const json_t *spill)
{
    static const char *const names[][2] = {{"memory_bytes", "memory_limit_bytes"},
                                           {"disk_bytes", "disk_limit_bytes"}};
    for (int i = 0; spill && i < 2; i++)
        buffer_printf(cell, "%s%s of %s", i ? ", " : "",
                      shown_bytes(number_member(spill, names[i][0])).s,
                      shown_bytes(number_member(spill, names[i][1])).s);
    if (!spill)
        buffer_printf(cell, "-");
}

static const struct table_column node_columns[] = {
    {"NAME", "name", NULL},
    {"STATE", "state", NULL},
    {"HOST", NULL, cell_host},
    {"DEVICE", "devices", cell_devices},
    {">MEMORY", "memory_bytes", cell_bytes},
    {">FREE", "memory_free_bytes", cell_bytes},
    {">STAGES", "stages", cell_count},
    {"KV SPILLED", "kv_spill", cell_spills},
    {">HEARD", "heard_s", cell_seconds},
    {"VERSION", "program", NULL},
    {0},
};
static const struct table_column profile_columns[] = {
    {"MODEL", "model", cell_id},
    {"NAME", "name", NULL},
    {"DEVICE", "kind", NULL},
    {"COMPUTE", "compute", NULL},
    {">CLASSES", "classes", NULL},
    {"CORRECTED", "corrected", NULL},
    {0},
};
static const struct table_column token_columns[] = {
    {"DIGEST", "digest", cell_id},
    {"EXPIRES", "expires_s", cell_date},
    {"USED BY", "used_by", NULL},
    {0},
};
/* A model by each of the agents that hold bytes of it. */
static int print_weights(const struct invocation *in, const json_t *models, struct err *e)
{
    static const struct table_column columns[] = {{"MODEL", NULL, NULL},  {"NAME", NULL, NULL},
                                                  {"AGENT", NULL, NULL},  {">HELD", NULL, NULL},
                                                  {"IN USE", NULL, NULL}, {0}};
    struct table *t = table_create(columns);
    json_t *m, *holder;
    size_t i, k;
    (void)in;
    json_array_foreach(models, i, m)
    {
        json_array_foreach(json_object_get(m, "agents"), k, holder)
        {
            table_cell(t, "%.16s", string_member(m, "model"));
            table_cell(t, "%s", string_member(m, "name"));
            table_cell(t, "%s", string_member(holder, "agent"));
            table_cell(t, "%s", shown_bytes(number_member(holder, "bytes")).s);
            table_cell(t, "%s", shown_member(m, "in_use").s);
        }
    }
    return table_print(&t, "no agent holds weights", e);
}

/* ---- one thing ---- */

static int print_node(const struct invocation *in, const json_t *node, struct err *e)
{
    struct buffer text = {0};
    (void)in;
    int rc = node_view_write(node, &text, e);
    if (rc == 0)
        fputs(buffer_cstr(&text), stdout);
    buffer_free(&text);
    return rc;
}

static int print_removed(const struct invocation *in, const json_t *gone, struct err *e)
{
    (void)in;
    (void)e;
    printf("%s dropped: the next deployment measures anew\n", shown_member(gone, "removed").s);
    return 0;
}

static int print_log(const struct invocation *in, const json_t *o, struct err *e)
{
    const char *text = string_member(o, "text");
    struct buffer lines = {0};
    (void)in;
    (void)e;
    shown_harmless(text, strlen(text), &lines);
    printf("%s%s", buffer_cstr(&lines), *text && text[strlen(text) - 1] != '\n' ? "\n" : "");
    buffer_free(&lines);
    return 0;
}

/* ---- options ---- */

static int options_drain(const struct invocation *in, json_t *question, struct err *e)
{
    return ask_option(question, "force", json_boolean(invocation_flag(in, "force")), e);
}

static int options_profile_rm(const struct invocation *in, json_t *question, struct err *e)
{
    return ask_option(question, "kind", json_string(invocation_option_or(in, "kind", "")), e);
}

static int options_logs(const struct invocation *in, json_t *question, struct err *e)
{
    uint64_t lines;
    int rc = invocation_u64(in, "lines", 100, &lines, e);
    return rc == 0 ? ask_option(question, "lines", json_integer((json_int_t)lines), e) : rc;
}

static const struct ask_verb asks[] = {
    {"node ls", "node.ls", .columns = node_columns,
     .said = "no agent has joined; `hpctl node token create` invites one"},
    {"node describe", "node.describe", "name", .print = print_node},
    {"node drain", "node.drain", "name", options_drain,
     .said = "takes no new stages; deployments move away from it"},
    {"node undrain", "node.undrain", "name", .said = "takes stages again"},
    {"node rm", "node.rm", "name", .said = "is forgotten: it needs a new token to join"},
    {"node token ls", "token.ls", .columns = token_columns, .said = "no token is out"},
    {"profile ls", "profile.ls", .columns = profile_columns, .said = "nothing has been measured"},
    {"profile rm", "profile.rm", "model", options_profile_rm, .print = print_removed},
    {"weights ls", "weights.ls", .print = print_weights},
    {"weights rm", "weights.rm", "model", .said = "is removed from the agents' stores"},
    {"logs", "logs", "node", options_logs, .print = print_log},
    {0},
};

static int run_ask(struct invocation *in, struct err *e)
{
    return ask_verb_run(asks, in, e);
}

/* ---- what takes more than a question ---- */

enum { FOLLOW_MS = 1000 };

/* What of a log stands behind the line that was shown last: all of it where that has gone. */
static const char *log_rest(const char *text, const char *last)
{
    const char *rest = text;
    size_t n = strlen(last);
    for (const char *at = text; n && (at = strstr(at, last)); at++)
        if ((at == text || at[-1] == '\n') && (at[n] == '\n' || !at[n]))
            rest = at + n + (at[n] == '\n');
    return rest;
}

/* The last line of a text, without its end. */
static void log_last(const char *text, struct buffer *last)
{
    size_t end = strlen(text), from;
    while (end && text[end - 1] == '\n')
        end--;
    for (from = end; from && text[from - 1] != '\n';)
        from--;
    if (end > from) {
        last->size = 0;
        buffer_append(last, text + from, end - from);
    }
}

static int log_show(const struct invocation *in, const char *text, struct err *e)
{
    json_t *o = json_pack("{s:s, s:o}", "node", in->arguments[0], "text", json_text(text));
    int rc = in->json ? invocation_print_json(in, json_incref(o), e) : print_log(in, o, e);
    json_decref(o);
    if (rc == 0 && fflush(stdout) != 0)
        rc = err_set(e, HP_EIO, "nobody reads what is shown");
    return rc;
}

/* The log so far, then what is added to it. */
static int log_follow(const struct invocation *in, struct err *e)
{
    struct buffer last = {0};
    int rc = 0;
    for (bool first = true; rc == 0; first = false) {
        json_t *answer = NULL, *question = json_pack("{s:s}", "node", in->arguments[0]);
        rc = question ? options_logs(in, question, e)
                      : err_set(e, HP_EINVAL, "\"%s\" is not valid UTF-8", in->arguments[0]);
        if (rc < 0)
            json_decref(question);
        else
            rc = client_get_once(invocation_option(in, "context"), "logs", question, &answer, e);
        const char *rest =
            rc == 0 ? log_rest(string_member(answer, "text"), buffer_cstr(&last)) : "";
        if (rc == 0 && (*rest || first))
            rc = log_show(in, rest, e);
        log_last(rest, &last);
        json_decref(answer);
        if (rc == 0)
            local_pause_ms(FOLLOW_MS);
    }
    buffer_free(&last);
    return rc;
}

static int run_logs(struct invocation *in, struct err *e)
{
    return invocation_flag(in, "follow") ? log_follow(in, e) : run_ask(in, e);
}

/* How an agent of another box names the coordinator, and what stands in its way. */
static void print_invitation(const struct context *c, const char *token, double hours)
{
    char hosts[REACH_MAX_HOSTS][REACH_HOST];
    int n = reach_hosts(c->listen[0] ? c->listen : c->control, hosts, REACH_MAX_HOSTS);
    const char *port = strrchr(c->listen[0] ? c->listen : c->control, ':');
    printf("%s\n", token);
    fprintf(stderr, "good for one agent, %.3g hours. On the other box:\n", hours);
    for (int i = 0; i < n; i++)
        fprintf(stderr, "%s  hp-agent --join %s%s --token %s\n",
                i ? "or, where that address is not reachable:\n" : "", hosts[i], port ? port : "",
                token);
    if (n > 0 && reach_is_loopback(hosts[0]))
        fprintf(stderr,
                "that address is this box alone: for agents of other boxes start hp-coordinator "
                "with --listen 0.0.0.0%s\n",
                port ? port : ":7070");
}

static int run_token_create(struct invocation *in, struct err *e)
{
    json_t *made = NULL;
    struct context c;
    double hours;
    int rc = invocation_number(in, "ttl-hours", 24, &hours, e);
    if (rc == 0 && (hours <= 0 || hours > 24 * 365))
        rc = err_set(e, HP_EUSAGE, "--ttl-hours is above 0 and at most a year");
    if (rc < 0 || (rc = context_load(invocation_option(in, "context"), &c, e)) < 0 ||
        (rc = client_get_once(invocation_option(in, "context"), "token.create",
                              json_pack("{s:I}", "ttl_s", (json_int_t)(hours * 3600)), &made, e)) <
            0)
        return rc;
    if (in->json) {
        json_object_set_new(made, "join", reach_addresses(c.listen[0] ? c.listen : c.control));
        return invocation_print_json(in, made, e);
    }
    print_invitation(&c, string_member(made, "token"), hours);
    json_decref(made);
    return 0;
}

static int run_version(struct invocation *in, struct err *e)
{
    struct err why = {0};
    json_t *answer = NULL;
    int rc = client_get_once(invocation_option(in, "context"), "version", NULL, &answer, &why);
    const char *coordinator = rc == 0 ? string_member(answer, "version") : NULL;
    json_t *o = json_pack("{s:s, s:s?}", "hpctl", HP_VERSION, "coordinator", coordinator);
    json_decref(answer);
    if (in->json)
        return invocation_print_json(in, o, e);
    printf("hpctl %s\n", HP_VERSION);
    if (json_is_string(json_object_get(o, "coordinator")))
        printf("coordinator %s\n", json_string_value(json_object_get(o, "coordinator")));
    else
        printf("coordinator: %s\n", why.text);
    json_decref(o);
    return 0;
}

/* ---- the table ---- */

static const struct command_option context_options[] = {CONTEXT_OPTION, {0}};
static const struct command_option list_options[] = {CONTEXT_OPTION, WATCH_OPTION, {0}};
static const struct command_option token_options[] = {
    {"ttl-hours", "H", "how long it is good for (default 24)", 0}, CONTEXT_OPTION, {0}};
static const struct command_option profile_rm_options[] = {
    {"kind", "K", "of this kind of device only (DEVICE of `profile ls`)", 0}, CONTEXT_OPTION, {0}};
static const struct command_option drain_options[] = {
    {"force", NULL, "whatever becomes of the deployments on it", 0}, CONTEXT_OPTION, {0}};
static const struct command_option logs_options[] = {
    {"lines", "N", "how many of the last lines (default 100)", 0},
    {"follow", NULL, "go on with what is added, until Ctrl-C", 'f'},
    CONTEXT_OPTION,
    {0}};

const struct command cluster_verbs[] = {
    {"node token create", "", 0, 0, "invite one box into the cluster",
     "The token carries the coordinator's public key; it is good for one agent.",
     "  hpctl node token create\n  hpctl node token create --ttl-hours 1 -o json", token_options,
     run_token_create, false},
    {"node token ls", "", 0, 0, "list invitations", NULL, "  hpctl node token ls", list_options,
     run_ask, false},
    {"node ls", "", 0, 0, "list the agents and how they are", NULL,
     "  hpctl node ls\n  hpctl node ls -o json", list_options, run_ask, false},
    {"node describe", "NAME", 1, 1, "show one agent: devices, memory, stages",
     "All that is known of its box is in -o json.", "  hpctl node describe a0", list_options,
     run_ask, false},
    {"node drain", "NAME", 1, 1, "let an agent finish and move its stages away",
     "Refused, with the reason, where a deployment on it has no room elsewhere; --force drains all "
     "the same.",
     "  hpctl node drain a0\n  hpctl node drain a0 --force", drain_options, run_ask, false},
    {"node undrain", "NAME", 1, 1, "take a drain back", NULL, "  hpctl node undrain a0",
     context_options, run_ask, false},
    {"node rm", "NAME", 1, 1, "forget an agent and its key", NULL, "  hpctl node rm a0",
     context_options, run_ask, false},
    {"profile ls", "", 0, 0, "list what was measured of models, by kind of device", NULL,
     "  hpctl profile ls", list_options, run_ask, false},
    {"profile rm", "MODEL", 1, 1,
     "drop what was measured of a model; the next deployment measures anew",
     "MODEL is a name or an id of `profile ls`, or at least the first six digits of one.",
     "  hpctl profile rm 5f2b7c11\n  hpctl profile rm llama.gguf --kind Intel-Xeon-8c8t",
     profile_rm_options, run_ask, false},
    {"weights ls", "", 0, 0, "list which agent holds how much of which model", NULL,
     "  hpctl weights ls", list_options, run_ask, false},
    {"weights rm", "MODEL", 1, 1, "remove a model's bytes from the agents' stores",
     "MODEL is a name or an id of `weights ls`, or at least the first six digits of one.",
     "  hpctl weights rm 5f2b7c11", context_options, run_ask, false},
    {"logs", "NODE", 1, 1, "show the last log lines of an agent, or of the coordinator",
     "NODE is an agent's name, or coordinator.",
     "  hpctl logs a1 --lines 50\n  hpctl logs a1 --follow\n  hpctl logs coordinator", logs_options,
     run_logs, false},
    {"version", "", 0, 0, "show the versions of hpctl and of the coordinator", NULL,
     "  hpctl version -o json", context_options, run_version, false},
    {0},
};
