#include "agent/engine/scores.h"

#include <math.h>

#include "agent/engine/sampler_kernels.h"

enum { BLOCK = 1024 };

/* ln of the sum of all weights. The parts are added block by block in double. */
static double row_log_total(const struct sampler_kernels *k, const float *x, size_t n,
                            float greatest)
{
    float w[BLOCK];
    double sum = 0;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        k->weigh(x + at, m, (double)greatest, 1, w);
        sum += k->sum(w, m);
    }
    return sum > 0 ? (double)greatest + log(sum) : INFINITY;
}

static uint32_t row_rank(const float *x, size_t n, float value)
{
    uint32_t likelier = 0;
    for (size_t i = 0; i < n; i++)
        likelier += x[i] > value;
    return likelier + 1;
}

/* Among the likeliest so far, in their order; the last one falls out. */
static void top_insert(struct score *top, uint32_t n, uint32_t id, float logit)
{
    uint32_t at = n - 1;
    while (at > 0 && (top[at - 1].id == SCORE_NONE || top[at - 1].logprob < logit)) {
        top[at] = top[at - 1];
        at--;
    }
    top[at] = (struct score){id, logit};
}

/* The likeliest, with their logits. Blocks without one of them are passed over. */
static void top_find(const struct sampler_kernels *k, const float *x, size_t n, struct score *top,
                     uint32_t n_top)
{
    for (uint32_t i = 0; i < n_top; i++)
        top[i] = (struct score){SCORE_NONE, -INFINITY};
    const struct score *least = top + n_top - 1;
    for (size_t at = 0; n_top && at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        if (least->id != SCORE_NONE && k->greatest(x + at, m) <= least->logprob)
            continue;
        for (size_t i = at; i < at + m; i++)
            if (!isnan(x[i]) && (least->id == SCORE_NONE || x[i] > least->logprob))
                top_insert(top, n_top, (uint32_t)i, x[i]);
    }
}

void scores_write(const float *logits, size_t n, uint32_t token, uint32_t width, struct score *out)
{
    const struct sampler_kernels *k = sampler_kernels_best();
    float greatest = k->greatest(logits, n);
    double total = row_log_total(k, logits, n, greatest);
    bool known = token < n && !isnan(logits[token]);
    out[0] = (struct score){known ? row_rank(logits, n, logits[token]) : (uint32_t)n,
                            known ? (float)((double)logits[token] - total) : -INFINITY};
    top_find(k, logits, n, out + 1, width - 1);
    for (uint32_t i = 1; i < width; i++)
        if (out[i].id != SCORE_NONE)
            out[i].logprob = (float)((double)out[i].logprob - total);
}
