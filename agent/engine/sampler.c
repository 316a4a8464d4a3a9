/* The order of things: penalties and bias on the logits; then temperature; then top-k, top-p and min-p each cut what is left of the tail; then one draw. */
#include "agent/engine/sampler.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"

struct candidate {
    float weight; /* a logit; after the temperature exp(logit - greatest) */
    uint32_t token;
};

struct sampler {
    struct sampler_params params;
    int vocabulary;
    uint64_t n_picks;
    bool adjusts;               /* some penalty or bias is on */
    uint8_t *in_prompt;         /* [vocabulary] */
    uint32_t *in_output;        /* [vocabulary]: times */
    struct candidate *candidates; /* [vocabulary] */
};

const struct sampler_params sampler_defaults = {.top_p = 1, .repetition_penalty = 1};

/* ---- making one ------------------------------------------------------------------------------------------------- */

int sampler_params_check(const struct sampler_params *p, int vocabulary, struct err *e)
{
    const struct {
        const char *name;
        double value, low, high;
        bool above_low;
    } ranges[] = {
        {"temperature", p->temperature, 0, 100, false},          {"top_p", p->top_p, 0, 1, true},
        {"min_p", p->min_p, 0, 1, false},                        {"repetition_penalty", p->repetition_penalty, 0, 100, true},
        {"presence_penalty", p->presence_penalty, -2, 2, false}, {"frequency_penalty", p->frequency_penalty, -2, 2, false},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        bool low_ok = ranges[i].above_low ? ranges[i].value > ranges[i].low : ranges[i].value >= ranges[i].low;
        if (!low_ok || !(ranges[i].value <= ranges[i].high))
            return err_set(e, HP_EINVAL, "%s is %g; it must be %s %g and at most %g", ranges[i].name, ranges[i].value,
                           ranges[i].above_low ? "above" : "at least", ranges[i].low, ranges[i].high);
    }
    if (p->n_bias > SAMPLER_MAX_BIAS)
        return err_set(e, HP_EINVAL, "logit_bias names %u tokens; at most %d are allowed", p->n_bias, SAMPLER_MAX_BIAS);
    for (uint32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token >= (uint32_t)vocabulary)
            return err_set(e, HP_EINVAL, "logit_bias names token %u, beyond the vocabulary of %d", p->bias[i].token, vocabulary);
        if (!(p->bias[i].bias >= -100 && p->bias[i].bias <= 100))
            return err_set(e, HP_EINVAL, "logit_bias of token %u is %g; it must be between -100 and 100", p->bias[i].token, (double)p->bias[i].bias);
    }
    return 0;
}

int sampler_create(const struct sampler_params *p, int vocabulary, const uint32_t *prompt, size_t n_prompt, struct sampler **out, struct err *e)
{
    assert(vocabulary > 0);
    int rc = sampler_params_check(p, vocabulary, e);
    if (rc < 0)
        return rc;
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->in_prompt = calloc((size_t)vocabulary, sizeof *s->in_prompt);
        s->in_output = calloc((size_t)vocabulary, sizeof *s->in_output);
        s->candidates = calloc((size_t)vocabulary, sizeof *s->candidates);
    }
    if (!s || !s->in_prompt || !s->in_output || !s->candidates) {
        sampler_destroy(&s);
        return err_set(e, HP_ENOMEM, "no memory for a sampler over %d tokens", vocabulary);
    }
    s->params = *p;
    s->vocabulary = vocabulary;
    s->adjusts = p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0 || p->n_bias > 0;
    for (size_t i = 0; i < n_prompt; i++)
        if (prompt[i] < (uint32_t)vocabulary)
            s->in_prompt[prompt[i]] = 1;
    *out = s;
    return 0;
}

void sampler_destroy(struct sampler **self)
{
    struct sampler *s = *self;
    *self = NULL;
    if (!s)
        return;
    free(s->in_prompt);
    free(s->in_output);
    free(s->candidates);
    free(s);
}

void sampler_accept(struct sampler *s, uint32_t token)
{
    if (token < (uint32_t)s->vocabulary)
        s->in_output[token]++;
    s->n_picks++;
}

/* ---- drawing ---------------------------------------------------------------------------------------------------- */

