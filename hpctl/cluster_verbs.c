/* `hpctl node|weights|logs|key|version`: the cluster itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "hpctl/client.h"
#include "hpctl/reach.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"

/* ---- asking
 * ----------------------------------------------------------------------------------------------------------------------------
 */

static int ask_once(const struct invocation *in, const char *verb, json_t *arguments,
                    json_t **result, struct err *e)
{
    return client_get_once(invocation_option(in, "context"), verb, arguments, result, e);
}

/* Asks by name and says in one line that it is done. */
static int do_by_name(struct invocation *in, const char *verb, const char *key, const char *done,
                      struct err *e)
{
    json_t *result = NULL;
    int rc = ask_once(in, verb, json_pack("{s:s}", key, in->arguments[0]), &result, e);
    if (rc == 0 && !json_is_object(result)) {
        json_decref(result);
        result = json_object();
    }
    if (rc == 0 && in->json)
        return invocation_print_json(in, result, e);
    if (rc == 0)
        printf("%s %s\n", in->arguments[0], done);
    json_decref(result);
    return rc;
}

/* ---- nodes
 * ---------------------------------------------------------------------------------------------------------------------------------
 */

static int run_node_ls(struct invocation *in, struct err *e)
{
    static const char *const columns[] = {"NAME",  "STATE",   "HOST",   "DEVICE",  ">MEMORY",
                                          ">FREE", ">STAGES", ">HEARD", "VERSION", NULL};
    json_t *list = NULL, *m;
    size_t i;
    int rc = ask_once(in, "node.ls", NULL, &list, e);
    if (rc < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, list, e);
    struct table *t = table_create(columns);
    json_array_foreach(list, i, m)
    {
        const char *host = text_member(m, "hostname"),
                   *also = json_string_value(json_object_get(m, "key_also_on"));
        const char *row[] = {
            text_member(m, "name"),
            text_member(m, "state"),
            also ? text_format("%s (its key also on %s)", host, also) : host,
            text_member(m, "kind"),
            text_bytes(number_member(m, "memory_bytes")),
            text_bytes(number_member(m, "memory_free_bytes")),
            text_format("%zu", json_array_size(json_object_get(m, "stages"))),
            json_object_get(m, "heard_s") ? text_seconds(number_member(m, "heard_s")) : "-",
            text_member(m, "program")};
        table_row(t, row);
    }
    table_print(&t, "no agent has joined; `hpctl node token create` invites one");
    json_decref(list);
    return 0;
}

static void print_object(const json_t *o, int indent)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        size_t i;
        json_t *item;
        if (json_is_object(v)) {
            printf("%*s%s\n", indent, "", key);
            print_object(v, indent + 2);
        } else if (json_is_array(v)) {
            printf("%*s%s\n", indent, "", key);
            json_array_foreach(v, i, item)
            {
                if (json_is_object(item)) {
                    print_object(item, indent + 2);
                    printf("\n");
                } else {
                    char *text = json_dumps(item, JSON_ENCODE_ANY | JSON_COMPACT);
                    printf("%*s%s\n", indent + 2, "", text ? text : "");
                    free(text);
                }
            }
        } else {
            bool bytes = strlen(key) > 6 && strcmp(key + strlen(key) - 6, "_bytes") == 0;
            printf("%*s%-*s %s\n", indent, "", 26 - indent, key,
                   bytes ? text_bytes(json_number_value(v)) : text_member(o, key));
        }
    }
}

static int run_node_describe(struct invocation *in, struct err *e)
{
    json_t *m = NULL;
    int rc = ask_once(in, "node.describe", json_pack("{s:s}", "name", in->arguments[0]), &m, e);
    if (rc < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, m, e);
    print_object(m, 0);
    json_decref(m);
    return 0;
}

static int run_node_drain(struct invocation *in, struct err *e)
{
    json_t *m = NULL;
    bool force = invocation_flag(in, "force");
    int rc = ask_once(in, "node.drain",
                      json_pack("{s:s, s:b}", "name", in->arguments[0], "force", force), &m, e);
    if (rc < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, m, e);
    printf("%s takes no new stages; deployments move away from it\n", in->arguments[0]);
    json_decref(m);
    return 0;
}

static int run_node_undrain(struct invocation *in, struct err *e)
{
    return do_by_name(in, "node.undrain", "name", "takes stages again", e);
}
static int run_node_rm(struct invocation *in, struct err *e)
{
    return do_by_name(in, "node.rm", "name", "is forgotten: it needs a new token to join", e);
}

