/* The loop's half of placement: what the spec asks for, whether a plan that has come is still good,
 * and its stages. */
#include "coordinator/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/core_int.h"
#include "coordinator/costs.h"
#include "coordinator/placement_int.h"
#include "planners/pipeline/predict.h"

/* So often a plan is made anew because something has changed; after that it is taken if its agents
 * still have the room. */
enum { OUTDATED_LIMIT = 3 };

void placement_free(struct placement *p)
{
    free(p->stages);
    json_decref(p->document);
    *p = (struct placement){0};
}

static void placing_free(struct placing *p)
{
    json_decref(p->answer.document);
    arena_free(&p->arena);
    planner_inputs_release(&p->inputs);
    free(p);
}

static struct member *member_of_device(struct core *c, const char *id)
{
    char name[MEMBER_NAME];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(id, "/"), id);
    return member_find(c, name);
}

/* By name, or by the id of its device. */
static struct member *member_named(const struct placing *p, const char *text)
{
    struct member *m = member_find(p->core, text);
    for (size_t i = 0; !m && i < p->core->n_members; i++)
        if (p->core->members[i]->node && strcmp(costs_paced_as(p->core->members[i]), text) == 0)
            m = p->core->members[i];
    return m                                                     ? m
           : cluster_find_device(&p->inputs->cluster, text) >= 0 ? member_of_device(p->core, text)
                                                                 : NULL;
}

/* ---- what the spec asks for
 * ------------------------------------------------------------------------------ */

static int range_check(const struct deployment *d, const struct member *m, int i, struct err *e)
{
    const struct deployment_spec *s = &d->spec;
    const struct deployment_range *r = &s->ranges[i];
    if (!m)
        return err_set(e, HP_ENOENT, "there is no %s \"%s\" in this cluster",
                       s->planned ? "device" : "agent", r->agent);
    if (!member_available(m))
        return err_set(e, HP_ELINK, "agent \"%s\" is %s", r->agent, member_states[m->state].word);
    if (!s->with_layers)
        return 0;
    int n = d->model->facts.n_layers, before = i ? s->ranges[i - 1].end : 0;
    if (r->first > before)
        return err_set(e, HP_EINVAL,
                       "--layers leaves out layer %d%s: every layer belongs to one agent", before,
                       r->first - before > 1 ? " and more" : "");
    if (r->first < before)
        return err_set(e, HP_EINVAL, "--layers gives layer %d to two agents", r->first);
    if (r->end > n)
        return err_set(e, HP_EINVAL, "--layers names layer %d; the last layer of this model is %d",
                       r->end - 1, n - 1);
    if (i == s->n_ranges - 1 && r->end < n)
        return err_set(e, HP_EINVAL,
                       "--layers ends at layer %d; the last layer of this model is %d", r->end - 1,
                       n - 1);
    return 0;
}

static int ranges_read(struct placing *p, const struct deployment *d, struct err *e)
{
    const struct deployment_spec *s = &d->spec;
    if (s->n_ranges == 0)
        return 0;
    p->devices = arena_alloc(&p->arena, (size_t)s->n_ranges, sizeof *p->devices);
    p->ends = arena_alloc(&p->arena, (size_t)s->n_ranges, sizeof *p->ends);
    p->ranges = arena_alloc(&p->arena, (size_t)s->n_ranges, sizeof *p->ranges);
    if (!p->devices || !p->ends || !p->ranges)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    p->n_devices = s->n_ranges;
    for (int i = 0; i < s->n_ranges; i++) {
        const struct member *m = member_named(p, s->ranges[i].agent);
        int rc = range_check(d, m, i, e);
        if (rc < 0)
            return rc;
        p->ranges[i] = (struct placing_range){arena_strdup(&p->arena, m->name), s->ranges[i].first,
                                              s->ranges[i].end};
        if (!p->ranges[i].agent)
            return err_set(e, HP_ENOMEM, "no memory for planning");
        p->devices[i] = planner_inputs_device(p->inputs, m->name);
        p->ends[i] = s->ranges[i].end;
    }
    if (!s->with_layers)
        p->ends = NULL;
    return 0;
}

/* ---- the work, there and back
 * ---------------------------------------------------------------------------- */

static void placing_run(struct work *w)
{
    placing_search((struct placing *)w);
}

static void placing_done(struct work *w, bool dropped)
{
    struct placing *p = (struct placing *)w;
    struct deployment *d = dropped ? NULL : deployment_of_id(p->core, p->deployment);
    if (!dropped)
        p->core->n_planning--;
    if (d && d->placing == p)
        d->placed = true; /* the next step takes it */
    else
        placing_free(p);
}