static void adjust(struct sampler *s)
{
    const struct sampler_params *p = &s->params;
    for (int i = 0; i < s->vocabulary; i++) {
        float *logit = &s->candidates[i].weight;
        if ((s->in_prompt[i] || s->in_output[i]) && p->repetition_penalty != 1)
            *logit = *logit > 0 ? *logit / (float)p->repetition_penalty : *logit * (float)p->repetition_penalty;
        if (s->in_output[i])
            *logit -= (float)(p->presence_penalty + p->frequency_penalty * s->in_output[i]);
    }
    for (uint32_t i = 0; i < p->n_bias; i++)
        s->candidates[p->bias[i].token].weight += p->bias[i].bias;
}

/* Heavier first; among equals the lower token. */
static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->weight > b->weight || (!(a->weight < b->weight) && a->token < b->token);
}

static int compare(const void *a, const void *b) { return before(a, b) ? -1 : 1; }

static const struct candidate *heaviest(const struct sampler *s)
{
    const struct candidate *best = &s->candidates[0];
    for (int i = 1; i < s->vocabulary; i++)
        if (before(&s->candidates[i], best) || isnan(best->weight))
            best = &s->candidates[i];
    return best;
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate c = *a;
    *a = *b;
    *b = c;
}

/* Brings the k candidates that come first to the front, in any order (quickselect). */
static void select_first(struct candidate *c, size_t n, size_t k)
{
    size_t low = 0, high = n;
    while (high - low > 1) {
        swap(&c[low + (high - low) / 2], &c[high - 1]);
        size_t at = low;
        for (size_t i = low; i + 1 < high; i++)
            if (before(&c[i], &c[high - 1]))
                swap(&c[i], &c[at++]);
        swap(&c[at], &c[high - 1]);
        if (at == k || at + 1 == k)
            return;
        if (at < k)
            low = at + 1;
        else
            high = at;
    }
}

/* Logits to weights relative to the heaviest; what weighs nothing is left out. Gives how many are left. */
static size_t heat(struct sampler *s, float greatest)
{
    size_t n = 0;
    for (int i = 0; i < s->vocabulary; i++) {
        double w = exp(((double)s->candidates[i].weight - (double)greatest) / s->params.temperature);
        if (w > 0)
            s->candidates[n++] = (struct candidate){(float)w, s->candidates[i].token};
    }
    return n;
}

static double total_weight(const struct candidate *c, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)c[i].weight;
    return sum;
}

static size_t keep_at_least(struct candidate *c, size_t n, float least)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].weight >= least)
            swap(&c[i], &c[kept++]);
    return kept;
}

/* The heaviest whose weights together reach top_p of all. Only those are sorted that can be among them. */
static size_t cut_top_p(struct candidate *c, size_t n, double top_p)
{
    double wanted = top_p * total_weight(c, n), sum = 0;
    size_t front = n < 64 ? n : 64;
    for (;; front = front * 8 < n ? front * 8 : n) {
        select_first(c, n, front);
        if (front == n || total_weight(c, front) >= wanted)
            break;
    }
    qsort(c, front, sizeof *c, compare);
    for (size_t i = 0; i < front; i++) {
        sum += (double)c[i].weight;
        if (sum >= wanted)
            return i + 1;
    }
    return front;
}

/* Uniform in [0, 1) from seed and count alone. */
static double chance(const struct sampler *s)
{
    uint64_t state = s->params.seed;
    state = random_next(&state) + s->n_picks * 0x9e3779b97f4a7c15u;
    return random_unit(&state);
}

static uint32_t draw(const struct sampler *s, const struct candidate *c, size_t n)
{
    double at = chance(s) * total_weight(c, n);
    for (size_t i = 0; i < n; i++) {
        at -= (double)c[i].weight;
        if (at < 0)
            return c[i].token;
    }
    return c[n - 1].token;
}

static uint32_t sample(struct sampler *s)
{
    const struct sampler_params *p = &s->params;
    struct candidate best = *heaviest(s), *c = s->candidates;
    size_t n = heat(s, best.weight);
    if (n == 0)
        return best.token;
    if (p->top_k > 0 && p->top_k < n) {
        select_first(c, n, p->top_k);
        n = p->top_k;
    }
    if (p->top_p < 1)
        n = cut_top_p(c, n, p->top_p);
    if (p->min_p > 0)
        n = keep_at_least(c, n, (float)p->min_p);
    return draw(s, c, n);
}

uint32_t sampler_pick(struct sampler *s, const float *logits)
{
    for (int i = 0; i < s->vocabulary; i++)
        s->candidates[i] = (struct candidate){logits[i], (uint32_t)i};
    if (s->adjusts)
        adjust(s);
    uint32_t token = s->params.temperature > 0 ? sample(s) : heaviest(s)->token;
    sampler_accept(s, token);
    return token;
}
