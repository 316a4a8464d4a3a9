#include "hpctl/talk.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/suggestion.h"
#include "hpctl/client.h"
#include "hpctl/pools_view.h"
#include "hpctl/shown.h"

static bool is_listed(const json_t *deployments, const char *name)
{
    size_t i;
    json_t *d;
    json_array_foreach(deployments, i, d)
    {
        if (strcmp(string_member(d, "name"), name) == 0)
            return true;
    }
    return false;
}

/* `client` asks whether pools serve it, which nobody talks to. */
static int deployment_missing(struct client *client, const json_t *deployments, const char *name,
                              struct err *e)
{
    struct suggestion near = {0};
    struct err unused = {0};
    json_t *d, *pools = NULL, *own = NULL;
    size_t i;
    if (client_get(client, "pools", NULL, &pools, &unused) == 0)
        own = pools_of_model(pools, name);
    json_decref(pools);
    if (own) {
        json_decref(own);
        err_set(e, HP_ENOENT, "\"%.60s\" is a model that pools serve, not a deployment", name);
        return err_hint(e, "`hpctl describe %.60s` shows it, POST /v2/models/%.60s/infer asks it",
                        name, name);
    }
    json_array_foreach(deployments, i, d)
    {
        suggestion_try(&near, name, string_member(d, "name"));
    }
    err_set(e, HP_ENOENT, "there is no deployment \"%.60s\"", name);
    return near.best ? err_hint(e, "did you mean \"%s\"? `hpctl ps` lists them", near.best)
                     : err_hint(e, "`hpctl ps` lists them");
}

/* Who names a model and says nothing to it. */
static int prompt_missing(const char *name, const char *what, struct err *e)
{
    err_set(e, HP_EUSAGE, "%.200s is a %s, and a prompt for it is missing", name, what);
    return err_hint(e, "`hpctl run %.200s \"PROMPT\"` asks it, `hpctl chat %.200s` talks to it",
                    name, name);
}

/* The one that was named, or the only one there is. `said`: what stands alone, which may be a name
 * all the same; NULL: nothing does. */
static int choose_deployment(const char *context, const char *asked, const char *said, char *name,
                             size_t size, struct context *where, struct err *e)
{
    struct client *client;
    json_t *list = NULL;
    int rc = client_open(context, &client, e);
    if (rc < 0)
        return rc;
    *where = *client_context(client);
    rc = client_get(client, "deployment.ls", NULL, &list, e);
    if (rc < 0) {
        client_close(&client);
        return rc;
    }
    size_t n = json_array_size(list);
    const char *only =
        n == 1 ? json_string_value(json_object_get(json_array_get(list, 0), "name")) : NULL;
    if (asked && !is_listed(list, asked))
        rc = deployment_missing(client, list, asked, e);
    else if (said && is_listed(list, said))
        rc = prompt_missing(said, "deployment", e);
    else if (asked)
        snprintf(name, size, "%s", asked);
    else if (only)
        snprintf(name, size, "%s", only);
    else if (n == 0) {
        rc = err_set(e, HP_ENOENT, "nothing is deployed");
        err_hint(e, "`hpctl deploy MODEL.gguf` first");
    } else {
        rc = err_set(e, HP_EUSAGE, "there are %zu deployments: say which one", n);
        err_hint(e, "`hpctl ps` lists them");
    }
    json_decref(list);
    client_close(&client);
    return rc;
}

static int devices_read(const struct invocation *in, struct own_options *out, struct err *e)
{
    const char *all[OWN_MAX_DEVICES + 1];
    int n = invocation_values(in, "device", all, OWN_MAX_DEVICES + 1);
    if (n > OWN_MAX_DEVICES)
        return err_set(e, HP_EUSAGE, "--device %s: an agent has at most %d devices",
                       all[OWN_MAX_DEVICES], OWN_MAX_DEVICES);
    memcpy(out->devices, all, (size_t)n * sizeof *all);
    out->n_devices = n;
    return 0;
}

int talk_options_read(const struct invocation *in, struct own_options *out, struct err *e)
{
    static const char *const texts[] = {"compute", "kv"};
    static const char *const wholes[][2] = {{"max-context", "max_context"},
                                            {"max-sequences", "max_sequences"}};
    int rc = devices_read(in, out, e);
    out->options = json_object();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (invocation_option(in, texts[i]))
            json_object_set_new(out->options, texts[i],
                                json_string(invocation_option(in, texts[i])));
    for (size_t i = 0; rc == 0 && i < sizeof wholes / sizeof *wholes; i++) {
        uint64_t n;
        rc = invocation_u64(in, wholes[i][0], 0, &n, e);
        if (rc == 0 && n)
            json_object_set_new(out->options, wholes[i][1], json_integer((json_int_t)n));
    }
    return rc;
}

int talk_open(const struct invocation *in, const char *asked, struct talk *t, struct err *e)
{
    static const char *const own_only[] = {"compute", "kv", "max-context", "max-sequences",
                                           "device"};
    struct own_options o = {.path = asked, .quiet = in->json};
    const char *said = !asked && in->n_arguments == 1 ? in->arguments[0] : NULL;
    *t = (struct talk){0};
    if (said && own_cluster_is_file(said) && access(said, F_OK) == 0)
        return prompt_missing(said, "model file", e);
    if (!asked || !own_cluster_is_file(asked)) {
        for (size_t i = 0; i < sizeof own_only / sizeof *own_only; i++)
            if (invocation_option(in, own_only[i]))
                return err_set(e, HP_EUSAGE,
                               "--%s is for a model file: what is deployed has its own",
                               own_only[i]);
        return choose_deployment(invocation_option(in, "context"), asked, said, t->name,
                                 sizeof t->name, &t->where, e);
    }
    int rc = talk_options_read(in, &o, e);
    if (rc == 0)
        rc = own_cluster_open(&o, &t->own, e);
    json_decref(o.options);
    if (rc < 0)
        return rc;
    t->where = *own_cluster_context(t->own);
    snprintf(t->name, sizeof t->name, "%s", own_cluster_name(t->own));
    return 0;
}

void talk_close(struct talk *t)
{
    own_cluster_close(&t->own);
}
