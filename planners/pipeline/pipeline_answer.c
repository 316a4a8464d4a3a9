#include "planners/pipeline/pipeline_answer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "planners/pipeline/flow.h"

enum { MAX_WARNINGS = 16 };

static inline double greater_of(double a, double b)
{
    return a > b ? a : b;
}

/* One decode step, a token of each sequence through every stage and hop; and what a request takes
 * of the busiest one, when prompts take compute_s[stage] and wire_s[hop]. */
static void measure_decode(const struct pipeline_cost *c, const struct layout *l,
                           const double *compute_s, const double *wire_s,
                           struct pipeline_answer_figures *f)
{
    for (int j = 0; j < l->n_stages; j++) {
        double t = layout_stage_seconds(
            c, l, j, 1, (double)c->cached_tokens + c->tokens + c->decode_tokens / 2, c->batch);
        f->decode_step_s += t;
        f->decode_period_s = greater_of(f->decode_period_s, t);
        f->request_period_s = greater_of(f->request_period_s, compute_s[j] + c->decode_tokens * t);
        if (j + 1 == l->n_stages)
            continue;
        double wire =
            cost_wire_seconds(c, l->devices[j], l->devices[j + 1], l->ends[j], 1, c->batch);
        f->decode_step_s +=
            wire + c->hops[l->devices[j] * c->n_devices + l->devices[j + 1]].latency_s;
        f->decode_period_s = greater_of(f->decode_period_s, wire);
        f->request_period_s = greater_of(f->request_period_s, wire_s[j] + c->decode_tokens * wire);
    }
}

int pipeline_answer_measure(const struct pipeline_cost *c, const struct layout *l,
                            struct pipeline_answer_figures *out, struct pipeline_schedule *schedule,
                            struct err *e)
{
    struct layout_times t;
    struct pipeline_schedule own;
    struct pipeline_answer_figures f = {0};
    int rc = layout_time(c, l, &t, e);
    if (rc < 0 || (rc = flow_schedule(l->n_stages, t.n_pieces, t.compute_s, t.wire_s, t.latency_s,
                                      c->arena, &own, e)) < 0)
        return rc;
    size_t cells = (size_t)l->n_stages * (size_t)t.n_pieces;
    f.makespan_s = own.end_s[cells - 1];
    double *totals = arena_alloc(c->arena, 2 * (size_t)l->n_stages, sizeof *totals);
    if (!totals)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int j = 0; j < l->n_stages; j++) {
        double compute = 0, wire = 0;
        for (int k = 0; k < t.n_pieces; k++) {
            compute += t.compute_s[j * t.n_pieces + k];
            wire += t.wire_s[j * t.n_pieces + k];
        }
        totals[j] = compute;
        totals[l->n_stages + j] = wire;
        f.period_s = greater_of(f.period_s, greater_of(compute, wire));
        for (int g = 0; g < (l->groups ? l->group_sizes[j] : 1); g++) {
            const struct cost_device *d = &c->devices[l->groups ? l->groups[j][g] : l->devices[j]];
            f.energy_j += d->busy_w * compute + d->idle_w * (f.makespan_s - compute);
        }
    }
    measure_decode(c, l, totals, totals + l->n_stages, &f);
    *out = f;
    if (schedule)
        *schedule = own;
    return 0;
}

double pipeline_answer_value(enum pipeline_objective objective,
                             const struct pipeline_answer_figures *f)
{
    return objective == PIPELINE_ENERGY       ? f->energy_j
           : objective == PIPELINE_THROUGHPUT ? f->request_period_s
                                              : f->makespan_s;
}

static const char *own_copy(struct arena *arena, const struct pipeline_cost *c, int device)
{
    return arena_strdup(arena, c->cluster->devices[c->devices[device].cluster_index].id);
}

static int fill_stage(const struct pipeline_cost *c, const struct layout *l, int j,
                      const struct pipeline_schedule *s, struct plan_stage *out)
{
    *out = (struct plan_stage){.device = own_copy(c->arena, c, l->devices[j]),
                               .first_layer = layout_first(l, j),
                               .end_layer = l->ends[j]};
    for (int k = 0; k < s->n_slices; k++)
        out->compute_s += s->end_s[j * s->n_slices + k] - s->start_s[j * s->n_slices + k];
    out->memory_bytes = layout_memory_bytes(c, l, j);
    if (!out->device)
        return HP_ENOMEM;
    if (!l->groups)
        return 0;
    out->devices = arena_alloc(c->arena, (size_t)l->group_sizes[j], sizeof *out->devices);
    for (int g = 0; out->devices && g < l->group_sizes[j]; g++)
        out->devices[out->n_devices++] = own_copy(c->arena, c, l->groups[j][g]);
    return out->devices ? 0 : HP_ENOMEM;
}

static void fill_figures(const struct pipeline_cost *c, const struct layout *l,
                         const struct plan_pipeline *p, struct pipeline_stage_figures *out)
{
    double busiest = 0;
    for (int j = 0; j < l->n_stages; j++)
        busiest = greater_of(busiest, p->stages[j].compute_s);
    for (int j = 0; j < l->n_stages; j++) {
        int first = layout_first(l, j), end = l->ends[j], g = l->groups ? l->group_sizes[j] : 1;
        out[j] = (struct pipeline_stage_figures){
            .weight_bytes = (c->param_sum[end] - c->param_sum[first]) / g,
            .kv_bytes = (c->state_sum[end] - c->state_sum[first]) * c->kv_tokens / g,
            .activation_bytes =
                (c->activation_sum[end] - c->activation_sum[first]) * c->tokens * c->batch,
            .free_bytes = c->devices[l->devices[j]].memory_bytes - p->stages[j].memory_bytes,
            .share = busiest > 0 ? p->stages[j].compute_s / busiest : 0,
        };
    }
}

