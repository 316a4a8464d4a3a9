#include "coordinator/profiling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/manifest.h"
#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/asks.h"
#include "coordinator/effects.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement.h"
#include "coordinator/profile_check.h"
#include "coordinator/profiles.h"

static void ask_free(struct profiling_ask *p)
{
    for (size_t i = 0; i < p->n_runs; i++)
        json_decref(p->runs[i].tables);
    free(p->runs);
}

static struct profiling_run *run_find(struct coord *c, uint64_t id, struct profiling_ask **out)
{
    for (size_t i = 0; id && i < c->n_profilings; i++)
        for (size_t k = 0; k < c->profilings[i].n_runs; k++)
            if (c->profilings[i].runs[k].id == id) {
                *out = &c->profilings[i];
                return &c->profilings[i].runs[k];
            }
    return NULL;
}

/* ---- the end ---- */

/* Answers that come later find no relay and are ignored. */
static void profiling_remove(struct coord *c, struct profiling_ask *p)
{
    for (size_t i = 0; i < p->n_runs; i++) {
        struct agent_ask *r =
            p->runs[i].id ? asks_find(c, p->runs[i].id, MESSAGE_PROFILE_RESULT) : NULL;
        if (r)
            asks_end(c, r);
    }
    ask_free(p);
    vector_remove(c->profilings, c->n_profilings, (size_t)(p - c->profilings));
}

static void ask_fail(struct coord *c, struct profiling_ask *p, const struct err *why)
{
    effects_answer_error(c, p->peer, p->ask, why);
    profiling_remove(c, p);
}

/* A layer as profiles have it: its weights are what the device holds once they are loaded. */
static json_t *layer_of(const json_t *measured)
{
    json_t *layer = json_deep_copy(measured);
    const json_t *resident = json_object_get(layer, "resident_bytes");
    if (json_number_value(resident) > 0)
        json_object_set_new(layer, "param_bytes", json_deep_copy(resident));
    return layer;
}

/* The figures of every kind in one hp-profile/1. A kind's own notes (source, useful slice, batch)
 * stand beside the tables, by kind. */
static json_t *profile_document(const struct profiling_ask *p)
{
    json_t *latency = json_object(), *source = json_object(), *useful = json_object(),
           *layers = json_array(), *l;
    size_t i;
    json_array_foreach(json_object_get(p->runs[0].tables, "layers"), i, l)
        json_array_append_new(layers, layer_of(l));
    json_t *doc =
        json_pack("{s:s, s:s, s:o}", "format", "hp-profile/1", "model", p->name, "layers", layers);
    for (size_t k = 0; k < p->n_runs; k++) {
        json_t *own = json_deep_copy(p->runs[k].tables), *batch = json_object_get(own, "batch");
        if (batch)
            json_object_set(doc, "batch", batch);
        if (json_object_get(own, "source"))
            json_object_set(source, p->runs[k].kind, json_object_get(own, "source"));
        if (json_object_get(own, "useful_slice"))
            json_object_set(useful, p->runs[k].kind, json_object_get(own, "useful_slice"));
        static const char *const beside[] = {"layers", "batch",     "source", "useful_slice",
                                             "pace",   "corrected", "scratch"};
        for (size_t b = 0; b < sizeof beside / sizeof *beside; b++)
            json_object_del(own, beside[b]);
        json_object_set_new(latency, p->runs[k].kind, own);
    }
    json_object_set_new(doc, "latency", latency);
    json_object_set_new(doc, "source", source);
    json_object_set_new(doc, "useful_slice", useful);
    return doc;
}

/* Takes the tables of one agent, and keeps them as what is known of its kind. HP_EPROTO: they are
 * none; what the agent says; HP_ENOMEM. */
static int run_result(struct coord *c, const struct profiling_ask *p, struct profiling_run *run,
                      const char *agent, const struct message_profile_result *r, struct err *e)
{
    json_error_t ignored;
    struct err why = {0};
    const struct model_slot *model = model_slot_find(c, p->model);
    if (r->code[0] && strcmp(r->code, "ok") != 0)
        return err_set(e, coord_failure_code(r->code),
                       "agent \"%s\" could not measure the model: %s", agent, r->text);
    run->tables = json_loads(r->tables, JSON_REJECT_DUPLICATES, &ignored);
    if (!json_is_array(json_object_get(run->tables, "layers")))
        err_set(&why, HP_EPROTO, "it has no layers");
    else
        profile_check(model && model->open ? &model->facts : NULL, p->f32, run->tables, &why);
    if (why.code)
        return err_set(e, HP_EPROTO,
                       "agent \"%s\" could not measure the model: its answer is no profile: %s",
                       agent, why.text);
    return profiles_set(c, p->model, run->kind, p->f32 ? "f32" : "auto", json_incref(run->tables),
                        e);
}

