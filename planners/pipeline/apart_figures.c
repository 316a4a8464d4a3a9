/* What all together and two sides apart reach: the figures by which apart.c chooses. */
#include <math.h>

#include "planners/pipeline/apart_int.h"
#include "planners/pipeline/predict.h"

/* ---- what a plan takes ---- */

int apart_loads_make(const struct apart_search *x, const struct plan_pipeline *plan,
                     struct plan_load *out, struct err *e)
{
    const struct pipeline_request *b = x->rq->base;
    struct pipeline_schedule prompt, step;
    int whole = b->tokens, n_slices = plan->n_slices > 0 ? plan->n_slices : 1;
    const int *slices = plan->n_slices > 0 ? plan->slices : &whole;
    *out = (struct plan_load){
        .n = plan->n_stages,
        .stages = arena_alloc(x->arena, (size_t)plan->n_stages, sizeof *out->stages)};
    if (!out->stages)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    int rc = predict_schedule(b->cluster, b->profile, plan, slices, n_slices, b->cached_tokens,
                              b->batch, x->arena, &prompt, e);
    rc = rc < 0 ? rc
                : predict_schedule(b->cluster, b->profile, plan, &x->sequences, 1, b->tokens,
                                   b->batch, x->arena, &step, e);
    if (rc < 0)
        return rc;
    for (int j = 0; j < out->n; j++) {
        struct stage_load *s = &out->stages[j];
        *s = (struct stage_load){.step_s = step.end_s[j] - step.start_s[j],
                                 .step_wire_s = step.hop_end_s[j] - step.hop_start_s[j]};
        for (int k = 0; k < n_slices; k++) {
            int at = j * n_slices + k;
            double t = prompt.end_s[at] - prompt.start_s[at];
            s->compute_s += t;
            s->slice_s = fmax(s->slice_s, t);
            s->wire_s += j + 1 < out->n ? prompt.hop_end_s[at] - prompt.hop_start_s[at] : 0;
        }
        s->step_wire_s = j + 1 < out->n ? s->step_wire_s : 0;
    }
    out->ttft_s = prompt.end_s[out->n * n_slices - 1];
    out->step_s = step.end_s[out->n - 1];
    return 0;
}

/* Seconds of the busiest stage or hop for each request that is read, and answered, there. */
static double busiest_s(const struct apart_search *x, const struct plan_load *l, bool reads,
                        bool answers)
{
    double most = 0, steps = answers ? (double)x->answer_tokens / (double)x->sequences : 0;
    for (int j = 0; j < l->n; j++) {
        const struct stage_load *s = &l->stages[j];
        most = fmax(most, reads * s->compute_s + steps * s->step_s);
        most = fmax(most, reads * s->wire_s + steps * s->step_wire_s);
    }
    return most;
}

/* For slices, at all stages but the one at which it is its turn meanwhile. */
static double waits_s(const struct apart_search *x, const struct plan_load *l)
{
    bool said = x->rq->tpot_s > 0;
    double sum = 0, least = INFINITY, most = (said ? x->rq->tpot_s : APART_TPOT_DEFAULT_S) / 2,
           part = (said ? APART_LEAST_BESIDE : APART_LEAST_BESIDE_DEFAULT) /
                  (double)x->rq->base->tokens;
    for (int j = 0; j < l->n; j++) {
        const struct stage_load *s = &l->stages[j];
        double t = fmin(s->slice_s, fmax(most, part * s->compute_s));
        sum += t;
        least = fmin(least, t);
    }
    return l->n > 1 ? sum - least : sum;
}

struct apart_figures apart_figures_together(const struct apart_search *x, const struct plan_load *l)
{
    return (struct apart_figures){1 / busiest_s(x, l, true, true), l->ttft_s,
                                  l->step_s + waits_s(x, l)};
}

/* ---- keys and values between the two ---- */

static double state_bytes(const struct profile *p, const struct plan_stage *a,
                          const struct plan_stage *b)
{
    double sum = 0;
    int first = a->first_layer > b->first_layer ? a->first_layer : b->first_layer,
        end = a->end_layer < b->end_layer ? a->end_layer : b->end_layer;
    for (int l = first; l < end; l++)
        sum += p->layers[l].state_bytes_per_token;
    return sum;
}

/* Seconds over the slowest pair of stages that have layers in common, for so many tokens; INFINITY
 * where two have no path. */
static double handoff_s(const struct pipeline_request *b, const struct plan_pipeline *from,
                        const struct plan_pipeline *to, double tokens)
{
    double most = 0;
    for (int i = 0; i < from->n_stages; i++)
        for (int k = 0; k < to->n_stages; k++) {
            double bytes = state_bytes(b->profile, &from->stages[i], &to->stages[k]) * tokens;
            struct cluster_wire w =
                cluster_hop(b->cluster, cluster_find_device(b->cluster, from->stages[i].device),
                            cluster_find_device(b->cluster, to->stages[k].device));
            if (bytes > 0)
                most = fmax(most, w.bandwidth_bytes_per_s > 0
                                      ? w.latency_s + bytes / w.bandwidth_bytes_per_s
                                      : INFINITY);
        }
    return most;
}

int apart_figures_apart(const struct apart_search *x, const struct plan_pipeline *from,
                        const struct plan_pipeline *to, struct apart_figures *out, struct err *e)
{
    const struct pipeline_request *b = x->rq->base;
    struct plan_load read, answer;
    int rc = apart_loads_make(x, from, &read, e);
    rc = rc < 0 ? rc : apart_loads_make(x, to, &answer, e);
    if (rc < 0)
        return rc;
    double last = from->n_slices > 0 ? from->slices[from->n_slices - 1] : b->tokens,
           busiest = fmax(busiest_s(x, &read, true, false), busiest_s(x, &answer, false, true));
    *out = (struct apart_figures){1 / fmax(busiest, handoff_s(b, from, to, b->tokens)),
                                  read.ttft_s + handoff_s(b, from, to, last) + answer.step_s,
                                  answer.step_s};
    return 0;
}
