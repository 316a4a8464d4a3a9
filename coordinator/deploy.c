#include "coordinator/deploy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/names.h"
#include "coordinator/deployment_options.h"
#include "coordinator/describe.h"
#include "coordinator/effects.h"
#include "coordinator/keeper_plans.h"
#include "coordinator/lifecycle_ends.h"
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

/* Where a model's bytes are read says nothing of how it serves. */
static json_t *options_of_serving(const json_t *options)
{
    static const char *const sources[] = {"source_machine", "source_path", "upload_only"};
    json_t *out = json_copy((json_t *)options);
    for (size_t i = 0; out && i < sizeof sources / sizeof *sources; i++)
        json_object_del(out, sources[i]);
    return out;
}

/* As hpctl calls it; those who answer are --decode's where others read prompts. */
static void option_name(const char *key, bool readers, char *out, size_t size)
{
    if (readers && strcmp(key, "agents") == 0)
        key = "decode";
    size_t n = (size_t)snprintf(out, size, "--%s", key);
    for (size_t i = 2; i < n && i < size; i++)
        if (out[i] == '_')
            out[i] = '-';
}

static void option_value(const char *key, const json_t *value, struct buffer *out)
{
    bool time = strcmp(key, "ttft") == 0 || strcmp(key, "tpot") == 0;
    if (!value)
        buffer_printf(out, "not given");
    else if (json_is_string(value))
        buffer_printf(out, "%.40s", json_string_value(value));
    else if (json_is_number(value))
        buffer_printf(out, "%g%s", json_number_value(value), time ? "ms" : "");
    else
        buffer_printf(out, "given");
}

/* "--wire A there, B here"; where the two are called differently each has its name. */
static void option_compare(const char *key, const json_t *const sides[2], struct buffer *out)
{
    const json_t *values[2] = {json_object_get(sides[0], key), json_object_get(sides[1], key)};
    char names[2][40];
    if (values[0] && values[1] && json_equal(values[0], values[1]))
        return;
    for (int i = 0; i < 2; i++)
        option_name(key, json_object_get(sides[values[i] ? i : 1 - i], "prefill"), names[i],
                    sizeof names[i]);
    buffer_printf(out, "%s%s ", out->size ? "; " : "", names[0]);
    option_value(key, values[0], out);
    buffer_printf(out, " there, ");
    if (strcmp(names[0], names[1]) != 0)
        buffer_printf(out, "%s ", names[1]);
    option_value(key, values[1], out);
    buffer_printf(out, " here");
}

/* Every option that differs. */
static void options_compare(const json_t *there, const json_t *here, struct buffer *out)
{
    const json_t *const sides[2] = {there, here};
    json_t *all = json_copy((json_t *)there), *unused;
    const char *key;
    if (!all)
        return;
    json_object_update(all, (json_t *)here);
    json_object_foreach(all, key, unused)
    {
        option_compare(key, sides, out);
    }
    json_decref(all);
}

static int deployed_differently(const struct deployment *d, const struct model_slot *model,
                                json_t *options, struct err *e)
{
    struct buffer differ = {0};
    json_t *there = options_of_serving(d->spec.options), *here = options_of_serving(options);
    bool same = strcmp(d->model->id, model->id) == 0;
    if (same && there && here)
        options_compare(there, here, &differ);
    json_decref(there);
    json_decref(here);
    err_set(e, HP_EEXIST, "\"%s\" is deployed already%s%s", d->name,
            !same ? ", of another model" : " with other options: ",
            differ.size ? buffer_cstr(&differ) : "");
    buffer_free(&differ);
    return err_hint(e, "choose another --name, or hpctl undeploy %s first", d->name);
}

static bool deployed_alike(const struct deployment *d, const json_t *options)
{
    json_t *there = options_of_serving(d->spec.options), *here = options_of_serving(options);
    bool alike = there && here && json_equal(there, here);
    json_decref(there);
    json_decref(here);
    return alike;
}

