/* `hpctl context ls|use|export|import|rm`: the clusters that this user knows, and how to take one
 * to another box. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"
#include "hpctl/client.h"
#include "hpctl/http_client.h"
#include "hpctl/reach.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"
#include "hpctl/watched.h"

enum { LEARN_PATIENCE_MS = 2000 }; /* for a coordinator that need not run */

static void cell_mark(struct buffer *cell, const json_t *current)
{
    if (json_is_true(current))
        buffer_append(cell, "*", 1);
}

static int contexts_show(const void *ctx, const struct invocation *in, struct err *e)
{
    static const struct table_column columns[] = {{"", "current", cell_mark},
                                                  {"CONTEXT", "name", NULL},
                                                  {"COORDINATOR", "control", NULL},
                                                  {"API", "http", NULL},
                                                  {0}};
    json_t *names = context_list(), *name, *list = json_array();
    struct context current = {0}, c;
    struct err ignored;
    size_t i;
    bool any = context_load(NULL, &current, &ignored) == 0;
    (void)ctx;
    json_array_foreach(names, i, name)
    {
        if (context_load(json_string_value(name), &c, &ignored) < 0)
            continue;
        bool is_current = any && strcmp(c.name, current.name) == 0;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "name", c.name, "control",
                                              c.control, "http", c.http, "current", is_current));
    }
    json_decref(names);
    if (in->json)
        return invocation_print_json(in, list, e);
    int rc = table_print_list(columns, list,
                              "no context; `hpctl local up` or `hpctl cluster init` makes one", e);
    json_decref(list);
    return rc;
}

static int run_context_ls(struct invocation *in, struct err *e)
{
    return watched_run(in, contexts_show, NULL, e);
}

static int run_context_use(struct invocation *in, struct err *e)
{
    struct context c;
    int rc = context_load(in->arguments[0], &c, e);
    if (rc == 0)
        rc = context_save(&c, true, e);
    if (rc == 0 && in->json)
        return invocation_print_json(in, json_pack("{s:s}", "current", c.name), e);
    if (rc == 0)
        printf("verbs now speak of %s\n", c.name);
    return rc;
}

/* ---- export, import, rm ---- */

/* Where the cluster is for another box: `host` if one was named, else what this box's own addresses
 * say. */
static void address_elsewhere(const char *listen, const char *known, const char *host, char *out,
                              size_t size)
{
    const char *port = strrchr(known, ':');
    if (host)
        snprintf(out, size, "%s%s", host, port ? port : "");
    else if (*listen && reach_is_any(listen))
        reach_address(listen, out, size);
    else
        snprintf(out, size, "%s", known);
}

static void warn_of_loopback(const struct context *c)
{
    const char *api = reach_of_url(c->http);
    if (reach_is_loopback(c->control))
        fprintf(stderr,
                "hpctl: warning: the coordinator listens on %s, which is this box alone; another "
                "box needs hp-coordinator --listen 0.0.0.0%s\n",
                c->control, strrchr(c->control, ':') ? strrchr(c->control, ':') : "");
    if (reach_is_loopback(api))
        fprintf(stderr,
                "hpctl: warning: the HTTP API listens on %s, which is this box alone: `hpctl run` "
                "and `chat` need hp-coordinator --http 0.0.0.0%s there; export again then\n",
                api, strrchr(api, ':') ? strrchr(api, ':') : "");
}

/* The coordinator may listen more widely than `cluster init` was told: it was started again with
 * another --http. */
static void learn_api(struct context *c)
{
    struct err ignored = {0};
    struct client *client;
    json_t *answer = NULL;
    char here[280];
    if (!c->http_listen[0] || !reach_is_loopback(c->http_listen) ||
        client_open_at(c, LEARN_PATIENCE_MS, &client, &ignored) < 0)
        return;
    int rc = client_get(client, "version", NULL, &answer, &ignored);
    const char *listen = rc == 0 ? json_string_value(json_object_get(answer, "http")) : NULL,
               *port = listen ? strrchr(listen, ':') : NULL;
    if (port && strcmp(port, ":0") != 0 && strlen(listen) < sizeof c->http_listen &&
        !reach_is_loopback(listen)) {
        snprintf(c->http_listen, sizeof c->http_listen, "%s", listen);
        reach_from_here(listen, here, sizeof here);
        snprintf(c->http, sizeof c->http, "%s://%.270s", context_scheme(c), here);
        context_save(c, false, &ignored);
    }
    json_decref(answer);
    client_close(&client);
}

