#include "planners/pipeline/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planners/pipeline/baselines.h"
#include "planners/pipeline/bound.h"
#include "planners/pipeline/exact.h"
#include "planners/pipeline/pipeline_answer.h"
#include "planners/pipeline/why.h"

/* ---- the devices to consider ---- */

static int check_fixed(const struct pipeline_request *rq, struct err *e)
{
    const struct cluster *cl = rq->cluster;
    if (rq->layer_ends && !rq->devices)
        return err_set(e, HP_EINVAL, "layers are given without the devices that hold them");
    for (int i = 0; rq->devices && i < rq->n_devices; i++) {
        if (rq->devices[i] < 0 || rq->devices[i] >= cl->n_devices)
            return err_set(e, HP_ENOENT, "the cluster has no device number %d", rq->devices[i]);
        const struct cluster_device *d = &cl->devices[rq->devices[i]];
        for (int k = 0; k < i; k++)
            if (rq->devices[k] == rq->devices[i])
                return err_set(e, HP_EINVAL, "%s is named twice: a device holds at most one stage",
                               d->id);
        if (profile_find_kind(rq->profile, d->kind) < 0)
            return err_set(e, HP_EINFEASIBLE,
                           "the profile has no times for %s, which is of kind %s", d->id, d->kind);
    }
    for (int i = 0, before = 0; rq->layer_ends && i < rq->n_devices; before = rq->layer_ends[i++]) {
        bool last = i + 1 == rq->n_devices;
        if (rq->layer_ends[i] <= before || (last ? rq->layer_ends[i] != rq->profile->n_layers
                                                 : rq->layer_ends[i] >= rq->profile->n_layers))
            return err_set(
                e, HP_EINVAL,
                "stage %d ends at layer %d: stages have at least one layer each and cover all %d",
                i, rq->layer_ends[i], rq->profile->n_layers);
    }
    if (rq->devices && rq->n_devices > rq->profile->n_layers)
        return err_set(e, HP_EINFEASIBLE, "%d stages for %d layers: a stage has at least one",
                       rq->n_devices, rq->profile->n_layers);
    return 0;
}

/* Devices by id, so that the exact search does not depend on the order in which a file lists them.
 */
static int by_id(const void *a, const void *b, void *cluster)
{
    const struct cluster *cl = cluster;
    return strcmp(cl->devices[*(const int *)a].id, cl->devices[*(const int *)b].id);
}

static int set_up(const struct pipeline_request *rq, struct arena *arena, struct pipeline_cost *c,
                  struct err *e)
{
    int rc = check_fixed(rq, e), n = rq->cluster->n_devices;
    if (rc < 0 || rq->devices || rq->method != PIPELINE_EXACT || n == 0)
        return rc < 0 ? rc : cost_init(c, rq, rq->devices, rq->n_devices, arena, e);
    int *order = arena_alloc(arena, (size_t)n, sizeof *order);
    if (!order)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, (size_t)n, sizeof *order, by_id, (void *)rq->cluster);
    return cost_init(c, rq, order, n, arena, e);
}

static void warn_of_unknown(const struct pipeline_request *rq, struct arena *arena,
                            struct pipeline_answer *a)
{
    const struct cluster *cl = rq->cluster;
    for (int k = 0; k < cl->n_pools && !rq->devices; k++)
        if (profile_find_kind(rq->profile, cl->pools[k].kind) < 0)
            pipeline_answer_warn(arena, a,
                                 "%d × %s left out: the profile has no times for that kind",
                                 cl->pools[k].count, cl->pools[k].kind);
}

/* Whether no link, in either direction, joins a device to any of the plan's. */
static bool is_unreachable(const struct pipeline_cost *c, const struct layout *l, int d)
{
    for (int j = 0; j < l->n_stages; j++) {
        int used = l->devices[j];
        if (used == d || c->hops[used * c->n_devices + d].bandwidth_bytes_per_s > 0 ||
            c->hops[d * c->n_devices + used].bandwidth_bytes_per_s > 0)
            return false;
    }
    return true;
}

static void warn_of_unreachable(const struct pipeline_cost *c, const struct layout *l,
                                struct pipeline_answer *a)
{
    int n = 0, first = 0;
    for (int d = c->n_devices - 1; d >= 0; d--)
        if (is_unreachable(c, l, d)) {
            n++;
            first = d;
        }
    const char *id = c->cluster->devices[c->devices[first].cluster_index].id;
    if (n == 1)
        pipeline_answer_warn(c->arena, a,
                             "%s is left out: it has no link to the devices of the plan", id);
    else if (n > 1)
        pipeline_answer_warn(
            c->arena, a,
            "%d devices are left out, %s the first of them: they have no link to the "
            "devices of the plan",
            n, id);
}

/* No plan can exist when even the smallest layer is too large: say which, rather than that nothing
 * was found. */