static void spec_replace(struct deployment *d, struct deployment_spec *spec)
{
    deployment_spec_free(&d->spec);
    d->spec = *spec;
    *spec = (struct deployment_spec){0};
}

/* One that serves is asked for as it is; where its file lies now holds for what is read next. */
static int deploy_serving(struct coord *c, struct deployment *d, uint64_t peer, uint64_t ask,
                          struct deployment_spec *spec, struct err *e)
{
    struct err cannot = {0};
    if (!json_equal(d->spec.options, spec->options)) {
        spec_replace(d, spec);
        record_keep(c, d);
    }
    deployment_spec_free(spec);
    d->listener_peer = peer;
    d->listener_ask = ask;
    if (prefill_plan_begin(c, d, &cannot))
        return 0;
    d->listener_peer = d->listener_ask = 0;
    if (cannot.code)
        return err_set(e, cannot.code, "%s", cannot.text);
    json_t *result = describe_deployment(d, true);
    json_object_set_new(result, "phase", json_string("serving"));
    effects_answer(c, peer, ask, false, result);
    return 0;
}

/* One of this name is there. The same model: its options hold from the next plan on, and who asks
 * hears how it goes. */
static int deploy_again(struct coord *c, struct deployment *d, struct model_slot *model,
                        uint64_t peer, uint64_t ask, struct deployment_spec *spec, struct err *e)
{
    bool serving = deployment_serves(d), fixed = serving || d->state == DEPLOYMENT_READY;
    if (strcmp(d->model->id, model->id) != 0 || (fixed && !deployed_alike(d, spec->options)))
        return deployed_differently(d, model, spec->options, e);
    if (serving)
        return deploy_serving(c, d, peer, ask, spec, e);
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
        d->model = model;
    }
    placement_cancel(d);
    spec_replace(d, spec);
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
            placement_name_unknown(c, r.agent, strchr(r.agent, '/') != NULL, e);
            return e->hint[0]
                       ? e->code
                       : err_hint(e, "--prefill names agents or devices: `hpctl topo` lists them");
        }
        agents += n;
        agents += agents[0] == ',' && agents[1];
    }
    return 0;
}

static int keeper_check(struct coord *c, const char *name, const struct deployment_spec *s,
                        struct err *e)
{
    const char *to = s->replicate_to;
    if (to[0] && strlen(name) + KEEPER_PLAN_ENDING >= DEPLOYMENT_NAME)
        return err_set(e, HP_EINVAL,
                       "with --replicate-to the name of a deployment has at most %d characters",
                       DEPLOYMENT_NAME - 1 - KEEPER_PLAN_ENDING);
    if (!to[0] || strcmp(to, "auto") == 0 || placement_device_named(c, to).agent)
        return 0;
    placement_name_unknown(c, to, strchr(to, '/') != NULL, e);
    return e->hint[0] ? e->code
                      : err_hint(e, "--replicate-to names an agent or device, or is auto: `hpctl "
                                    "topo` lists them");
}

/* Deployments that belong to others are made by the coordinator alone. */
static int asked_from_outside_check(const json_t *options, struct err *e)
{
    static const char *const own[] = {"prefill_of", "succeeds", "copy_of"};
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
    rc = rc < 0 ? rc : keeper_check(c, name, &spec, e);
    rc = rc < 0 ? rc : model_slot_use(c, manifest, &model, e);
    if (rc == 0 && spec.expert_groups > 1 &&
        !(model = model_slot_divided(c, model, (uint32_t)spec.expert_groups)))
        rc = err_set(e, HP_ENOMEM, "no memory for a model");
    if (rc == 0)
        rc = d ? deploy_again(c, d, model, peer, ask, &spec, e)
               : deploy_new(c, name, model, peer, ask, &spec, e);
    if (rc < 0) {
        deployment_spec_free(&spec);
        model_slots_sweep(c);
    }
    return rc;
}
