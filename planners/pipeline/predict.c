#include "planners/pipeline/predict.h"

#include <math.h>

#include "planners/pipeline/cost.h"
#include "planners/pipeline/flow.h"

double predict_layers_seconds(const struct profile *p, int kind, int first, int end, double tokens,
                              double prefix, double batch)
{
    const struct pipeline_cost c = {.profile = p};
    double sum = 0, b = batch > 0 ? batch : p->batch;
    for (int l = first; l < end; l++)
        sum += cost_class_seconds(&c, kind, p->layers[l].class_index, tokens, prefix, b);
    return sum;
}

double predict_hop_bytes(const struct profile *p, int end, double tokens, double batch)
{
    return p->layers[end - 1].output_bytes_per_token * tokens * (batch > 0 ? batch : p->batch);
}

static int kinds_find(const struct cluster *c, const struct profile *p,
                      const struct plan_pipeline *plan, int *devices, int *kinds, struct err *e)
{
    for (int j = 0; j < plan->n_stages; j++) {
        const struct plan_stage *s = &plan->stages[j];
        if (s->n_devices > 1 || s->end_layer > p->n_layers)
            return err_set(e, HP_EINVAL, "stage %d is over %d devices and ends at layer %d of %d",
                           j, s->n_devices, s->end_layer, p->n_layers);
        devices[j] = cluster_find_device(c, s->device);
        kinds[j] = devices[j] < 0 ? -1 : profile_find_kind(p, c->devices[devices[j]].kind);
        if (kinds[j] < 0)
            return err_set(e, HP_ENOENT, "stage %d is on %s, for which there are no times", j,
                           s->device);
    }
    return 0;
}

int predict_schedule(const struct cluster *cluster, const struct profile *p,
                     const struct plan_pipeline *plan, const int *slices, int n_slices, int cached,
                     double batch, struct arena *arena, struct pipeline_schedule *out,
                     struct err *e)
{
    if (n_slices < 1 || plan->n_stages < 1)
        return err_set(e, HP_EINVAL, "a prompt has at least one slice and one stage");
    size_t stages = (size_t)plan->n_stages, n = (size_t)n_slices;
    int *devices = arena_alloc(arena, stages, sizeof *devices),
        *kinds = arena_alloc(arena, stages, sizeof *kinds);
    double *compute = arena_alloc(arena, stages * n, sizeof *compute),
           *wire = arena_alloc(arena, stages * n, sizeof *wire);
    double *latency = arena_alloc(arena, stages, sizeof *latency);
    if (!devices || !kinds || !compute || !wire || !latency)
        return err_set(e, HP_ENOMEM, "out of memory while predicting %d slices on %d stages",
                       n_slices, plan->n_stages);
    int rc = kinds_find(cluster, p, plan, devices, kinds, e);
    if (rc < 0)
        return rc;
    for (size_t j = 0; j < stages; j++) {
        const struct plan_stage *s = &plan->stages[j];
        bool last = j + 1 == stages;
        struct cluster_wire w = cluster_hop(cluster, devices[j], devices[last ? 0 : j + 1]);
        if (last)
            w.bandwidth_bytes_per_s = INFINITY;
        double prefix = cached;
        latency[j] = w.latency_s;
        for (size_t k = 0; k < n; k++) {
            compute[j * n + k] = predict_layers_seconds(p, kinds[j], s->first_layer, s->end_layer,
                                                        slices[k], prefix, batch);
            wire[j * n + k] =
                predict_hop_bytes(p, s->end_layer, slices[k], batch) / w.bandwidth_bytes_per_s;
            prefix += slices[k];
        }
    }
    return flow_schedule(plan->n_stages, n_slices, compute, wire, latency, arena, out, e);
}