static int run_profile_ls(struct invocation *in, struct err *e)
{
    static const char *const columns[] = {"MODEL",    "NAME",      "DEVICE", "COMPUTE",
                                          ">CLASSES", "CORRECTED", NULL};
    json_t *list = NULL, *p;
    size_t i;
    int rc = ask_once(in, "profile.ls", NULL, &list, e);
    if (rc < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, list, e);
    struct table *t = table_create(columns);
    json_array_foreach(list, i, p)
    {
        const char *row[] = {text_format("%.16s", text_member(p, "model")),
                             text_member(p, "name"),
                             text_member(p, "kind"),
                             text_member(p, "compute"),
                             text_member(p, "classes"),
                             text_member(p, "corrected")};
        table_row(t, row);
    }
    table_print(&t, "nothing has been measured");
    json_decref(list);
    return 0;
}

static int run_profile_rm(struct invocation *in, struct err *e)
{
    const char *kind = invocation_option(in, "kind");
    json_t *gone = NULL;
    int rc = ask_once(in, "profile.rm",
                      json_pack("{s:s, s:s}", "model", in->arguments[0], "kind", kind ? kind : ""),
                      &gone, e);
    if (rc < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, gone, e);
    printf("%lld dropped: the next deployment measures anew\n",
           (long long)json_integer_value(json_object_get(gone, "removed")));
    json_decref(gone);
    return 0;
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
        (rc = ask_once(in, "token.create", json_pack("{s:I}", "ttl_s", (json_int_t)(hours * 3600)),
                       &made, e)) < 0)
        return rc;
    if (in->json) {
        json_object_set_new(made, "join", reach_addresses(c.listen[0] ? c.listen : c.control));
        return invocation_print_json(in, made, e);
    }
    print_invitation(&c, text_member(made, "token"), hours);
    json_decref(made);
    return 0;
}

static int run_token_ls(struct invocation *in, struct err *e)
{
    static const char *const columns[] = {"DIGEST", "EXPIRES", "USED BY", NULL};
    json_t *list = NULL, *v;
    size_t i;
    int rc = ask_once(in, "token.ls", NULL, &list, e);
    if (rc < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, list, e);
    struct table *t = table_create(columns);
    json_array_foreach(list, i, v)
    {
        const char *row[] = {text_format("%.16s", text_member(v, "digest")),
                             text_date(number_member(v, "expires_s")), text_member(v, "used_by")};
        table_row(t, row);
    }
    table_print(&t, "no token is out");
    json_decref(list);
    return 0;
}

/* ---- weights and logs
 * -------------------------------------------------------------------------------------------------------------------
 */

static int run_weights_ls(struct invocation *in, struct err *e)
{
    static const char *const columns[] = {"MODEL", "NAME", "AGENT", ">HELD", "IN USE", NULL};
    json_t *list = NULL, *m, *holder;
    size_t i, k;
    int rc = ask_once(in, "weights.ls", NULL, &list, e);
    if (rc < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, list, e);
    struct table *t = table_create(columns);
    json_array_foreach(list, i, m)
    {
        json_array_foreach(json_object_get(m, "agents"), k, holder)
        {
            const char *row[] = {text_format("%.16s", text_member(m, "model")),
                                 text_member(m, "name"), text_member(holder, "agent"),
                                 text_bytes(number_member(holder, "bytes")),
                                 text_member(m, "in_use")};
            table_row(t, row);
        }
    }
    table_print(&t, "no agent holds weights");
    json_decref(list);
    return 0;
}

static int run_weights_rm(struct invocation *in, struct err *e)
{
    return do_by_name(in, "weights.rm", "model", "is removed from the agents' stores", e);
}

static int run_logs(struct invocation *in, struct err *e)
{
    json_t *o = NULL;
    uint64_t lines;
    int rc = invocation_u64(in, "lines", 100, &lines, e);
    if (rc < 0 || (rc = ask_once(in, "logs",
                                 json_pack("{s:s, s:I}", "node", in->arguments[0], "lines",
                                           (json_int_t)lines),
                                 &o, e)) < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, o, e);
    const char *text = json_string_value(json_object_get(o, "text"));
    printf("%s%s", text ? text : "", text && *text && text[strlen(text) - 1] != '\n' ? "\n" : "");
    json_decref(o);
    return 0;
}

/* ---- API keys
 * ----------------------------------------------------------------------------------------------------------------------------------
 */

static int run_key_create(struct invocation *in, struct err *e)
{
    json_t *made = NULL;
    int rc = ask_once(in, "key.create", json_pack("{s:s}", "name", in->arguments[0]), &made, e);
    if (rc < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, made, e);
    printf("%s\n", text_member(made, "key"));
    fprintf(stderr, "shown this once; clients send it as `Authorization: Bearer KEY`, which the "
                    "API wants from now on\n");
    json_decref(made);
    return 0;
}

