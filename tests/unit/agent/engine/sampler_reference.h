/* The sampler as it was before it became fast: what each pick must be, to the bit. It sorts, copies
 * and takes exp of everything. */
#ifndef HP_TESTS_SAMPLER_REFERENCE_H
#define HP_TESTS_SAMPLER_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/sampler.h"
#include "common/env.h"

struct old_candidate {
    float weight;
    uint32_t token;
};

struct old_sampler {
    struct sampling_params params;
    int vocabulary;
    uint64_t n_picks;
    bool adjusts;
    uint8_t *in_prompt;
    uint32_t *in_output;
    struct old_candidate *candidates;
};

static struct old_sampler *old_create(const struct sampling_params *p, int vocabulary,
                                      const uint32_t *prompt, size_t n_prompt)
{
    struct old_sampler *s = calloc(1, sizeof *s);
    s->in_prompt = calloc((size_t)vocabulary, sizeof *s->in_prompt);
    s->in_output = calloc((size_t)vocabulary, sizeof *s->in_output);
    s->candidates = calloc((size_t)vocabulary, sizeof *s->candidates);
    s->params = *p;
    s->vocabulary = vocabulary;
    s->adjusts = p->repetition_penalty != 1 || p->presence_penalty != 0 ||
                 p->frequency_penalty != 0 || p->bias.count > 0;
    for (size_t i = 0; i < n_prompt; i++)
        s->in_prompt[prompt[i]] = 1;
    return s;
}

static void old_destroy(struct old_sampler *s)
{
    free(s->in_prompt);
    free(s->in_output);
    free(s->candidates);
    free(s);
}

/* ---- drawing ---- */

static void old_adjust(struct old_sampler *s)
{
    const struct sampling_params *p = &s->params;
    for (int i = 0; i < s->vocabulary; i++) {
        float *logit = &s->candidates[i].weight;
        if ((s->in_prompt[i] || s->in_output[i]) && p->repetition_penalty != 1)
            *logit = *logit > 0 ? *logit / (float)p->repetition_penalty
                                : *logit * (float)p->repetition_penalty;
        if (s->in_output[i])
            *logit -= (float)(p->presence_penalty + p->frequency_penalty * s->in_output[i]);
    }
    const struct sampling_bias *bias = p->bias.items;
    for (size_t i = 0; i < p->bias.count; i++)
        s->candidates[bias[i].token].weight += (float)bias[i].bias;
}

/* Heavier first; among equals the lower token. */
static bool old_before(const struct old_candidate *a, const struct old_candidate *b)
{
    return a->weight > b->weight || (!(a->weight < b->weight) && a->token < b->token);
}

static int old_compare(const void *a, const void *b)
{
    return old_before(a, b) ? -1 : 1;
}

static const struct old_candidate *old_heaviest(const struct old_sampler *s)
{
    const struct old_candidate *best = &s->candidates[0];
    for (int i = 1; i < s->vocabulary; i++)
        if (old_before(&s->candidates[i], best) || isnan(best->weight))
            best = &s->candidates[i];
    return best;
}

static void old_swap(struct old_candidate *a, struct old_candidate *b)
{
    struct old_candidate c = *a;
    *a = *b;
    *b = c;
}

/* Brings the k candidates that come first to the front, in any order (quickselect). */
static void old_select_first(struct old_candidate *c, size_t n, size_t k)
{
    size_t low = 0, high = n;
    while (high - low > 1) {
        old_swap(&c[low + (high - low) / 2], &c[high - 1]);
        size_t at = low;
        for (size_t i = low; i + 1 < high; i++)
            if (old_before(&c[i], &c[high - 1]))
                old_swap(&c[i], &c[at++]);
        old_swap(&c[at], &c[high - 1]);
        if (at == k || at + 1 == k)
            return;
        if (at < k)
            low = at + 1;
        else
            high = at;
    }
}

/* Logits to weights relative to the heaviest; what weighs nothing is left out. Gives how many are
 * left. */
static size_t old_heat(struct old_sampler *s, float greatest)
{
    size_t n = 0;
    for (int i = 0; i < s->vocabulary; i++) {
        double w =
            exp(((double)s->candidates[i].weight - (double)greatest) / s->params.temperature);
        if (w > 0)
            s->candidates[n++] = (struct old_candidate){(float)w, s->candidates[i].token};
    }
    return n;
}

static double old_total_weight(const struct old_candidate *c, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)c[i].weight;
    return sum;
}

static size_t old_keep_at_least(struct old_candidate *c, size_t n, float least)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].weight >= least)
            old_swap(&c[i], &c[kept++]);
    return kept;
}

/* The heaviest whose weights together reach top_p of all. Only those are sorted that can be among
 * them. */
static size_t old_cut_top_p(struct old_candidate *c, size_t n, double top_p)
{
    double wanted = top_p * old_total_weight(c, n), sum = 0;
    size_t front = n < 64 ? n : 64;
    for (;; front = front * 8 < n ? front * 8 : n) {
        old_select_first(c, n, front);
        if (front == n || old_total_weight(c, front) >= wanted)
            break;
    }
    qsort(c, front, sizeof *c, old_compare);
    for (size_t i = 0; i < front; i++) {
        sum += (double)c[i].weight;
        if (sum >= wanted)
            return i + 1;
    }
    return front;
}

/* Uniform in [0, 1) from seed and count alone. */
static double old_chance(const struct old_sampler *s)
{
    uint64_t state = s->params.seed;
    state = random_next(&state) + s->n_picks * 0x9e3779b97f4a7c15u;
    return random_unit(&state);
}

static uint32_t old_draw(const struct old_sampler *s, const struct old_candidate *c, size_t n)
{
    double at = old_chance(s) * old_total_weight(c, n);
    for (size_t i = 0; i < n; i++) {
        at -= (double)c[i].weight;
        if (at < 0)
            return c[i].token;
    }
    return c[n - 1].token;
}

static uint32_t old_sample(struct old_sampler *s)
{
    const struct sampling_params *p = &s->params;
    struct old_candidate best = *old_heaviest(s), *c = s->candidates;
    size_t n = old_heat(s, best.weight);
    if (n == 0)
        return best.token;
    if (p->top_k > 0 && p->top_k < n) {
        old_select_first(c, n, p->top_k);
        n = p->top_k;
    }
    if (p->top_p < 1)
        n = old_cut_top_p(c, n, p->top_p);
    if (p->min_p > 0)
        n = old_keep_at_least(c, n, (float)p->min_p);
    return old_draw(s, c, n);
}

static uint32_t old_pick(struct old_sampler *s, const float *logits)
{
    for (int i = 0; i < s->vocabulary; i++)
        s->candidates[i] = (struct old_candidate){logits[i], (uint32_t)i};
    if (s->adjusts)
        old_adjust(s);
    uint32_t token = s->params.temperature > 0 ? old_sample(s) : old_heaviest(s)->token;
    s->in_output[token]++;
    s->n_picks++;
    return token;
}

#endif
