#include "coordinator/deployments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/core_int.h"
#include "coordinator/drain.h"
#include "coordinator/placement.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/slices.h"
#include "coordinator/truth.h"

#define TO(s) MACHINE_TO(DEPLOYMENT_##s)
const struct machine_state deployment_states[DEPLOYMENT_STATE_COUNT] = {
    [DEPLOYMENT_PLANNED] = {"planned", TO(PREPARING) | TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_PREPARING] = {"preparing", TO(READY) | TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_READY] = {"ready", TO(SERVING) | TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_SERVING] = {"serving", TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_BROKEN] = {"broken", TO(PLANNED) | TO(STOPPING)},
    [DEPLOYMENT_STOPPING] = {"stopping", TO(STOPPED)},
    [DEPLOYMENT_STOPPED] = {"stopped", 0},
};
#undef TO

struct deployment *deployment_find(struct core *c, const char *name)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (c->deployments[i]->state < DEPLOYMENT_STOPPING &&
            strcmp(c->deployments[i]->name, name) == 0)
            return c->deployments[i];
    return NULL;
}

struct deployment *deployment_of_id(struct core *c, uint64_t id)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (c->deployments[i]->id == id)
            return c->deployments[i];
    return NULL;
}

void deployment_free(struct deployment *d)
{
    struct sequence *lists[] = {d->active, d->waiting_first};
    for (int k = 0; k < 2; k++)
        for (struct sequence *s = lists[k], *next; s; s = next) {
            next = s->next;
            free(s->prompt);
            free(s->output);
            free(s);
        }
    stages_free(d);
    placement_cancel(d);
    slices_free(d);
    planner_inputs_release(&d->inputs);
    deployment_spec_free(&d->spec);
    json_decref(d->plan);
    json_decref(d->served);
    deployment_wish_forget(d);
    truth_free(&d->truth);
    free(d);
}

static void deployment_move(struct core *c, struct deployment *d, int to)
{
    log_info("coordinator", "deployment", "name=%s generation=%llu from=%s to=%s%s%s%s", d->name,
             (unsigned long long)d->generation, deployment_states[d->state].word,
             deployment_states[to].word, d->why.code ? " why=\"" : "",
             d->why.code ? d->why.text : "", d->why.code ? "\"" : "");
    machine_move(deployment_states, &d->state, to);
    placement_cancel(d);
    d->since_ns = core_now(c);
    d->until_ns = 0;
}

static void listener_answer(struct core *c, struct deployment *d, json_t *result,
                            const struct err *why)
{
    if (!d->listener_ask) {
        json_decref(result);
        return;
    }
    if (why)
        core_answer_error(c, d->listener_peer, d->listener_ask, why);
    else
        core_answer(c, d->listener_peer, d->listener_ask, false, result);
    d->listener_peer = d->listener_ask = 0;
}

/* ---- the ends
 * ---------------------------------------------------------------------------------------------------
 */

static void stop(struct core *c, struct deployment *d, const struct err *why)
{
    sequences_fail_all(c, d, true, why);
    stages_uploads_end(c, d);
    core_forget(c, "deployment", d->name);
    stages_stop(c, d);
    deployment_move(c, d, DEPLOYMENT_STOPPING);
    d->until_ns = core_now(c) + core_ms(DEPLOYMENT_STOP_MS);
}

void deployment_break(struct core *c, struct deployment *d, const struct err *why)
{
    d->why = *why;
    sequences_fail_all(c, d, false, why);
    stages_uploads_end(c, d);
    deployment_move(c, d, DEPLOYMENT_BROKEN);
    d->moving = d->recovering = false;
    d->retry = true;
}

void deployment_fail(struct core *c, struct deployment *d, const struct err *why)
{
    d->why = *why;
    if (!d->served && d->listener_ask) {
        listener_answer(c, d, NULL, why);
        stop(c, d, why);
        return;
    }
    listener_answer(c, d, NULL, why);
    stages_uploads_end(c, d);
    deployment_move(c, d, DEPLOYMENT_BROKEN);
    d->recovering = false;
    d->retry = deployment_wish_failed(d);
    unsigned doublings = d->failures < 4 ? d->failures : 4;
    d->failures++;
    d->until_ns = core_now(c) + (core_ms(DEPLOYMENT_RETRY_MS) << doublings);
}

