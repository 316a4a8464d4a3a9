#include "agent/engine/sampler_steps.h"

#include <float.h>
#include <math.h>

#include "agent/engine/sampler_cuts.h"
#include "agent/engine/sampler_select.h"

static float weight_greatest(const uint64_t *c, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = sampler_candidate_weight(c[i]) > most ? sampler_candidate_weight(c[i]) : most;
    return most;
}

/* They weigh by their logits again. */
static size_t step_temperature(const struct sampler *s, const float *row, uint64_t *c, size_t n)
{
    float greatest = -INFINITY;
    if (s->params.temperature <= 0) {
        sampler_select_first(c, n, 1);
        return 1;
    }
    for (size_t i = 0; i < n; i++)
        greatest = fmaxf(greatest, row[sampler_candidate_token(c[i])]);
    for (size_t i = 0; i < n; i++) {
        uint32_t token = sampler_candidate_token(c[i]);
        double w = exp(((double)row[token] - (double)greatest) / s->params.temperature);
        c[i] = sampler_candidate((float)w, token);
    }
    return n;
}

static size_t step_top_k(const struct sampler *s, uint64_t *c, size_t n)
{
    uint64_t k = s->params.top_k;
    if (!k || k >= n)
        return n;
    sampler_select_few(s->kernels, c, n, k);
    return k;
}

static size_t step_do(const struct sampler *s, enum sampling_step step, const float *row,
                      uint64_t *c, size_t n)
{
    const struct infill_vocabulary v = {s->texts, s->ends, s->n_ends};
    switch (step) {
    case SAMPLING_TEMPERATURE: return step_temperature(s, row, c, n);
    case SAMPLING_TOP_K: return step_top_k(s, c, n);
    case SAMPLING_TOP_P: return sampler_cut_top_p(c, n, s->params.top_p);
    case SAMPLING_MIN_P:
        return sampler_cut_light(c, n, (float)s->params.min_p * weight_greatest(c, n));
    case SAMPLING_INFILL: return sampler_infill_cut(&v, c, n);
    default: return n;
    }
}

uint32_t sampler_steps_pick(struct sampler *s, const float *row, float greatest)
{
    uint64_t *c = s->candidates;
    size_t all = (size_t)s->vocabulary;
    s->kernels->weigh(row, all, (double)greatest, 1, s->weights);
    size_t n = s->kernels->gather(s->weights, s->weights, all, FLT_TRUE_MIN, INFINITY, 0, c);
    enum sampling_step step;
    for (int i = 0; (step = sampling_step_at(s->params.steps, i)); i++)
        n = step_do(s, step, row, c, n);
    return sampler_draw(c, n, sampler_chance(s));
}
