#include "coordinator/deploy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/names.h"
#include "coordinator/deployment_options.h"
#include "coordinator/describe.h"
#include "coordinator/effects.h"
#include "coordinator/lifecycle.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement.h"
#include "coordinator/prefill_plans.h"
#include "coordinator/record.h"
#include "coordinator/regrowth.h"
#include "coordinator/stage_reports.h"

static int deployment_name_check(const char *name, struct err *e)
{
    size_t n = strlen(name);
    if (n == 0 || n >= DEPLOYMENT_NAME)
        return err_set(e, HP_EINVAL, "the name of a deployment has 1 to %d characters",
                       DEPLOYMENT_NAME - 1);
    return name_is_valid(name, n)
               ? 0
               : err_set(e, HP_EINVAL, "\"%s\" cannot name a deployment: " NAME_ALPHABET " can",
                         name);
}

/* "--wire-x is A there and B here" of every option that differs. */
static void options_compare(json_t *there, json_t *here, struct buffer *out)
{
    json_t *all = json_copy(there), *unused;
    const char *key;
    if (!all)
        return;
    json_object_update(all, here);
    json_object_foreach(all, key, unused)
    {
        json_t *values[2] = {json_object_get(there, key), json_object_get(here, key)};
        if (values[0] && values[1] && json_equal(values[0], values[1]))
            continue;
        buffer_printf(out, "%s--", out->size ? "; " : "");
        for (const char *p = key; *p; p++)
            buffer_printf(out, "%c", *p == '_' ? '-' : *p);
        for (int i = 0; i < 2; i++) {
            char *said = values[i] ? json_dumps(values[i], JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
            buffer_printf(out, "%s %.40s %s", i ? "," : "", said ? said : "not given",
                          i ? "here" : "there");
            free(said);
        }
    }
    json_decref(all);
}

static int deployed_differently(const struct deployment *d, const struct model_slot *model,
                                json_t *options, struct err *e)
{
    struct buffer differ = {0};
    if (d->model == model)
        options_compare(d->spec.options, options, &differ);
    err_set(e, HP_EEXIST, "\"%s\" is deployed already%s%s", d->name,
            d->model != model ? ", of another model" : " with other options: ",
            differ.size ? buffer_cstr(&differ) : "");
    buffer_free(&differ);
    return err_hint(e, "choose another --name, or hpctl undeploy %s first", d->name);
}

/* One of this name is there. The same model: its options hold from the next plan on, and who asks
 * hears how it goes. */
static int deploy_again(struct coord *c, struct deployment *d, const struct model_slot *model,
                        uint64_t peer, uint64_t ask, struct deployment_spec *spec, struct err *e)
{
    bool serving = deployment_serves(d), fixed = serving || d->state == DEPLOYMENT_READY;
    if (d->model != model || (fixed && !json_equal(d->spec.options, spec->options)))
        return deployed_differently(d, model, spec->options, e);
    if (serving) {
        struct err cannot = {0};
        d->listener_peer = peer;
        d->listener_ask = ask;
        if (prefill_plan_begin(c, d, &cannot)) {
            deployment_spec_free(spec);
            return 0;
        }
        d->listener_peer = d->listener_ask = 0;
        if (cannot.code)
            return err_set(e, cannot.code, "%s", cannot.text);
        json_t *result = describe_deployment(d, true);
        json_object_set_new(result, "phase", json_string("serving"));
        effects_answer(c, peer, ask, false, result);
        deployment_spec_free(spec);
        return 0;
    }
    struct err gone = {0};
    err_set(&gone, HP_ECANCELED, "somebody else went on with the deployment of \"%s\"", d->name);
    deployment_listener_answer(c, d, NULL, &gone);
    if (!json_equal(d->spec.options, spec->options)) {
        /* Asked for differently: nothing of the old plan is kept. */
        if (deployment_prepares(d))
            lifecycle_break(c, d, &gone);
        stage_layout_release(&d->served);
        regrowth_forget(d);
        deployment_stages_free(d);
    }
    placement_cancel(d);
    deployment_spec_free(&d->spec);
    d->spec = *spec;
    d->listener_peer = peer;
    d->listener_ask = ask;
    deployment_retry(c, d);
    for (int i = 0; i < d->n_stages; i++)
        d->stages[i].n_asked = 0;
    record_keep(c, d);
    stage_reports_tell(c, d, true);
    return 0;
}

static int deploy_new(struct coord *c, const char *name, struct model_slot *model, uint64_t peer,
                      uint64_t ask, struct deployment_spec *spec, struct err *e)
{
    struct deployment *d;
    int rc = record_begin(c, name, model, spec, &d, e);
    if (rc < 0)
        return rc;
    d->listener_peer = peer;
    d->listener_ask = ask;
    return 0;
}

/* Of a deployment with a plan that reads prompts what would turn up only once it serves. */
static int readers_check(struct coord *c, const char *name, const char *agents, struct err *e)
{
    if (agents[0] && strlen(name) + DEPLOYMENT_PARTNER_ENDING >= DEPLOYMENT_NAME)
        return err_set(e, HP_EINVAL,
                       "with --prefill the name of a deployment has at most %d characters",
                       DEPLOYMENT_NAME - 1 - DEPLOYMENT_PARTNER_ENDING);
    while (*agents && strcmp(agents, "auto") != 0) {
        struct deployment_range r;
        size_t n = strcspn(agents, ",");
        if (!n || n >= sizeof r.agent)
            return err_set(e, HP_EINVAL, "--prefill: \"%.*s\" is not the name of an agent",
                           (int)(n < 100 ? n : 100), agents);
        snprintf(r.agent, sizeof r.agent, "%.*s", (int)n, agents);
        if (!placement_device_named(c, r.agent).agent) {
            placement_name_unknown(r.agent, strchr(r.agent, '/') != NULL, e);
            return err_hint(e, "--prefill names agents or devices: `hpctl topo` lists them");
        }
        agents += n;
        agents += agents[0] == ',' && agents[1];
    }
    return 0;
}

/* Deployments that belong to others are made by the coordinator alone. */
static int asked_from_outside_check(const json_t *options, struct err *e)
{
    static const char *const own[] = {"prefill_of", "succeeds"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(options, own[i]))
            return err_set(e, HP_EINVAL, "option \"%s\" is the coordinator's own: leave it out",
                           own[i]);
    return 0;
}

int deploy_start(struct coord *c, uint64_t peer, uint64_t ask, const char *name, json_t *options,
                 struct pack_span manifest, struct err *e)
{
    struct deployment_spec spec;
    struct model_slot *model;
    int rc = deployment_name_check(name, e);
    if (rc < 0 || (rc = asked_from_outside_check(options, e)) < 0 ||
        (rc = deployment_options_read(options, &spec, e)) < 0)
        return rc;
    struct deployment *d = deployment_find(c, name);
    if (!d || !json_equal(d->spec.options, spec.options))
        rc = readers_check(c, name, spec.prefill, e);
    rc = rc < 0 ? rc : model_slot_use(c, manifest, &model, e);
    if (rc == 0)
        rc = d ? deploy_again(c, d, model, peer, ask, &spec, e)
               : deploy_new(c, name, model, peer, ask, &spec, e);
    if (rc < 0) {
        deployment_spec_free(&spec);
        model_slots_sweep(c);
    }
    return rc;
}