void deployments_undeploy(struct core *c, struct deployment *d, uint64_t peer, uint64_t ask)
{
    struct err why = {0};
    err_set(&why, HP_ECANCELED, "\"%s\" was undeployed", d->name);
    listener_answer(c, d, NULL, &why);
    stop(c, d, &why);
    d->stop_peer = peer;
    d->stop_ask = ask;
}

/* ---- one step of each state
 * ---------------------------------------------------------------------------------------- */

/* Asks for measurements once; true while they are awaited. */
static bool measuring(struct core *c, struct deployment *d)
{
    struct member *agents[32];
    uint64_t now = core_now(c);
    if (c->config.profile_ms == UINT64_MAX || d->served ||
        (d->profile_until_ns && now >= d->profile_until_ns))
        return false;
    int n = placement_unmeasured(c, d, agents, 32);
    if (n == 0 || d->profile_until_ns)
        return n > 0;
    d->profile_until_ns = now + core_ms(2 * c->config.profile_ms + 2000);
    struct digest id;
    if (digest_from_hex(d->model->id, &id, NULL) < 0)
        return false;
    for (int i = 0; i < n; i++) {
        struct core_relay *r = core_relay_add(c, MESSAGE_PROFILE_RESULT, agents[i], 0, d->spec.f32,
                                              d->profile_until_ns + core_ms(60000));
        if (!r)
            return false;
        core_text_set(r->what, sizeof r->what, d->model->id);
        struct message m = {.type = MESSAGE_PROFILE_RUN, .id = r->id};
        m.u.profile_run =
            (struct message_profile_run){.model = {id.bytes, sizeof id.bytes},
                                         .manifest = {d->model->manifest, d->model->manifest_size},
                                         .compute = d->spec.f32 ? "f32" : "auto",
                                         .budget_ms = c->config.profile_ms};
        core_say(c, agents[i]->peer, &m);
        if (d->listener_ask)
            core_answer(c, d->listener_peer, d->listener_ask, true,
                        json_pack("{s:s, s:s, s:s}", "phase", "profile", "agent", agents[i]->name,
                                  "kind", agents[i]->kind));
    }
    return true;
}

/* The layout that moves least: as it served last, or as it is; else the planner's. 1: it is being
 * planned. */
static int choose(struct core *c, struct deployment *d, struct err *e)
{
    int rc;
    json_t *layout = d->n_stages ? deployment_layout(d) : NULL;
    if (d->served && deployment_layout_usable(c, d->served)) {
        rc = deployment_layout_set(c, d, d->served, e);
        if (rc == 0)
            rc = stages_adopt(c, d, NULL, e);
    } else if (layout && deployment_layout_usable(c, layout)) {
        rc = deployment_layout_set(c, d, layout,
                                   e); /* the same stages, none of which has been told anything */
        if (rc == 0)
            rc = stages_adopt(c, d, NULL, e);
    } else {
        struct placement p;
        deployment_wish(d);
        rc = placement_make(c, d, &p, e);
        if (rc == 0) {
            rc = stages_adopt(c, d, &p, e);
            placement_free(&p);
        }
    }
    json_decref(layout);
    return rc;
}

static void step_planned(struct core *c, struct deployment *d)
{
    struct err e = {0};
    if (d->model->failure.code) {
        deployment_fail(c, d, &d->model->failure);
        return;
    }
    if (!d->model->open || measuring(c, d))
        return;
    int rc = choose(c, d, &e);
    if (rc > 0)
        return;
    if (rc < 0) {
        deployment_fail(c, d, &e);
        return;
    }
    deployment_keep(c, d);
    deployment_move(c, d, DEPLOYMENT_PREPARING);
    if (d->listener_ask)
        core_answer(c, d->listener_peer, d->listener_ask, true,
                    json_pack("{s:s, s:s, s:I, s:O?, s:o}", "phase", "plan", "name", d->name,
                              "context", (json_int_t)d->context, "plan", d->plan, "stages",
                              deployment_stages_describe(d)));
    stages_prepare(c, d);
}

