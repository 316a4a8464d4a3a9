/* The order of things: penalties and bias on the logits; then temperature; then top-k, top-p and
 * min-p each cut what is left of the tail; then one draw.
 *
 * There are two ways to one result. The exact one copies, sorts and adds weight by weight; what it
 * picks is what a seed means. The fast one has the same weights to the bit, finds where the cuts
 * and the draw fall by adding them in another order, and leaves a pick to the exact one where that
 * could have turned it: where a fall is closer to the edge of a token than such sums can differ. */
#include "agent/engine/sampler.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/sampler_order.h"
#include "common/env.h"

enum {
    BLOCK = 1024
}; /* weights that are added together before it is known whether the draw falls among them */
static const double DOUBT = 1e-10; /* of all mass: more than two orders of adding it can differ */

struct sampler {
    struct sampler_params params;
    int vocabulary;
    uint64_t n_picks;
    bool adjusts;        /* some penalty or bias is on */
    uint8_t *in_prompt;  /* [vocabulary] */
    uint32_t *in_output; /* [vocabulary]: times */
    uint32_t *seen;      /* [vocabulary]: those of either, each once */
    size_t n_seen;
    float *adjusted; /* [vocabulary]: logits with penalties and bias; NULL where nothing adjusts */
    float *weights;  /* [vocabulary] */
    struct sampler_candidate *candidates; /* [vocabulary] */
    const struct sampler_kernels *kernels;
    struct sampler_order order;
};

const struct sampler_params sampler_defaults = {.top_p = 1, .repetition_penalty = 1};

/* ---- making one
 * -------------------------------------------------------------------------------------------------
 */

int sampler_params_check(const struct sampler_params *p, int vocabulary, struct err *e)
{
    const struct {
        const char *name;
        double value, low, high;
        bool above_low;
    } ranges[] = {
        {"temperature", p->temperature, 0, 100, false},
        {"top_p", p->top_p, 0, 1, true},
        {"min_p", p->min_p, 0, 1, false},
        {"repetition_penalty", p->repetition_penalty, 0, 100, true},
        {"presence_penalty", p->presence_penalty, -2, 2, false},
        {"frequency_penalty", p->frequency_penalty, -2, 2, false},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        bool low_ok = ranges[i].above_low ? ranges[i].value > ranges[i].low
                                          : ranges[i].value >= ranges[i].low;
        if (!low_ok || !(ranges[i].value <= ranges[i].high))
            return err_set(e, HP_EINVAL, "%s is %g; it must be %s %g and at most %g",
                           ranges[i].name, ranges[i].value,
                           ranges[i].above_low ? "above" : "at least", ranges[i].low,
                           ranges[i].high);
    }
    if (p->n_bias > SAMPLER_MAX_BIAS)
        return err_set(e, HP_EINVAL, "logit_bias names %u tokens; at most %d are allowed",
                       p->n_bias, SAMPLER_MAX_BIAS);
    for (uint32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token >= (uint32_t)vocabulary)
            return err_set(e, HP_EINVAL, "logit_bias names token %u, beyond the vocabulary of %d",
                           p->bias[i].token, vocabulary);
        if (!(p->bias[i].bias >= -100 && p->bias[i].bias <= 100))
            return err_set(e, HP_EINVAL,
                           "logit_bias of token %u is %g; it must be between -100 and 100",
                           p->bias[i].token, (double)p->bias[i].bias);
    }
    return 0;
}

int sampler_create(const struct sampler_params *p, int vocabulary, const uint32_t *prompt,
                   size_t n_prompt, struct sampler **out, struct err *e)
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
        s->seen = calloc((size_t)vocabulary, sizeof *s->seen);
        s->weights = calloc((size_t)vocabulary, sizeof *s->weights);
        s->adjusts = p->repetition_penalty != 1 || p->presence_penalty != 0 ||
                     p->frequency_penalty != 0 || p->n_bias > 0;
        s->adjusted = s->adjusts ? calloc((size_t)vocabulary, sizeof *s->adjusted) : NULL;
    }
    if (!s || !s->in_prompt || !s->in_output || !s->candidates || !s->seen || !s->weights ||
        (s->adjusts && !s->adjusted)) {
        sampler_destroy(&s);
        return err_set(e, HP_ENOMEM, "no memory for a sampler over %d tokens", vocabulary);
    }
    s->params = *p;
    s->vocabulary = vocabulary;
    s->kernels = sampler_kernels_best();
    for (size_t i = 0; i < n_prompt; i++)
        if (prompt[i] < (uint32_t)vocabulary && !s->in_prompt[prompt[i]]) {
            s->in_prompt[prompt[i]] = 1;
            s->seen[s->n_seen++] = prompt[i];
        }
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
    free(s->seen);
    free(s->adjusted);
    free(s->weights);
    free(s);
}

