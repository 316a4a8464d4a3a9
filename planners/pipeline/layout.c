#include "planners/pipeline/layout.h"

#include <math.h>

static const char *device_id(const struct pipeline_cost *c, int device)
{
    return c->cluster->devices[c->devices[device].cluster_index].id;
}

int layout_alloc(struct arena *arena, int n_stages, int n_slices, struct layout *out, struct err *e)
{
    *out = (struct layout){.n_stages = n_stages, .n_slices = n_slices};
    out->devices = arena_alloc(arena, (size_t)n_stages, sizeof(int));
    out->ends = arena_alloc(arena, (size_t)n_stages, sizeof(int));
    out->cuts = arena_alloc(arena, (size_t)n_slices + 1, sizeof(int));
    return out->devices && out->ends && out->cuts
               ? 0
               : err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
}

int layout_split(const struct pipeline_cost *c, struct layout *l, struct err *e)
{
    int most = c->max_slice / c->unit > 1 ? c->max_slice / c->unit : 1, n = 0;
    if (c->max_slice == 0 || l->micro_batches > 0)
        return 0;
    int *cuts = arena_alloc(c->arena, (size_t)c->n_units + 1, sizeof *cuts);
    if (!cuts)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int k = 0; k < l->n_slices; k++) {
        int units = l->cuts[k + 1] - l->cuts[k], pieces = (units + most - 1) / most;
        for (int p = 1; p <= pieces; p++)
            cuts[++n] = l->cuts[k] + (int)((long)units * p / pieces);
    }
    l->cuts = cuts;
    l->n_slices = n;
    return 0;
}

double layout_memory_bytes(const struct pipeline_cost *c, const struct layout *l, int j)
{
    int first = layout_first(l, j), end = l->ends[j], g = l->groups ? l->group_sizes[j] : 1;
    if (g == 1)
        return cost_memory_bytes(c, first, end);
    /* Weights and KV heads are shared out, activations are whole on every device (Megatron-LM). */
    double whole =
        (c->activation_sum[end] - c->activation_sum[first]) * (double)c->tokens * c->batch;
    return (cost_memory_bytes(c, first, end) - whole) / g + whole;
}

int layout_check(const struct pipeline_cost *c, const struct layout *l, struct err *e)
{
    for (int j = 0; j < l->n_stages; j++) {
        double need = layout_memory_bytes(c, l, j);
        if (need > c->devices[l->devices[j]].memory_bytes)
            return err_set(e, HP_EINFEASIBLE,
                           "layers [%d, %d) need %.3g GB on %s, which has %.3g GB",
                           layout_first(l, j), l->ends[j], need / 1e9, device_id(c, l->devices[j]),
                           c->devices[l->devices[j]].memory_bytes / 1e9);
        if (j + 1 < l->n_stages &&
            c->hops[l->devices[j] * c->n_devices + l->devices[j + 1]].bandwidth_bytes_per_s <= 0)
            return err_set(e, HP_EINFEASIBLE, "%s and %s are not connected",
                           device_id(c, l->devices[j]), device_id(c, l->devices[j + 1]));
    }
    return 0;
}

/* Seconds of the all-reduces of layers [first, end) within a group: each layer ends with one of its
 * output, as a ring (2 (g - 1) steps of 1/g of the bytes). */
static double all_reduce_seconds(const struct pipeline_cost *c, const int *group, int g, int first,
                                 int end, double tokens)
{
    double speed = INFINITY, latency = 0, bytes = 0;
    for (int i = 0; i < g; i++) {
        const struct cluster_wire *w = &c->hops[group[i] * c->n_devices + group[(i + 1) % g]];
        speed = w->bandwidth_bytes_per_s < speed ? w->bandwidth_bytes_per_s : speed;
        latency = w->latency_s > latency ? w->latency_s : latency;
    }
    for (int i = first; i < end; i++)
        bytes += c->profile->layers[i].output_bytes_per_token * tokens;
    return 2.0 * (g - 1) * (bytes / g / speed + (end - first) * latency);
}

double layout_stage_seconds(const struct pipeline_cost *c, const struct layout *l, int j,
                            double slice, double prefix, double batch)
{
    int first = layout_first(l, j), g = l->groups ? l->group_sizes[j] : 1;
    double t = cost_layers_seconds(c, c->devices[l->devices[j]].kind, first, l->ends[j], slice,
                                   prefix, batch);
    return g == 1
               ? t
               : t / g + all_reduce_seconds(c, l->groups[j], g, first, l->ends[j], slice * batch);
}

int layout_time(const struct pipeline_cost *c, const struct layout *l, struct layout_times *out,
                struct err *e)
{
    int pieces = l->micro_batches > 0 ? l->micro_batches : l->n_slices;
    size_t cells = (size_t)l->n_stages * (size_t)pieces;
    double batch = l->micro_batches > 0 ? c->batch / l->micro_batches : c->batch;
    out->n_pieces = pieces;
    out->compute_s = arena_alloc(c->arena, cells, sizeof(double));
    out->wire_s = arena_alloc(c->arena, cells, sizeof(double));
    out->latency_s = arena_alloc(c->arena, (size_t)l->n_stages, sizeof(double));
    if (!out->compute_s || !out->wire_s || !out->latency_s)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int j = 0; j < l->n_stages; j++) {
        bool last = j + 1 == l->n_stages;
        if (!last)
            out->latency_s[j] = c->hops[l->devices[j] * c->n_devices + l->devices[j + 1]].latency_s;
        for (int k = 0; k < pieces; k++) {
            int from = l->micro_batches > 0 ? 0 : c->starts[l->cuts[k]],
                to = l->micro_batches > 0 ? c->tokens : c->starts[l->cuts[k + 1]];
            size_t cell = (size_t)j * (size_t)pieces + (size_t)k;
            out->compute_s[cell] =
                layout_stage_seconds(c, l, j, to - from, c->cached_tokens + from, batch);
            if (!last)
                out->wire_s[cell] = cost_wire_seconds(c, l->devices[j], l->devices[j + 1],
                                                      l->ends[j], to - from, batch);
        }
    }
    return 0;
}