static int check_smallest(const struct pipeline_cost *c, struct err *e)
{
    double need = INFINITY, room = 0;
    int layer = 0, device = 0;
    for (int l = 0; l < c->n_layers; l++)
        if (cost_layers_bytes(c, l, l + 1) < need)
            need = cost_layers_bytes(c, layer = l, l + 1);
    for (int d = 0; d < c->n_devices; d++)
        if (c->devices[d].memory_bytes > room)
            room = c->devices[device = d].memory_bytes;
    if (need <= room)
        return 0;
    return err_set(e, HP_EINFEASIBLE,
                   "no device fits even the smallest layer: layer %d (%s) needs %.3g GB with its "
                   "KV cache, the largest device, "
                   "%s, has %.3g GB",
                   layer, c->profile->layers[layer].name, need / 1e9,
                   c->cluster->devices[c->devices[device].cluster_index].id, room / 1e9);
}

/* ---- methods ---- */

static int plan_search(struct pipeline_cost *c, const struct pipeline_request *rq,
                       struct layout *out, struct why_kinds *kinds, struct pipeline_answer *a,
                       struct err *e)
{
    struct exact_options options = {
        .objective = rq->objective,
        .order_fixed = rq->devices != NULL,
        .ends = rq->layer_ends,
        .seed = rq->seed,
        .effort = rq->effort > 0 ? rq->effort : 1,
    };
    struct exact_result found;
    int rc = exact_search(c, &options, &found, e);
    if (rc < 0)
        return rc;
    *out = found.layout;
    if ((rc = layout_split(c, out, e)) < 0)
        return rc;
    if (!rq->brief && !rq->devices &&
        (rc = why_weigh_kinds(c, rq, out, &found.value, kinds, e)) < 0)
        return rc;
    struct pipeline_answer_figures f;
    if ((rc = pipeline_answer_measure(c, out, &f, NULL, e)) < 0)
        return rc;
    double value = pipeline_answer_value(rq->objective, &f),
           bound = found.proven ? value : bound_of(c, &options);
    a->bound = bound < value ? bound : value;
    a->gap = a->bound > 0 ? (value - a->bound) / a->bound : 0;
    return 0;
}

static int run_method(struct pipeline_cost *c, const struct pipeline_request *rq,
                      struct layout *out, struct why_kinds *kinds, struct pipeline_answer *a,
                      struct err *e)
{
    if (rq->layer_ends && rq->method != PIPELINE_EXACT)
        return err_set(e, HP_EINVAL, "given layers need --method exact; %s chooses its own",
                       pipeline_method_names[rq->method]);
    switch (rq->method) {
    case PIPELINE_EXACT: return plan_search(c, rq, out, kinds, a, e);
    case PIPELINE_HPIPE: return baseline_hpipe(c, out, e);
    case PIPELINE_EVEN: return baseline_even(c, out, e);
    case PIPELINE_GPIPE: return baseline_gpipe(c, rq->partition, rq->micro_batches, out, e);
    case PIPELINE_TERAPIPE: return baseline_terapipe(c, out, e);
    case PIPELINE_TP: return baseline_tensor(c, rq->micro_batches, out, e);
    }
    return err_set(e, HP_EINVAL, "there is no planning method number %d", (int)rq->method);
}

int pipeline_plan_make(const struct pipeline_request *rq, struct arena *arena,
                       struct pipeline_answer *out, struct err *e)
{
    struct pipeline_answer a = {.bound = NAN, .gap = NAN};
    struct pipeline_cost c;
    struct layout layout;
    struct why_kinds kinds = {0};
    uint64_t started = rq->env ? env_now_ns(rq->env) : 0;
    int rc = set_up(rq, arena, &c, e);
    if (rc < 0 || (rc = check_smallest(&c, e)) < 0 ||
        (rc = run_method(&c, rq, &layout, &kinds, &a, e)) < 0 ||
        (rc = layout_split(&c, &layout, e)) < 0 ||
        (rc = pipeline_answer_fill(&c, &layout, &a, e)) < 0)
        return rc;
    double seconds = rq->env ? (double)(env_now_ns(rq->env) - started) * 1e-9 : 0;
    warn_of_unknown(rq, arena, &a);
    if (rq->method == PIPELINE_EXACT)
        warn_of_unreachable(&c, &layout, &a);
    pipeline_answer_warn_extrapolated(&c, &layout, &a);
    int unit = pipeline_unit(rq);
    if (c.unit != unit && rq->method != PIPELINE_EVEN && rq->method != PIPELINE_GPIPE &&
        rq->method != PIPELINE_TP)
        pipeline_answer_warn(
            arena, &a,
            "slices are planned in steps of %d tokens: %d tokens have more than %d units of %d",
            c.unit, c.tokens, PIPELINE_MAX_UNITS, unit);
    json_memory_reset(); /* a plan that lacks members would be taken for a whole one */
    a.document = pipeline_answer_document(&c, rq, &a, seconds);
    if (a.document && !rq->brief)
        rc = why_add(&c, rq, &layout, &kinds, &a, e);
    if (rc == 0 && (!a.document || json_memory_was_short()))
        rc = err_set(e, HP_ENOMEM, "out of memory while writing a plan");
    if (rc < 0) {
        json_decref(a.document);
        return rc;
    }
    *out = a;
    return 0;
}