/* True when the result was one that hpctl waits for. */
static bool ask_result(struct coord *c, struct member *m, uint64_t id,
                       const struct message_profile_result *r)
{
    struct profiling_ask *p;
    struct profiling_run *run = run_find(c, id, &p);
    struct agent_ask *relay = run ? asks_find(c, id, MESSAGE_PROFILE_RESULT) : NULL;
    struct err e = {0};
    if (!run || strcmp(run->agent, m->name) != 0)
        return run != NULL;
    if (relay)
        asks_end(c, relay);
    run->id = 0;
    if (run_result(c, p, run, m->name, r, &e) < 0) {
        ask_fail(c, p, &e);
        return true;
    }
    for (size_t i = 0; i < p->n_runs; i++)
        if (p->runs[i].id)
            return true;
    effects_answer(c, p->peer, p->ask, false, profile_document(p));
    profiling_remove(c, p);
    return true;
}

void profiling_progress(struct coord *c, struct member *m, uint64_t id,
                        const struct message_profile_progress *g)
{
    struct profiling_ask *p;
    const struct profiling_run *run = run_find(c, id, &p);
    if (run && strcmp(run->agent, m->name) == 0)
        effects_answer(c, p->peer, p->ask, true,
                       json_pack("{s:s, s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "phase", "profile",
                                 "agent", m->name, "kind", run->kind, "what", g->what, "points",
                                 (json_int_t)g->points, "elapsed_s", g->elapsed_s, "budget_s",
                                 g->budget_s, "error", g->error));
}

void profiling_peer_gone(struct coord *c, uint64_t peer)
{
    for (size_t i = c->n_profilings; i-- > 0;)
        if (c->profilings[i].peer == peer)
            profiling_remove(c, &c->profilings[i]);
}

/* Why a measurement cannot go on; false while it can. */
static bool ask_is_hopeless(struct coord *c, const struct profiling_ask *p, struct err *e)
{
    for (size_t i = 0; i < p->n_runs; i++) {
        const struct profiling_run *run = &p->runs[i];
        const struct member *m = member_find(c, run->agent);
        const struct agent_ask *r = run->id ? asks_find(c, run->id, MESSAGE_PROFILE_RESULT) : NULL;
        if (run->id && (!m || !member_present(m)))
            return err_set(e, HP_ELINK, "agent \"%s\" was lost while it measured", run->agent) < 0;
        if (run->id && (!r || coord_now(c) >= r->until_ns))
            return err_set(e, HP_ETIMEOUT, "agent \"%s\" has not said what it measured",
                           run->agent) < 0;
    }
    return false;
}

void profiling_tick(struct coord *c)
{
    for (size_t i = c->n_profilings; i-- > 0;) {
        struct err e = {0};
        if (ask_is_hopeless(c, &c->profilings[i], &e))
            ask_fail(c, &c->profilings[i], &e);
    }
}

/* ---- the beginning ---- */

static int run_add(struct profiling_ask *p, const struct member *m, int device, struct err *e)
{
    const char *kind = member_kind(m, device);
    for (size_t i = 0; i < p->n_runs; i++)
        if (strcmp(p->runs[i].kind, kind) == 0)
            return 0; /* one device of a kind speaks for all */
    if (p->n_runs == PROFILING_MAX_AGENTS)
        return err_set(e, HP_ELIMIT, "more than %d kinds of devices: name the nodes to measure on",
                       PROFILING_MAX_AGENTS);
    struct profiling_run *run = vector_add(p->runs, p->n_runs, p->room_runs);
    if (!run)
        return err_set(e, HP_ENOMEM, "no memory for a measurement");
    utf8_copy(run->agent, sizeof run->agent, m->name);
    utf8_copy(run->kind, sizeof run->kind, kind);
    run->device = device;
    return 0;
}