void sampler_accept(struct sampler *s, uint32_t token)
{
    if (token < (uint32_t)s->vocabulary && !s->in_output[token]++ && !s->in_prompt[token])
        s->seen[s->n_seen++] = token;
    s->n_picks++;
}

/* ---- drawing
 * ----------------------------------------------------------------------------------------------------
 */

/* Only what was seen before, or is named, differs from the row. */
static void adjust(struct sampler *s, const float *logits)
{
    const struct sampler_params *p = &s->params;
    memcpy(s->adjusted, logits, (size_t)s->vocabulary * sizeof *logits);
    for (size_t i = 0; i < s->n_seen; i++) {
        uint32_t t = s->seen[i];
        float *logit = &s->adjusted[t];
        if (p->repetition_penalty != 1)
            *logit = *logit > 0 ? *logit / (float)p->repetition_penalty
                                : *logit * (float)p->repetition_penalty;
        if (s->in_output[t])
            *logit -= (float)(p->presence_penalty + p->frequency_penalty * s->in_output[t]);
    }
    for (uint32_t i = 0; i < p->n_bias; i++)
        s->adjusted[p->bias[i].token] += p->bias[i].bias;
}

/* Heavier first; among equals the lower token. */
static bool before(const struct sampler_candidate *a, const struct sampler_candidate *b)
{
    return a->weight > b->weight || (!(a->weight < b->weight) && a->token < b->token);
}

static int compare(const void *a, const void *b)
{
    return before(a, b) ? -1 : 1;
}

/* The likeliest token; what is no number is not. */
static uint32_t heaviest(const struct sampler *s, const float *row, float greatest)
{
    size_t n = (size_t)s->vocabulary, at = s->kernels->find(row, n, greatest);
    return (uint32_t)(at < n ? at : n - 1);
}

static void swap(struct sampler_candidate *a, struct sampler_candidate *b)
{
    struct sampler_candidate c = *a;
    *a = *b;
    *b = c;
}

/* Brings the k candidates that come first to the front, in any order (quickselect). */
static void select_first(struct sampler_candidate *c, size_t n, size_t k)
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

/* Those that weigh something in double, in order of their tokens. Gives how many. */
static size_t candidates_list(struct sampler *s, const float *row, float greatest)
{
    size_t n = 0;
    for (int i = 0; i < s->vocabulary; i++) {
        double x = ((double)row[i] - (double)greatest) / s->params.temperature;
        if (s->weights[i] > 0 || (x > -746 && exp(x) > 0))
            s->candidates[n++] = (struct sampler_candidate){s->weights[i], (uint32_t)i};
    }
    return n;
}

static double total_weight(const struct sampler_candidate *c, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)c[i].weight;
    return sum;
}

static size_t keep_at_least(struct sampler_candidate *c, size_t n, float least)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].weight >= least)
            swap(&c[i], &c[kept++]);
    return kept;
}

/* The heaviest whose weights together reach top_p of all. Only those are sorted that can be among
 * them. */
static size_t cut_top_p(struct sampler_candidate *c, size_t n, double top_p)
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

static uint32_t draw(const struct sampler *s, const struct sampler_candidate *c, size_t n)
{
    double at = chance(s) * total_weight(c, n);
    for (size_t i = 0; i < n; i++) {
        at -= (double)c[i].weight;
        if (at < 0)
            return c[i].token;
    }
    return c[n - 1].token;
}

