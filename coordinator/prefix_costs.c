#include "coordinator/prefix_costs.h"

#include <math.h>

#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/planner_inputs.h"
#include "planners/pipeline/predict.h"

/* Where nothing is known: after so many tokens attention is taken to cost as much as all else. */
static const double unknown_tokens = 2048;

/* `tokens` more behind `prefix`, on all stages one after the other; NAN: not known. */
static double stages_seconds(const struct deployment *d, const struct planner_inputs *in,
                             double tokens, double prefix)
{
    double sum = 0;
    for (int i = 0; i < d->n_stages; i++) {
        const struct deployment_stage *s = &d->stages[i];
        int device = planner_inputs_device(in, s->agent->name, s->device),
            kind =
                device < 0 ? -1 : profile_find_kind(&in->profile, in->cluster.devices[device].kind);
        sum += kind < 0 ? NAN
                        : predict_layers_seconds(&in->profile, kind, s->first_layer, s->end_layer,
                                                 tokens, prefix, in->stands_for);
    }
    return sum;
}

void prefix_curve_update(struct coord *c, struct deployment *d, struct prefix_curve *curve)
{
    struct planner_inputs *in = NULL;
    struct err e = {0};
    uint64_t version = planner_inputs_version(c, d);
    if (curve->step > 0 && curve->version == version && curve->generation == d->generation)
        return;
    *curve = (struct prefix_curve){.version = version,
                                   .generation = d->generation,
                                   .step = ceil((double)d->context / PREFIX_CURVE_STEPS)};
    if (planner_inputs_get(c, d, &in, &e) < 0)
        return;
    for (int i = 0; i < PREFIX_CURVE_STEPS; i++)
        curve->seconds[i + 1] =
            curve->seconds[i] + stages_seconds(d, in, curve->step, curve->step * i);
    curve->known = curve->seconds[PREFIX_CURVE_STEPS] > 0;
    planner_inputs_release(&in);
}

static double seconds_to(const struct prefix_curve *curve, double tokens)
{
    if (!curve->known)
        return tokens * (1 + tokens / unknown_tokens / 2);
    double at = fmin(tokens / curve->step, PREFIX_CURVE_STEPS);
    int i = at < PREFIX_CURVE_STEPS ? (int)at : PREFIX_CURVE_STEPS - 1;
    return curve->seconds[i] + (at - i) * (curve->seconds[i + 1] - curve->seconds[i]);
}

double prefix_curve_between(const struct prefix_curve *curve, uint32_t from, uint32_t to)
{
    return seconds_to(curve, to) - seconds_to(curve, from);
}

double prefix_step_seconds(struct coord *c, struct deployment *d, uint32_t prefix)
{
    struct planner_inputs *in = NULL;
    struct err e = {0};
    if (planner_inputs_get(c, d, &in, &e) < 0)
        return NAN;
    double seconds = stages_seconds(d, in, 1, prefix);
    planner_inputs_release(&in);
    return seconds;
}