void placement_cancel(struct deployment *d)
{
    struct placing *p = d->placing;
    d->placing = NULL;
    d->outdated = 0;
    if (p && d->placed)
        placing_free(p);
    else if (p)
        atomic_store(&p->work.canceled, true);
    d->placed = false;
}

/* The layout of this model that served last, where all its agents may be given stages now. */
static void last_read(const struct core *c, struct placing *p, const struct deployment *d)
{
    const json_t *rows = layouts_find(c, d->model->id);
    int n = (int)json_array_size(rows);
    p->last_devices = n ? arena_alloc(&p->arena, (size_t)n, sizeof *p->last_devices) : NULL;
    p->last_ends = n ? arena_alloc(&p->arena, (size_t)n, sizeof *p->last_ends) : NULL;
    for (int i = 0; p->last_devices && p->last_ends && i < n; i++) {
        const char *agent =
            json_string_value(json_object_get(json_array_get(rows, (size_t)i), "agent"));
        p->last_devices[i] = agent ? planner_inputs_device(p->inputs, agent) : -1;
        p->last_ends[i] =
            (int)json_integer_value(json_object_get(json_array_get(rows, (size_t)i), "end_layer"));
        if (p->last_devices[i] < 0)
            return;
        p->n_last = i + 1 == n ? n : 0;
    }
}