static int runs_add(struct profiling_ask *p, const struct member *m, struct err *e)
{
    int rc = 0;
    for (int k = 0; rc == 0 && k < member_device_count(m); k++)
        rc = run_add(p, m, k, e);
    return rc;
}

static int runs_choose(struct coord *c, struct profiling_ask *p, const json_t *nodes, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(nodes); i++) {
        const char *name = json_string_value(json_array_get(nodes, i));
        const struct member *m = name ? member_find(c, name) : NULL;
        if (!m)
            return member_missing(c, name ? name : "", e);
        if (!member_available(m))
            return err_set(e, HP_ELINK, "agent \"%s\" is %s", m->name,
                           member_states[m->state].word);
        if (deployments_use(c, m)) {
            err_set(e, HP_EBUSY,
                    "agent \"%s\" holds stages of a deployment, which measuring would stop",
                    m->name);
            return err_hint(e, "name others, or undeploy first");
        }
        rc = runs_add(p, m, e);
    }
    for (size_t i = 0; rc == 0 && !nodes && i < c->n_members; i++)
        if (member_available(c->members[i]) && !deployments_use(c, c->members[i]))
            rc = runs_add(p, c->members[i], e);
    if (rc < 0 || p->n_runs)
        return rc;
    err_set(e, HP_EBUSY,
            "no agent is ready that holds no stages: measuring would stop what it serves");
    return err_hint(e, "`hpctl undeploy` frees agents (`hpctl ps` shows which), or let another one "
                       "join and name it with --nodes");
}

static int runs_order(struct coord *c, struct profiling_ask *p, const struct digest *id,
                      struct pack_span manifest, double budget_s, struct err *e)
{
    for (size_t i = 0; i < p->n_runs; i++) {
        uint64_t limit = coord_now(c) + coord_ms((uint64_t)(budget_s * 2000) + PROFILING_GRACE_MS);
        struct agent_ask *r =
            asks_add(c, MESSAGE_PROFILE_RESULT, member_find(c, p->runs[i].agent), 0, 0, limit);
        if (!r)
            return err_set(e, HP_EBUSY, "too many questions wait for agents");
        r->f32 = p->f32;
        p->runs[i].id = r->id;
        struct message m = {.type = MESSAGE_PROFILE_RUN, .id = r->id};
        m.u.profile_run = (struct message_profile_run){.model = {id->bytes, sizeof id->bytes},
                                                       .manifest = manifest,
                                                       .compute = p->f32 ? "f32" : "auto",
                                                       .budget_ms = (uint64_t)(budget_s * 1000),
                                                       .fine = true,
                                                       .device = (uint64_t)p->runs[i].device};
        effects_send(c, member_find(c, p->runs[i].agent)->peer, &m);
    }
    return 0;
}

int profiling_start(struct coord *c, uint64_t peer, uint64_t ask, const json_t *arguments,
                    struct pack_span manifest, struct err *e)
{
    struct arena arena = {0};
    struct manifest decoded;
    const char *compute = json_string_value(json_object_get(arguments, "compute"));
    double budget_s = json_number_value(json_object_get(arguments, "budget_s"));
    int rc = manifest_decode(manifest.data, manifest.size, &arena, &decoded, e);
    if (rc == 0 && (!isfinite(budget_s) || budget_s <= 0 || budget_s > PROFILING_MAX_BUDGET_S))
        rc = err_set(e, HP_EINVAL, "\"budget_s\" is not above 0 and at most %d",
                     PROFILING_MAX_BUDGET_S);
    struct profiling_ask *p =
        rc < 0 ? NULL : vector_add(c->profilings, c->n_profilings, c->room_profilings);
    if (rc == 0 && !p)
        rc = err_set(e, HP_ENOMEM, "no memory for a measurement");
    if (rc == 0) {
        struct digest id = manifest_id(manifest.data, manifest.size);
        digest_hex(&id, p->model);
        utf8_copy(p->name, sizeof p->name, decoded.name);
        p->peer = peer;
        p->ask = ask;
        p->f32 = compute && strcmp(compute, "f32") == 0;
        rc = runs_choose(c, p, json_object_get(arguments, "nodes"), e);
        rc = rc < 0 ? rc : runs_order(c, p, &id, manifest, budget_s, e);
        if (rc < 0)
            profiling_remove(c, p);
    }
    arena_free(&arena);
    return rc;
}

/* ---- for a deployment ---- */