static uint32_t sample_exactly(struct sampler *s, const float *row, float greatest)
{
    const struct sampler_params *p = &s->params;
    struct sampler_candidate *c = s->candidates;
    size_t n = candidates_list(s, row, greatest);
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

/* ---- the fast way
 * ------------------------------------------------------------------------------------------------
 */

/* No other order of adding could have come to another token. */
static bool fall_certain(double target, double before, double after, double doubt)
{
    return (before <= 0 || target - before > doubt) && after - target > doubt;
}

/* Without top-k and top-p tokens are drawn from in their order. */
static bool draw_in_order_of_tokens(const struct sampler *s, uint32_t *token)
{
    size_t n = (size_t)s->vocabulary, i = 0;
    double all = 0, before = 0, after = 0;
    for (size_t b = 0; b < n; b += BLOCK)
        all += s->kernels->sum(s->weights + b, n - b < BLOCK ? n - b : BLOCK);
    double at = chance(s) * all;
    for (; i < n; i += BLOCK) {
        after = before + s->kernels->sum(s->weights + i, n - i < BLOCK ? n - i : BLOCK);
        if (after > at)
            break;
        before = after;
    }
    for (; i < n; before = after, i++) {
        after = before + (double)s->weights[i];
        if (after > at) {
            *token = (uint32_t)i;
            return fall_certain(at, before, after, DOUBT * all);
        }
    }
    return false;
}

static double mass_at_least(const struct sampler *s, float least)
{
    size_t n =
        s->kernels->gather(s->weights, (size_t)s->vocabulary, least, INFINITY, s->candidates);
    return total_weight(s->candidates, n);
}

/* With top-p they are drawn from in the order of their weights. */
static bool draw_in_order_of_weights(struct sampler *s, uint32_t *token)
{
    const struct sampler_params *p = &s->params;
    struct sampler_order *o = &s->order;
    struct sampler_order_cut cut;
    o->kernels = s->kernels;
    o->weights = s->weights;
    o->n = (size_t)s->vocabulary;
    o->scratch = s->candidates;
    double all = sampler_order_begin(o, p->top_k > 0), left = all, doubt = DOUBT * all;
    if (p->top_k > 0 && sampler_order_find_rank(o, p->top_k, &cut))
        left = cut.after;
    double wanted = p->top_p * left;
    if (!sampler_order_find_mass(o, wanted, &cut) ||
        !fall_certain(wanted, cut.before, cut.after, doubt))
        return false;
    double kept = cut.after;
    if (p->min_p > 0 && cut.at.weight < (float)p->min_p)
        kept = mass_at_least(s, (float)p->min_p);
    double at = chance(s) * kept;
    if (!sampler_order_find_mass(o, at, &cut))
        return false;
    *token = cut.at.token;
    return fall_certain(at, cut.before, cut.after, doubt);
}

/* After the cuts, in which order are tokens drawn from? Top-k alone leaves one that only the exact
 * way knows. */
static bool sample_fast(struct sampler *s, uint32_t *token)
{
    const struct sampler_params *p = &s->params;
    if (p->top_p < 1)
        return draw_in_order_of_weights(s, token);
    return p->top_k == 0 && p->min_p <= 0 && draw_in_order_of_tokens(s, token);
}

static uint32_t sample(struct sampler *s, const float *row, float greatest)
{
    uint32_t token = 0;
    if (!isfinite(greatest))
        return heaviest(s, row, greatest);
    s->kernels->weigh(row, (size_t)s->vocabulary, (double)greatest, s->params.temperature,
                      s->weights);
    return sample_fast(s, &token) ? token : sample_exactly(s, row, greatest);
}

uint32_t sampler_pick(struct sampler *s, const float *logits)
{
    const float *row = logits;
    if (s->adjusts) {
        adjust(s, logits);
        row = s->adjusted;
    }
    float greatest = s->kernels->greatest(row, (size_t)s->vocabulary);
    uint32_t token =
        s->params.temperature > 0 ? sample(s, row, greatest) : heaviest(s, row, greatest);
    sampler_accept(s, token);
    return token;
}

void sampler_kernels_use(struct sampler *s, const struct sampler_kernels *k)
{
    s->kernels = k;
}