static int placing_create(struct core *c, struct deployment *d, struct placing **out, struct err *e)
{
    struct placing *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    p->work.run = placing_run;
    p->work.done = placing_done;
    p->core = c;
    p->deployment = d->id;
    p->env = c->env;
    p->planned = d->spec.planned;
    p->plan_tokens = d->spec.plan_tokens;
    p->max_slice = (int)deployment_batch_tokens(&d->spec);
    p->max_context = d->spec.max_context;
    p->trained_context = d->model->facts.context;
    /* A plan is for prompts of its length, and for its micro-batches at once. */
    p->least_sequences = d->spec.micro_batches > 1 ? (uint64_t)d->spec.micro_batches : 1;
    p->max_sequences = d->spec.max_sequences;
    p->most_sequences = p->max_sequences ? p->max_sequences : c->config.max_sequences;
    int rc = planner_inputs_get(c, d, &p->inputs, e);
    if (rc == 0)
        rc = ranges_read(p, d, e);
    if (rc == 0 && !p->devices)
        last_read(c, p, d);
    if (rc < 0) {
        placing_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

/* 1: it is on its way, or waits for its turn. */
static int placing_start(struct core *c, struct deployment *d, struct err *e)
{
    struct placing *p = NULL;
    if (c->n_planning >= CORE_MAX_PLANNING)
        return 1;
    int rc = placing_create(c, d, &p, e);
    if (rc < 0)
        return rc;
    if (core_work_add(c, &p->work, NULL, e) < 0) {
        placing_free(p);
        return 1; /* the next tick asks again */
    }
    c->n_planning++;
    d->placing = p;
    d->placed = false;
    return 1;
}

/* ---- a plan that has come
 * -------------------------------------------------------------------------------- */

/* Its agents may be given stages and have the room. */
static bool placement_usable(struct core *c, const struct deployment *d, const struct placement *p)
{
    for (int i = 0; i < p->n_stages; i++)
        if (!p->stages[i].agent || !member_available(p->stages[i].agent) ||
            p->stages[i].memory_bytes > costs_free_bytes(c, d, p->stages[i].agent))
            return false;
    return true;
}

static int placement_fill(struct core *c, const struct deployment *d, const struct placing *p,
                          struct placement *out, struct err *e)
{
    const struct pipeline_answer *a = &p->answer;
    const struct planner_inputs *in = p->inputs;
    *out = (struct placement){.context = p->context,
                              .sequences = p->sequences,
                              .tokens = p->tokens,
                              .n_stages = a->plan.n_stages};
    out->stages = calloc((size_t)a->plan.n_stages, sizeof *out->stages);
    if (!out->stages)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    out->max_sequences = placing_open_sequences(p, out->context, out->sequences);
    uint64_t kv = placing_kv_tokens(p, out->context, out->sequences);
    for (int i = 0; i < out->n_stages; i++) {
        const struct plan_stage *s = &a->plan.stages[i];
        out->stages[i] = (struct placement_stage){member_of_device(c, s->device), s->first_layer,
                                                  s->end_layer, s->compute_s, 0};
        if (!out->stages[i].agent)
            return err_set(e, HP_ELINK, "the plan names %s, which is no member any more",
                           s->device);
        int device = cluster_find_device(&in->cluster, s->device);
        out->stages[i].memory_bytes = device < 0 ? 0 : in->workspace_bytes[device];
        for (int l = s->first_layer; l < s->end_layer; l++)
            out->stages[i].memory_bytes +=
                in->resident_bytes[l] + in->state_bytes_per_token[l] * (double)kv;
    }
    out->document = json_incref(a->document);
    json_object_set_new(out->document, "inputs", json_array());
    static const char *const given[] = {"solver", "slices", "micro_batches", "predicted"};
    for (size_t i = 0; d->spec.planned && i < sizeof given / sizeof *given; i++)
        json_object_set(out->document, given[i],
                        json_object_get(json_object_get(d->spec.options, "plan"), given[i]));
    return 0;
}

/* 1: it was outdated, and another is on its way. */
static int placing_take(struct core *c, struct deployment *d, struct placement *out, struct err *e)
{
    struct placing *p = d->placing;
    bool changed = planner_inputs_version(c, d) != p->inputs->version;
    int rc = p->status;
    d->placing = NULL;
    d->placed = false;
    if (rc == 0)
        rc = placement_fill(c, d, p, out, e);
    else
        *e = p->error;
    if (rc < 0)
        placement_free(out);
    bool again =
        changed && (d->outdated < OUTDATED_LIMIT || (rc == 0 && !placement_usable(c, d, out)));
    placing_free(p);
    if (!again) {
        d->outdated = 0;
        return rc;
    }
    log_info("coordinator", "plan_outdated", "deployment=%s", d->name);
    placement_free(out);
    d->outdated++;
    return placing_start(c, d, e);
}

/* ---- the face
 * -------------------------------------------------------------------------------------------- */

int placement_make(struct core *c, struct deployment *d, struct placement *out, struct err *e)
{
    uint64_t trained = d->model->facts.context;
    *out = (struct placement){0};
    if (trained && d->spec.max_context > trained)
        return err_set(e, HP_EINVAL, "--max-context %llu is more than the model's %llu",
                       (unsigned long long)d->spec.max_context, (unsigned long long)trained);
    if (d->placing)
        return d->placed ? placing_take(c, d, out, e) : 1;
    return placing_start(c, d, e);
}

int placement_unmeasured(struct core *c, const struct deployment *d, struct member **out, int max)
{
    int n = 0;
    for (size_t i = 0; i < c->n_members && n < max; i++) {
        struct member *m = c->members[i];
        const json_t *tables =
            core_profile_find(c, d->model->id, m->kind, d->spec.f32 ? "f32" : "auto");
        const json_t *pace = json_object_get(json_object_get(m->node, "paced"), "profile");
        bool known = !member_available(m) ||
                     (tables && (!pace || json_equal(pace, json_object_get(tables, "pace"))));
        for (int k = 0; k < n; k++)
            known = known || strcmp(out[k]->kind, m->kind) == 0;
        if (!known)
            out[n++] = m;
    }
    return n;
}

int placement_predict(struct core *c, struct deployment *d, const int *slices, int n,
                      struct arena *arena, struct pipeline_schedule *out, struct err *e)
{
    struct planner_inputs *in = NULL;
    int rc = planner_inputs_get(c, d, &in, e);
    if (rc < 0)
        return rc;
    struct plan_pipeline plan = {.n_stages = d->n_stages,
                                 .stages =
                                     arena_alloc(arena, (size_t)d->n_stages, sizeof *plan.stages)};
    rc = plan.stages ? 0 : err_set(e, HP_ENOMEM, "no memory for a prediction");
    for (int i = 0; rc == 0 && i < d->n_stages; i++) {
        int device = planner_inputs_device(in, d->stages[i].agent->name);
        if (device < 0)
            rc = err_set(e, HP_ELINK, "agent \"%s\" is not here now", d->stages[i].agent->name);
        else
            plan.stages[i] = (struct plan_stage){.device = in->cluster.devices[device].id,
                                                 .first_layer = d->stages[i].first_layer,
                                                 .end_layer = d->stages[i].end_layer};
    }
    if (rc == 0)
        rc = predict_schedule(&in->cluster, &in->profile, &plan, slices, n, 0, in->stands_for,
                              arena, out, e);
    planner_inputs_release(&in);
    return rc;
}