bool profiling_awaited(struct coord *c, struct deployment *d)
{
    struct placement_device devices[32];
    uint64_t now = coord_now(c);
    if (c->config.profile_ms == UINT64_MAX || (d->served && !d->rebalance) ||
        (d->profile_until_ns && now >= d->profile_until_ns))
        return false;
    int n = placement_unmeasured(c, d, devices, 32);
    if (n == 0 || d->profile_until_ns)
        return n > 0;
    d->profile_until_ns = now + coord_ms(2 * c->config.profile_ms + 2000);
    struct digest id;
    if (digest_from_hex(d->model->id, &id, NULL) < 0)
        return false;
    for (int i = 0; i < n; i++) {
        const struct member *m = devices[i].agent;
        struct agent_ask *r =
            asks_add(c, MESSAGE_PROFILE_RESULT, m, 0, 0, d->profile_until_ns + coord_ms(60000));
        if (!r)
            return false;
        utf8_copy(r->kind, sizeof r->kind, member_kind(m, devices[i].device));
        utf8_copy(r->what, sizeof r->what, d->model->id);
        r->f32 = d->spec.f32;
        struct message run = {.type = MESSAGE_PROFILE_RUN, .id = r->id};
        run.u.profile_run =
            (struct message_profile_run){.model = {id.bytes, sizeof id.bytes},
                                         .manifest = {d->model->manifest, d->model->manifest_size},
                                         .compute = deployment_spec_compute(&d->spec),
                                         .budget_ms = c->config.profile_ms,
                                         .device = (uint64_t)devices[i].device};
        effects_send(c, m->peer, &run);
        if (d->listener_ask)
            effects_answer(c, d->listener_peer, d->listener_ask, true,
                           json_pack("{s:s, s:s, s:s}", "phase", "profile", "agent", m->name,
                                     "kind", r->kind));
    }
    return true;
}

/* Whoever waits for a measurement goes on with an estimate. */
static void profiles_expect_none(struct coord *c)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (c->deployments[i]->profile_until_ns)
            c->deployments[i]->profile_until_ns = coord_now(c);
}

/* Of what was asked, whatever the answer says that it is of. */
static void plan_result(struct coord *c, struct member *m, const struct agent_ask *asked,
                        const struct message_profile_result *r)
{
    const char *id = asked->what;
    struct model_slot *model = model_slot_find(c, id);
    if (!model)
        return;
    if (r->code[0] && strcmp(r->code, "ok") != 0) {
        log_warn("coordinator", "profile_failed", "agent=%s model=%.12s why=\"%s\"", m->name, id,
                 r->text);
        profiles_expect_none(c);
        return;
    }
    json_error_t why = {0};
    struct err e = {0};
    json_t *tables = json_loads(r->tables, JSON_REJECT_DUPLICATES, &why);
    int rc = tables ? profile_check(model->open ? &model->facts : NULL, asked->f32, tables, &e)
                    : err_set(&e, HP_EPARSE, "%s", why.text);
    bool times = profiles_classes_of(tables) > 0;
    if (rc < 0) {
        log_warn("coordinator", "profile_refused", "agent=%s model=%.12s why=\"%s\"", m->name, id,
                 e.text);
        json_decref(tables);
        profiles_expect_none(c);
    } else if (profiles_set(c, id, asked->kind, asked->f32 ? "f32" : "auto", tables, &e) < 0) {
        log_warn("coordinator", "profile_lost", "agent=%s why=\"%s\"", m->name, e.text);
    } else if (!times) {
        log_warn("coordinator", "profile_without_times",
                 "agent=%s model=%.12s why=\"its device has no room for a layer at work\"", m->name,
                 id);
        profiles_expect_none(c);
    }
}

void profiling_result(struct coord *c, struct member *m, uint64_t id,
                      const struct message_profile_result *r)
{
    if (ask_result(c, m, id, r))
        return;
    struct agent_ask *waiting = asks_answered(c, m, id, MESSAGE_PROFILE_RESULT);
    if (!waiting)
        return;
    struct agent_ask asked = *waiting;
    asks_end(c, waiting);
    plan_result(c, m, &asked, r);
}

void profiling_free(struct coord *c)
{
    for (size_t i = 0; i < c->n_profilings; i++)
        ask_free(&c->profilings[i]);
    free(c->profilings);
}