static int run_key_ls(struct invocation *in, struct err *e)
{
    static const char *const columns[] = {"NAME", "CREATED", NULL};
    json_t *list = NULL, *k;
    size_t i;
    int rc = ask_once(in, "key.ls", NULL, &list, e);
    if (rc < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, list, e);
    struct table *t = table_create(columns);
    json_array_foreach(list, i, k)
    {
        const char *row[] = {text_member(k, "name"), text_date(number_member(k, "created_s"))};
        table_row(t, row);
    }
    table_print(&t, "no API key; beyond loopback the HTTP API needs one");
    json_decref(list);
    return 0;
}

static int run_key_rm(struct invocation *in, struct err *e)
{
    return do_by_name(in, "key.rm", "name", "opens nothing any more", e);
}

/* ---- version
 * -------------------------------------------------------------------------------------------------------------------------------------
 */

static int run_version(struct invocation *in, struct err *e)
{
    struct err why = {0};
    json_t *answer = NULL;
    int rc = ask_once(in, "version", NULL, &answer, &why);
    const char *coordinator = rc == 0 ? text_member(answer, "version") : NULL;
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

#define CONTEXT_OPTION                                                                             \
    {                                                                                              \
        "context", "NAME", "of the cluster (default: the current one)", 0                          \
    }
static const struct command_option context_options[] = {CONTEXT_OPTION, {0}};
static const struct command_option token_options[] = {
    {"ttl-hours", "H", "how long it is good for (default 24)", 0}, CONTEXT_OPTION, {0}};
static const struct command_option profile_rm_options[] = {
    {"kind", "K", "of this kind of device only (DEVICE of `profile ls`)", 0}, CONTEXT_OPTION, {0}};
static const struct command_option drain_options[] = {
    {"force", NULL, "whatever becomes of the deployments on it", 0}, CONTEXT_OPTION, {0}};
static const struct command_option logs_options[] = {
    {"lines", "N", "how many of the last lines (default 100)", 0}, CONTEXT_OPTION, {0}};

const struct command cluster_verbs[] = {
    {"node token create", "", 0, 0, "invite one box into the cluster",
     "The token carries the coordinator's public key; it is good for one agent.",
     "  hpctl node token create\n  hpctl node token create --ttl-hours 1 -o json", token_options,
     run_token_create, false},
    {"node token ls", "", 0, 0, "list invitations", NULL, "  hpctl node token ls", context_options,
     run_token_ls, false},
    {"node ls", "", 0, 0, "list the agents and how they are", NULL,
     "  hpctl node ls\n  hpctl node ls -o json", context_options, run_node_ls, false},
    {"node describe", "NAME", 1, 1, "show one agent: devices, memory, stages", NULL,
     "  hpctl node describe a0", context_options, run_node_describe, false},
    {"node drain", "NAME", 1, 1, "let an agent finish and move its stages away",
     "Refused, with the reason, where a deployment on it has no room elsewhere; --force drains all "
     "the same.",
     "  hpctl node drain a0\n  hpctl node drain a0 --force", drain_options, run_node_drain, false},
    {"node undrain", "NAME", 1, 1, "take a drain back", NULL, "  hpctl node undrain a0",
     context_options, run_node_undrain, false},
    {"node rm", "NAME", 1, 1, "forget an agent and its key", NULL, "  hpctl node rm a0",
     context_options, run_node_rm, false},
    {"profile ls", "", 0, 0, "list what was measured of models, by kind of device", NULL,
     "  hpctl profile ls", context_options, run_profile_ls, false},
    {"profile rm", "MODEL", 1, 1,
     "drop what was measured of a model; the next deployment measures anew",
     "MODEL is a name or an id of `profile ls`, or at least the first six digits of one.",
     "  hpctl profile rm 5f2b7c11\n  hpctl profile rm demo --kind cpu", profile_rm_options,
     run_profile_rm, false},
    {"weights ls", "", 0, 0, "list which agent holds how much of which model", NULL,
     "  hpctl weights ls", context_options, run_weights_ls, false},
    {"weights rm", "MODEL", 1, 1, "remove a model's bytes from the agents' stores",
     "MODEL is a name or an id of `weights ls`, or at least the first six digits of one.",
     "  hpctl weights rm 5f2b7c11", context_options, run_weights_rm, false},
    {"logs", "NODE", 1, 1, "show the last log lines of an agent", NULL,
     "  hpctl logs a1 --lines 50", logs_options, run_logs, false},
    {"key create", "NAME", 1, 1,
     "make an API key for clients of the HTTP API, which needs one from then on", NULL,
     "  hpctl key create laptop", context_options, run_key_create, false},
    {"key ls", "", 0, 0, "list API keys", NULL, "  hpctl key ls", context_options, run_key_ls,
     false},
    {"key rm", "NAME", 1, 1, "take an API key back", NULL, "  hpctl key rm laptop", context_options,
     run_key_rm, false},
    {"version", "", 0, 0, "show the versions of hpctl and of the coordinator", NULL,
     "  hpctl version -o json", context_options, run_version, false},
    {0},
};
