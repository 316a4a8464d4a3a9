/* Judges a pipeline plan, whoever made it: reads it, lays it over the cluster, counts memory and
 * runs the exact flow. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "planners/pipeline/pipeline.h"
#include "planners/pipeline/pipeline_answer.h"

/* Predictions that differ by more than this part of the recomputed time are a violation. */
#define PREDICTION_TOLERANCE 1e-6
enum { MAX_MICRO_BATCHES = 1 << 16, MAX_CACHED = 1 << 29 };

struct judge {
    struct pipeline_cost cost;
    struct layout layout;
    struct plan_pipeline plan;
    json_t *violations;
};

static void check_violation(struct judge *g, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void check_violation(struct judge *g, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_array_append_new(g->violations, json_string(text));
}

/* The cost's index of a device, with a violation where it cannot be used; -1. `used` marks those
 * seen. */
static int find_device(struct judge *g, int stage, const char *id, bool *used)
{
    const struct pipeline_cost *c = &g->cost;
    int index = cluster_find_device(c->cluster, id);
    if (index < 0) {
        check_violation(g, "stage %d: the cluster has no device %s", stage, id);
        return -1;
    }
    for (int d = 0; d < c->n_devices; d++)
        if (c->devices[d].cluster_index == index) {
            if (used[d])
                check_violation(g, "stage %d: %s holds more than one stage", stage, id);
            used[d] = true;
            return d;
        }
    check_violation(g, "stage %d: the profile has no times for %s, which is of kind %s", stage, id,
                    c->cluster->devices[index].kind);
    return -1;
}

static int read_group(struct judge *g, int j, bool *used, struct err *e)
{
    const struct plan_stage *s = &g->plan.stages[j];
    g->layout.groups[j] = arena_alloc(g->cost.arena, (size_t)s->n_devices + 1, sizeof(int));
    if (!g->layout.groups[j])
        return err_set(e, HP_ENOMEM, "out of memory while checking a plan");
    for (int k = 0; k < s->n_devices; k++) {
        int d = find_device(g, j, s->devices[k], used);
        if (d >= 0)
            g->layout.groups[j][g->layout.group_sizes[j]++] = d;
    }
    g->layout.devices[j] = g->layout.groups[j][0];
    return 0;
}

static int read_stages(struct judge *g, struct err *e)
{
    const struct plan_pipeline *p = &g->plan;
    const struct pipeline_cost *c = &g->cost;
    size_t n = (size_t)p->n_stages;
    bool *used = arena_alloc(c->arena, (size_t)c->n_devices, sizeof *used), grouped = false;
    for (int j = 0; j < p->n_stages; j++)
        grouped |= p->stages[j].n_devices > 1;
    g->layout.groups = grouped ? arena_alloc(c->arena, n, sizeof *g->layout.groups) : NULL;
    g->layout.group_sizes =
        grouped ? arena_alloc(c->arena, n, sizeof *g->layout.group_sizes) : NULL;
    if (!used || (grouped && (!g->layout.groups || !g->layout.group_sizes)))
        return err_set(e, HP_ENOMEM, "out of memory while checking a plan");
    for (int j = 0; j < p->n_stages; j++) {
        g->layout.ends[j] = p->stages[j].end_layer;
        if (p->stages[j].end_layer > c->n_layers)
            check_violation(g, "stage %d ends at layer %d of %d", j, p->stages[j].end_layer,
                            c->n_layers);
        if (grouped && p->stages[j].n_devices > 0) {
            int rc = read_group(g, j, used, e);
            if (rc < 0)
                return rc;
            continue;
        }
        int d = find_device(g, j, p->stages[j].device, used);
        g->layout.devices[j] = d;
        if (grouped && d >= 0) {
            g->layout.groups[j] = arena_memdup(c->arena, &d, sizeof d);
            g->layout.group_sizes[j] = 1;
        }
    }
    if (g->layout.ends[p->n_stages - 1] < c->n_layers)
        check_violation(g, "the last stage ends at layer %d of %d", g->layout.ends[p->n_stages - 1],
                        c->n_layers);
    return 0;
}

/* The plan's own slices become the units of the cost, so that any cut can be judged. */
static int read_slices(struct judge *g, struct err *e)
{
    const struct plan_pipeline *p = &g->plan;
    struct pipeline_cost *c = &g->cost;
    int n = p->n_slices > 0 ? p->n_slices : 1;
    long sum = 0;
    c->starts = arena_alloc(c->arena, (size_t)n + 1, sizeof *c->starts);
    g->layout.cuts = arena_alloc(c->arena, (size_t)n + 1, sizeof *g->layout.cuts);
    if (!c->starts || !g->layout.cuts)
        return err_set(e, HP_ENOMEM, "out of memory while checking a plan");
    for (int k = 0; k < p->n_slices; k++) {
        sum += p->slices[k];
        c->starts[k + 1] = sum < c->tokens ? (int)sum : c->tokens;
        g->layout.cuts[k + 1] = k + 1;
    }
    if (p->n_slices == 0) {
        g->layout.cuts[1] = 1;
        c->starts[1] = c->tokens;
    } else if (sum != c->tokens) {
        check_violation(g, "the slices have %ld tokens in all, the prompt %d", sum, c->tokens);
    }
    c->n_units = g->layout.n_slices = n;
    return 0;
}

static void check_unit(struct judge *g, int unit)
{
    for (int k = 0; k + 1 < g->plan.n_slices; k++)
        if (g->plan.slices[k] % unit != 0)
            check_violation(g, "slice %d has %d tokens, which is no multiple of the unit %d", k,
                            g->plan.slices[k], unit);
}

static void check_room(struct judge *g)
{
    const struct pipeline_cost *c = &g->cost;
    const struct layout *l = &g->layout;
    for (int j = 0; j < l->n_stages; j++) {
        double need = layout_memory_bytes(c, l, j);
        for (int k = 0; k < (l->groups ? l->group_sizes[j] : 1); k++) {
            const struct cost_device *d = &c->devices[l->groups ? l->groups[j][k] : l->devices[j]];
            if (need > d->memory_bytes)
                check_violation(g, "stage %d needs %.0f bytes, %s has %.0f", j, need,
                                c->cluster->devices[d->cluster_index].id, d->memory_bytes);
        }
        if (j + 1 < l->n_stages &&
            c->hops[l->devices[j] * c->n_devices + l->devices[j + 1]].bandwidth_bytes_per_s <= 0)
            check_violation(g, "stages %d and %d, %s and %s, are not connected", j, j + 1,
                            g->plan.stages[j].device, g->plan.stages[j + 1].device);
    }
}

static json_t *stage_rows(const struct judge *g, const struct pipeline_schedule *s)
{
    json_t *rows = json_array();
    for (int j = 0; j < g->layout.n_stages; j++) {
        double compute = 0, need = layout_memory_bytes(&g->cost, &g->layout, j);
        for (int k = 0; k < s->n_slices; k++)
            compute += s->end_s[j * s->n_slices + k] - s->start_s[j * s->n_slices + k];
        json_array_append_new(
            rows, json_pack("{s:s, s:[i,i], s:f, s:f, s:f}", "device", g->plan.stages[j].device,
                            "layers", layout_first(&g->layout, j), g->layout.ends[j], "compute_s",
                            compute, "memory_bytes", need, "free_bytes",
                            g->cost.devices[g->layout.devices[j]].memory_bytes - need));
    }
    return rows;
}

/* Times the plan, if nothing in it prevents that, and compares with its own prediction. */
static int judge_time(struct judge *g, json_t *report, struct err *e)
{
    struct pipeline_answer_figures f;
    struct pipeline_schedule schedule;
    int rc = pipeline_answer_measure(&g->cost, &g->layout, &f, &schedule, e);
    if (rc < 0)
        return rc;
    json_object_set_new(report, "makespan_s", json_real(f.makespan_s));
    if (g->plan.makespan_s > 0) {
        json_object_set_new(report, "predicted_makespan_s", json_real(g->plan.makespan_s));
        if (fabs(g->plan.makespan_s - f.makespan_s) > PREDICTION_TOLERANCE * f.makespan_s)
            check_violation(g, "predicted makespan_s %.9g, but the exact flow takes %.9g",
                            g->plan.makespan_s, f.makespan_s);
    }
    json_object_set_new(report, "energy_j", json_real(f.energy_j));
    json_object_set_new(report, "prompts_per_s", json_real(f.period_s > 0 ? 1 / f.period_s : 0));
    json_object_set_new(report, "stages", stage_rows(g, &schedule));
    return 0;
}

static int judge_plan(struct judge *g, const struct json_at *at, json_t *report, struct err *e)
{
    uint64_t unit;
    int rc = json_opt_u64(at, "unit", 1, &unit, e);
    if (rc < 0)
        return rc;
    if (g->plan.micro_batches > MAX_MICRO_BATCHES ||
        g->plan.micro_batches != floor(g->plan.micro_batches))
        return json_fail(at, e, "%g is no number of micro-batches", g->plan.micro_batches);
    g->layout =
        (struct layout){.n_stages = g->plan.n_stages, .micro_batches = (int)g->plan.micro_batches};
    g->layout.devices = arena_alloc(g->cost.arena, (size_t)g->plan.n_stages, sizeof(int));
    g->layout.ends = arena_alloc(g->cost.arena, (size_t)g->plan.n_stages, sizeof(int));
    if (!g->layout.devices || !g->layout.ends)
        return err_set(e, HP_ENOMEM, "out of memory while checking a plan");
    if ((rc = read_stages(g, e)) < 0 || (rc = read_slices(g, e)) < 0)
        return rc;
    if (unit > 1 && unit <= 1 << 30)
        check_unit(g, (int)unit);
    /* Devices or layers that do not exist leave nothing to count; what is left is judged as far as
     * it goes. */
    if (json_array_size(g->violations) == 0) {
        check_room(g);
        rc = judge_time(g, report, e);
    }
    return rc;
}

int pipeline_plan_check(const struct pipeline_request *rq, const struct json_at *plan,
                        json_t **report, struct err *e)
{
    struct arena arena = {0};
    struct judge g = {.violations = json_array()};
    struct pipeline_request plain = *rq;
    json_t *out = json_object();
    plain.devices = NULL;
    plain.layer_ends = NULL;
    uint64_t cached = 0;
    double batch = 0;
    int rc = g.violations && out ? 0 : err_set(e, HP_ENOMEM, "out of memory while checking a plan");
    /* What the plan says of itself holds where the caller does not say it. */
    if (rc == 0 && (rc = plan_pipeline_from_json(plan, &arena, &g.plan, e)) == 0 &&
        (rc = json_opt_u64(plan, "cached_tokens", 0, &cached, e)) == 0 &&
        (rc = json_opt_number_min(plan, "batch", 1e-9, 0, &batch, e)) == 0) {
        plain.batch = rq->batch > 0 ? rq->batch : batch;
        plain.cached_tokens =
            rq->cached_tokens > 0 || cached > MAX_CACHED ? rq->cached_tokens : (int)cached;
    }
    if (rc == 0 && (rc = cost_init(&g.cost, &plain, NULL, 0, &arena, e)) == 0 &&
        (rc = judge_plan(&g, plan, out, e)) == 0) {
        json_object_set_new(out, "valid", json_boolean(json_array_size(g.violations) == 0));
        json_object_set(out, "violations", g.violations);
        *report = json_incref(out);
    }
    json_decref(out);
    json_decref(g.violations);
    arena_free(&arena);
    return rc;
}