static int run_context_export(struct invocation *in, struct err *e)
{
    struct context c;
    char control[280], api[260];
    json_t *o;
    const char *host = invocation_option(in, "host");
    int rc = context_load(in->n_arguments ? in->arguments[0] : NULL, &c, e);
    bool had_key = c.api_key[0] != '\0';
    if (rc < 0 || (!had_key && (rc = api_key_make(&c, e)) < 0))
        return rc;
    if (!had_key)
        fprintf(stderr, "hpctl: an API key was made for this context (`hpctl key ls`): "
                        "every client of the HTTP API needs a key from now on\n");
    learn_api(&c);
    address_elsewhere(c.listen, c.control, host, control, sizeof control);
    address_elsewhere(c.http_listen, reach_of_url(c.http),
                      c.http_listen[0] && reach_is_loopback(c.http_listen) ? NULL : host, api,
                      sizeof api);
    snprintf(c.control, sizeof c.control, "%s", control);
    snprintf(c.http, sizeof c.http, "%s://%s", context_scheme(&c), api);
    c.local_dir[0] = c.http_ca[0] = c.listen[0] = c.http_listen[0] = '\0'; /* of this box alone */
    if ((rc = context_to_json(&c, &o, e)) < 0)
        return rc;
    rc = json_save_private(o, in->output ? in->output : "-", e);
    json_decref(o);
    if (rc == 0)
        warn_of_loopback(&c);
    if (rc == 0 && in->output)
        fprintf(stderr,
                "%s is whole: it opens the cluster to whoever has it. On the laptop: hpctl context "
                "import %s\n",
                in->output, in->output);
    return rc;
}

static int run_context_import(struct invocation *in, struct err *e)
{
    struct context c, there;
    struct json_at at;
    struct err ignored;
    json_t *root;
    const char *name = invocation_option(in, "name");
    int rc = json_load_at(in->arguments[0], &root, &at, e);
    if (rc < 0)
        return rc;
    rc = json_expect_format(&at, "hp-context/1", e);
    if (rc == 0)
        rc = context_from_json(&at, &c, e);
    json_decref(root);
    if (rc < 0 || (name && (rc = context_check_name(name, e)) < 0))
        return rc;
    if (name)
        snprintf(c.name, sizeof c.name, "%s", name);
    if (context_load(c.name, &there, &ignored) == 0 && !invocation_flag(in, "force")) {
        err_set(e, HP_EEXIST, "there is a context \"%s\" already, of the coordinator at %s", c.name,
                there.control);
        return err_hint(e, "--name gives this one another name, --force replaces that one");
    }
    if ((rc = context_save(&c, true, e)) < 0)
        return rc;
    if (in->json)
        return invocation_print_json(
            in,
            json_pack("{s:s, s:s, s:s}", "current", c.name, "control", c.control, "http", c.http),
            e);
    printf("verbs now speak of %s: coordinator at %s, API at %s\n`hpctl doctor` shows whether this "
           "box reaches both\n",
           c.name, c.control, c.http);
    return 0;
}

static int run_context_rm(struct invocation *in, struct err *e)
{
    struct context c;
    int rc = context_load(in->arguments[0], &c, e);
    if (rc == HP_ENOCLUSTER)
        e->code = rc = HP_ENOENT;
    if (rc == 0 && c.local_dir[0] && access(c.local_dir, F_OK) == 0 &&
        !invocation_flag(in, "force")) {
        err_set(e, HP_EBUSY, "\"%s\" is a cluster on this box, in %s", c.name, c.local_dir);
        return err_hint(
            e, "`hpctl local down --name %s` ends it and forgets it; --force only forgets it",
            c.name);
    }
    if (rc < 0 || (rc = context_remove(c.name, e)) < 0)
        return rc;
    if (in->json)
        return invocation_print_json(in, json_pack("{s:s}", "removed", c.name), e);
    printf("%s is forgotten here; the cluster itself goes on\n", c.name);
    return 0;
}

static const struct command_option list_options[] = {WATCH_OPTION, {0}};
static const struct command_option export_options[] = {
    {"host", "ADDR",
     "the address by which the other box reaches this one (default: this box's own)", 0},
    {0}};
static const struct command_option import_options[] = {
    {"name", "N", "what to call it here (default: its name there)", 0},
    {"force", NULL, "replace a context of that name", 0},
    {0}};
static const struct command_option rm_options[] = {
    {"force", NULL, "forget even a cluster that this box runs", 0}, {0}};

const struct command context_verbs[] = {
    {.path = "context ls",
     .arguments = "",
     .summary = "list the clusters that this user knows",
     .examples = "  hpctl context ls",
     .options = list_options,
     .run = run_context_ls},
    {.path = "context use",
     .arguments = "NAME",
     .min_arguments = 1,
     .max_arguments = 1,
     .summary = "choose the cluster that verbs speak of",
     .examples = "  hpctl context use home",
     .run = run_context_use},
    {.path = "context export",
     .arguments = "[NAME]",
     .max_arguments = 1,
     .makes_file = true,
     .summary = "write a context for another box",
     .details = "Holds the admin's key and an API key, made for it where there is none: keep it as "
                "you keep an ssh key. Addresses are those by which other boxes reach this one.",
     .examples = "  hpctl context export home -o home.json\n  hpctl context export --host "
                 "coordinator.lan -o - | ssh laptop hpctl context import -",
     .options = export_options,
     .run = run_context_export},
    {.path = "context import",
     .arguments = "FILE|-",
     .min_arguments = 1,
     .max_arguments = 1,
     .summary = "take over what `context export` wrote, and use it",
     .examples =
         "  hpctl context import home.json\n  hpctl context import - --name office < office.json",
     .options = import_options,
     .run = run_context_import},
    {.path = "context rm",
     .arguments = "NAME",
     .min_arguments = 1,
     .max_arguments = 1,
     .summary = "forget a cluster; it goes on without you",
     .examples = "  hpctl context rm office",
     .options = rm_options,
     .run = run_context_rm},
    {0},
};