int pipeline_answer_fill(const struct pipeline_cost *c, const struct layout *l,
                         struct pipeline_answer *out, struct err *e)
{
    struct pipeline_answer_figures f;
    int rc = pipeline_answer_measure(c, l, &f, &out->schedule, e);
    if (rc < 0)
        return rc;
    struct plan_pipeline *p = &out->plan;
    p->stages = arena_alloc(c->arena, (size_t)l->n_stages, sizeof *p->stages);
    p->slices = arena_alloc(c->arena, (size_t)l->n_slices, sizeof *p->slices);
    out->stages = arena_alloc(c->arena, (size_t)l->n_stages, sizeof *out->stages);
    if (!p->stages || !p->slices || !out->stages)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int j = 0; j < l->n_stages; j++)
        if (fill_stage(c, l, j, &out->schedule, &p->stages[p->n_stages++]) < 0)
            return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    fill_figures(c, l, p, out->stages);
    for (int k = 0; k < l->n_slices; k++)
        p->slices[p->n_slices++] = c->starts[l->cuts[k + 1]] - c->starts[l->cuts[k]];
    p->micro_batches = l->micro_batches;
    p->makespan_s = out->makespan_s = f.makespan_s;
    out->energy_j = f.energy_j;
    out->prompts_per_s = f.period_s > 0 ? 1 / f.period_s : 0;
    out->requests_per_s = f.request_period_s > 0 ? 1 / f.request_period_s : 0;
    out->decode_step_s = f.decode_step_s;
    out->decode_tokens_per_s = f.decode_period_s > 0 ? c->batch / f.decode_period_s : 0;
    return 0;
}

void pipeline_answer_warn(struct arena *arena, struct pipeline_answer *a, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!a->warnings)
        a->warnings = arena_alloc(arena, MAX_WARNINGS, sizeof *a->warnings);
    const char *copy = arena_strdup(arena, text);
    if (a->warnings && copy && a->n_warnings < MAX_WARNINGS)
        a->warnings[a->n_warnings++] = copy;
}

void pipeline_answer_warn_extrapolated(const struct pipeline_cost *c, const struct layout *l,
                                       struct pipeline_answer *a)
{
    double longest = 0, deepest = 0,
           batch = l->micro_batches > 0 ? c->batch / l->micro_batches : c->batch,
           scale = batch / c->profile->batch;
    for (int k = 0; k < (l->micro_batches > 0 ? 1 : l->n_slices); k++) {
        double slice = c->starts[l->cuts[k + 1]] - c->starts[l->cuts[k]];
        longest = greater_of(longest, slice * scale);
        deepest = greater_of(deepest, c->cached_tokens + c->starts[l->cuts[k]] +
                                          (slice - slice * scale) / 2);
    }
    for (int j = 0; j < l->n_stages; j++)
        for (int k = 0; k < c->n_classes; k++) {
            const struct profile_table *t =
                profile_table_of(c->profile, c->devices[l->devices[j]].kind, k);
            bool slice_beyond = t->n_x > 1 && longest > t->x[t->n_x - 1],
                 prefix_beyond = t->n_y > 1 && deepest > t->y[t->n_y - 1];
            if (slice_beyond || prefix_beyond) {
                pipeline_answer_warn(
                    c->arena, a,
                    "times are extrapolated: the plan has slices of %.0f tokens and "
                    "prefixes of %.0f, the profile's "
                    "table for %s on %s "
                    "ends at slice %.0f, prefix %.0f",
                    longest, deepest, c->profile->classes[k],
                    c->profile->kinds[c->devices[l->devices[j]].kind], t->x[t->n_x - 1],
                    t->y[t->n_y - 1]);
                return;
            }
        }
}

json_t *pipeline_answer_document(const struct pipeline_cost *c, const struct pipeline_request *rq,
                                 const struct pipeline_answer *a, double solver_seconds)
{
    json_t *plan = plan_envelope("pipeline", pipeline_method_names[rq->method], solver_seconds);
    if (!plan)
        return NULL;
    json_object_set_new(plan, "objective", json_string(pipeline_objective_names[rq->objective]));
    json_object_set_new(plan, "tokens", json_integer(c->tokens));
    if (c->cached_tokens > 0)
        json_object_set_new(plan, "cached_tokens", json_integer(c->cached_tokens));
    json_object_set_new(plan, "batch", json_real(c->batch));
    json_object_set_new(plan, "unit", json_integer(pipeline_unit(rq)));
    if (plan_pipeline_to_json(&a->plan, plan) < 0) {
        json_decref(plan);
        return NULL;
    }
    json_t *predicted = json_object_get(plan, "predicted");
    json_object_set_new(predicted, "energy_j", json_real(a->energy_j));
    json_object_set_new(predicted, "prompts_per_s", json_real(a->prompts_per_s));
    if (c->decode_tokens > 0) {
        json_object_set_new(plan, "decode_tokens", json_real(c->decode_tokens));
        json_object_set_new(predicted, "requests_per_s", json_real(a->requests_per_s));
    }
    json_object_set_new(predicted, "decode_step_s", json_real(a->decode_step_s));
    json_object_set_new(predicted, "decode_tokens_per_s", json_real(a->decode_tokens_per_s));
    if (isfinite(a->bound)) {
        json_object_set_new(json_object_get(plan, "solver"), "bound", json_real(a->bound));
        json_object_set_new(json_object_get(plan, "solver"), "gap", json_real(a->gap));
    }
    if (a->n_warnings > 0) {
        json_t *list = json_array();
        for (int i = 0; i < a->n_warnings; i++)
            json_array_append_new(list, json_string(a->warnings[i]));
        json_object_set_new(plan, "warnings", list);
    }
    return plan;
}