/* All stages are there: they are connected, and tried before anybody is promised anything. */
static void try_hops(struct core *c, struct deployment *d)
{
    deployment_move(c, d, DEPLOYMENT_READY);
    stages_uploads_end(c, d);
    hops_begin(c, d);
    stages_connect(c, d);
}

static void serve(struct core *c, struct deployment *d)
{
    d->until_ns = 0;
    d->why = (struct err){0};
    d->recovering = d->retry = false;
    d->failures = 0;
    json_t *layout = deployment_layout(d);
    json_decref(d->served);
    d->served = layout;
    deployment_wish_served(d);
    deployment_keep(c, d);
    layouts_keep(c, d);
    deployment_move(c, d, DEPLOYMENT_SERVING);
    json_t *result = deployment_describe(c, d, true);
    json_object_set_new(result, "phase", json_string("serving"));
    listener_answer(c, d, result, NULL);
}

static void step_preparing(struct core *c, struct deployment *d)
{
    bool late = d->until_ns && core_now(c) >= d->until_ns;
    for (int i = 0; i < d->n_stages; i++) {
        const struct member *m = d->stages[i].agent;
        if (member_present(m) || (d->recovering && !late))
            continue;
        struct err e = {0};
        err_set(&e, HP_ELINK, "agent \"%s\" is lost", m->name);
        deployment_break(c, d, &e);
        return;
    }
    stages_prepare(c, d);
    if (stages_all_here(d) && d->model->open) {
        try_hops(c, d);
    } else if (!stages_upload(c, d)) {
        struct err e = {0};
        err_set(&e, HP_ENOENT, "no agent has all weights of \"%s\" any more", d->name);
        err_hint(&e, "hpctl deploy again with --name %s uploads what is missing", d->name);
        deployment_fail(c, d, &e);
    }
}

static void step_ready(struct core *c, struct deployment *d)
{
    struct err e = {0};
    if (hops_all_heard(d)) {
        serve(c, d);
    } else if (core_now(c) >= d->until_ns) {
        hops_why(d, &e);
        deployment_fail(c, d, &e);
    }
}

/* Whether an agent under it is being taken out of service: asked of the agents, so that a restart
 * forgets nothing. */
static bool stages_drain(const struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].agent->draining && !d->stages[i].agent->drain_asked)
            return true;
    return false;
}

static void step_serving(struct core *c, struct deployment *d)
{
    deployment_grow(c, d);
    if (d->state != DEPLOYMENT_SERVING)
        return;
    if (d->unclosed && d->n_active == 0) {
        d->unclosed = false;
        stages_connect(c, d);
    }
    if (!d->moving && stages_drain(d)) {
        d->moving = true;
        d->until_ns = core_now(c) + core_ms(DEPLOYMENT_DRAIN_MS);
    }
    if (d->moving && (d->n_active == 0 || core_now(c) >= d->until_ns)) {
        struct err e = {0};
        err_set(&e, HP_ELINK, "\"%s\" moves away from an agent that is being drained", d->name);
        deployment_break(c, d, &e);
    }
}

static void step_broken(struct core *c, struct deployment *d)
{
    if (!d->retry && (!d->until_ns || core_now(c) < d->until_ns))
        return;
    d->retry = false;
    struct core_model_slot *same;
    struct err ignored;
    if (!d->model->open) /* tried again; the failure of the last time is forgotten */
        core_model_use(c, (struct pack_span){d->model->manifest, d->model->manifest_size}, &same,
                       &ignored);
    deployment_move(c, d, DEPLOYMENT_PLANNED);
}

static void step_stopping(struct core *c, struct deployment *d)
{
    bool done = core_now(c) >= d->until_ns;
    if (!done) {
        done = true;
        for (int i = 0; i < d->n_stages; i++)
            done = done &&
                   (d->stages[i].status == STAGE_UNTOLD || !member_present(d->stages[i].agent));
    }
    if (!done)
        return;
    deployment_move(c, d, DEPLOYMENT_STOPPED);
    if (d->stop_ask)
        core_answer(c, d->stop_peer, d->stop_ask, false,
                    json_pack("{s:s, s:s}", "name", d->name, "state", "stopped"));
}

static void step(struct core *c, struct deployment *d)
{
    switch (d->state) {
    case DEPLOYMENT_PLANNED: step_planned(c, d); break;
    case DEPLOYMENT_PREPARING: step_preparing(c, d); break;
    case DEPLOYMENT_READY: step_ready(c, d); break;
    case DEPLOYMENT_SERVING: step_serving(c, d); break;
    case DEPLOYMENT_BROKEN: step_broken(c, d); break;
    case DEPLOYMENT_STOPPING: step_stopping(c, d); break;
    default: break;
    }
}

void deployments_advance(struct core *c)
{
    drains_advance(c);
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        /* A step may open the way for the next; each state is passed at most once, so that nothing
         * goes round here. */
        for (int n = 0, before = -1; n < DEPLOYMENT_STATE_COUNT && d->state != before; n++) {
            before = d->state;
            step(c, d);
        }
        slices_advance(c, d);
        sequences_admit(c, d);
    }
    bool swept = false;
    for (size_t i = c->n_deployments; i-- > 0;)
        if (c->deployments[i]->state == DEPLOYMENT_STOPPED) {
            deployment_free(c->deployments[i]);
            core_array_remove(c->deployments, &c->n_deployments, sizeof *c->deployments, i);
            swept = true;
        }
    if (swept)
        core_models_sweep(c);
}

/* ---- what happens to its agents
 * ---------------------------------------------------------------------------------------- */

void deployments_member_joined(struct core *c, struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment_stage *s = stages_of_member(c->deployments[i], m);
        if (s)
            stages_joined(c, c->deployments[i], s);
    }
}

void deployments_member_ready(struct core *c, struct member *m)
{
    (void)m;
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        d->retry = d->retry || d->state == DEPLOYMENT_BROKEN;
        /* On its way to fewer agents while those that served it are all here again: the old places
         * hold the weights. */
        json_t *layout = d->state == DEPLOYMENT_PREPARING && !d->recovering && d->served
                             ? deployment_layout(d)
                             : NULL;
        if (layout &&
            !json_equal(json_object_get(layout, "stages"), json_object_get(d->served, "stages")) &&
            deployment_layout_usable(c, d->served)) {
            struct err e = {0};
            err_set(&e, HP_ELINK, "\"%s\" goes back to the agents that served it", d->name);
            deployment_break(c, d, &e);
        }
        json_decref(layout);
    }
}

void deployments_member_lost(struct core *c, struct member *m, const char *why)
{
    struct err e = {0};
    err_set(&e, HP_ELINK, "%s", why);
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        struct deployment_stage *s = stages_of_member(d, m);
        if (!s)
            continue;
        if (d->state == DEPLOYMENT_PREPARING && d->recovering)
            s->status = STAGE_UNTOLD;
        else if (d->state == DEPLOYMENT_PREPARING || d->state == DEPLOYMENT_SERVING)
            deployment_break(c, d, &e);
    }
}

void deployments_member_drains(struct core *c, struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        if (!stages_of_member(d, m))
            continue;
        /* One that serves moves in its next step. */
        if (d->state == DEPLOYMENT_PREPARING) {
            struct err e = {0};
            err_set(&e, HP_ELINK, "agent \"%s\" is being drained", m->name);
            deployment_break(c, d, &e);
        }
    }
}

void deployments_member_stays(struct core *c, struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        if (d->moving && !stages_drain(d)) {
            d->moving = false;
            d->until_ns = 0;
        }
    }
    deployments_member_ready(c, m);
}

void deployments_peer_gone(struct core *c, uint64_t peer)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        if (d->listener_peer == peer)
            d->listener_peer = d->listener_ask = 0;
        if (d->stop_peer == peer)
            d->stop_peer = d->stop_ask = 0;
    }
}

bool deployments_use_member(struct core *c, const struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (stages_of_member(c->deployments[i], m))
            return true;
    return false;
}

/* ---- deploy
 * ----------------------------------------------------------------------------------------------------------------
 */

static int name_check(const char *name, struct err *e)
{
    size_t n = strlen(name);
    if (n == 0 || n >= DEPLOYMENT_NAME)
        return err_set(e, HP_EINVAL, "the name of a deployment has 1 to %d characters",
                       DEPLOYMENT_NAME - 1);
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", name[i]))
            return err_set(e, HP_EINVAL,
                           "\"%s\" cannot name a deployment: letters, digits, '-', '_' and '.' can",
                           name);
    return 0;
}

/* One of this name is there. The same model: its options hold from the next plan on, and who asks
 * hears how it goes. */
static int deploy_again(struct core *c, struct deployment *d, const struct core_model_slot *model,
                        uint64_t peer, uint64_t ask, struct deployment_spec *spec, struct err *e)
{
    bool serving = d->state == DEPLOYMENT_SERVING, fixed = serving || d->state == DEPLOYMENT_READY;
    if (d->model != model || (fixed && !json_equal(d->spec.options, spec->options))) {
        err_set(e, HP_EEXIST, "\"%s\" is deployed already%s", d->name,
                d->model != model ? ", of another model" : " with other options");
        return err_hint(e, "choose another --name, or hpctl undeploy %s first", d->name);
    }
    if (serving) {
        json_t *result = deployment_describe(c, d, true);
        json_object_set_new(result, "phase", json_string("serving"));
        core_answer(c, peer, ask, false, result);
        deployment_spec_free(spec);
        return 0;
    }
    struct err gone = {0};
    err_set(&gone, HP_ECANCELED, "somebody else went on with the deployment of \"%s\"", d->name);
    listener_answer(c, d, NULL, &gone);
    if (!json_equal(d->spec.options, spec->options)) {
        /* Asked for differently: nothing of the old plan is kept. */
        if (d->state == DEPLOYMENT_PREPARING)
            deployment_break(c, d, &gone);
        json_decref(d->served);
        d->served = NULL;
        deployment_wish_forget(d);
        stages_free(d);
    }
    placement_cancel(d);
    deployment_spec_free(&d->spec);
    d->spec = *spec;
    d->listener_peer = peer;
    d->listener_ask = ask;
    d->retry = true;
    for (int i = 0; i < d->n_stages; i++)
        d->stages[i].n_asked = 0;
    deployment_keep(c, d);
    stages_tell(c, d, true);
    return 0;
}

static int deploy_new(struct core *c, const char *name, struct core_model_slot *model,
                      uint64_t peer, uint64_t ask, struct deployment_spec *spec, struct err *e)
{
    if (c->n_deployments >= CORE_MAX_DEPLOYMENTS)
        return err_set(e, HP_ELIMIT, "%d deployments are the limit", CORE_MAX_DEPLOYMENTS);
    struct deployment *d = calloc(1, sizeof *d);
    struct deployment **place =
        d ? core_array_add(&c->deployments, &c->n_deployments, sizeof *place) : NULL;
    if (!place) {
        free(d);
        return err_set(e, HP_ENOMEM, "no memory for a deployment");
    }
    *place = d;
    core_text_set(d->name, sizeof d->name, name);
    d->id = c->next_deployment++;
    d->created_s = core_unix_s(c);
    d->since_ns = core_now(c);
    d->next_sequence = c->boot << 32 | 1;
    d->spec = *spec;
    d->model = model;
    d->listener_peer = peer;
    d->listener_ask = ask;
    core_keep_json(c, "meta", "next_deployment", json_integer((json_int_t)c->next_deployment));
    deployment_keep(c, d);
    return 0;
}

int deployments_deploy(struct core *c, uint64_t peer, uint64_t ask, const char *name,
                       json_t *options, struct pack_span manifest, struct err *e)
{
    struct deployment_spec spec;
    struct core_model_slot *model;
    int rc = name_check(name, e);
    if (rc < 0 || (rc = deployment_spec_read(options, &spec, e)) < 0)
        return rc;
    rc = core_model_use(c, manifest, &model, e);
    if (rc == 0) {
        struct deployment *d = deployment_find(c, name);
        rc = d ? deploy_again(c, d, model, peer, ask, &spec, e)
               : deploy_new(c, name, model, peer, ask, &spec, e);
    }
    if (rc < 0) {
        deployment_spec_free(&spec);
        core_models_sweep(c);
    }
    return rc;
}
