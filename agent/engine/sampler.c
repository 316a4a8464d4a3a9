/* The order of things: penalties and bias on the logits; then temperature; then top-k, top-p and
 * min-p each cut what is left of the tail; then one draw.
 *
 * Another order is sampler_steps.c's.
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

#include "agent/engine/sampler_adjust.h"
#include "agent/engine/sampler_cuts.h"
#include "agent/engine/sampler_int.h"
#include "agent/engine/sampler_select.h"
#include "agent/engine/sampler_steps.h"
#include "common/vector.h"
#include "model/grammar/automaton.h"

enum {
    FIT_TRIES = 8, /* picks that a grammar's end lies too far behind */
    BLOCK = 1024,  /* weights that are added together before it is known whether the draw falls
                      among them */
};
static const double DOUBT = 1e-10; /* of all mass: more than two orders of adding it can differ */

/* ---- making one ---- */

int sampler_create(const struct sampling_params *p, int vocabulary, const uint32_t *prompt,
                   size_t n_prompt, struct sampler **out, struct err *e)
{
    assert(vocabulary > 0);
    int rc = sampling_check(p, (uint64_t)vocabulary, e);
    if (rc < 0)
        return rc;
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->listed = calloc((size_t)vocabulary, sizeof *s->listed);
        s->times = calloc((size_t)vocabulary, sizeof *s->times);
        s->candidates = calloc((size_t)vocabulary + SAMPLER_SLACK, sizeof *s->candidates);
        s->seen = calloc((size_t)vocabulary, sizeof *s->seen);
        s->weights = calloc((size_t)vocabulary, sizeof *s->weights);
        s->adjusts = p->repetition_penalty != 1 || p->presence_penalty != 0 ||
                     p->frequency_penalty != 0 || p->bias.count > 0 ||
                     (p->min_tokens && p->late_ids.count) || p->grammar.size > 0;
        s->adjusted = s->adjusts ? calloc((size_t)vocabulary, sizeof *s->adjusted) : NULL;
    }
    if (!s || !s->listed || !s->times || !s->candidates || !s->seen || !s->weights ||
        (s->adjusts && !s->adjusted)) {
        sampler_destroy(&s);
        return err_set(e, HP_ENOMEM, "no memory for a sampler over %d tokens", vocabulary);
    }
    rc = sampling_copy(&s->params, p, e);
    if (rc < 0) {
        sampler_destroy(&s);
        return rc;
    }
    s->vocabulary = vocabulary;
    s->kernels = sampler_kernels_best();
    sampler_prompt_see(s, prompt, n_prompt);
    *out = s;
    return 0;
}

void sampler_destroy(struct sampler **self)
{
    struct sampler *s = *self;
    *self = NULL;
    if (!s)
        return;
    free(s->listed);
    free(s->times);
    free(s->recent);
    free(s->candidates);
    free(s->seen);
    free(s->adjusted);
    free(s->weights);
    free(s->changes);
    free(s->ends);
    free(s->before);
    matcher_destroy(&s->matcher);
    sampling_free(&s->params);
    free(s);
}

void sampler_accept(struct sampler *s, uint32_t token)
{
    sampler_output_see(s, token);
    s->n_picks++;
    if (s->matcher)
        matcher_accept(s->matcher, token);
    else if (s->params.grammar.size && !vector_push(s->before, s->n_before, s->before_room, token))
        s->most_tokens = 0; /* no memory: then nothing fits */
}

/* ---- a grammar ---- */

int sampler_expect(struct sampler *s, uint64_t most_tokens, const uint32_t *ends, size_t n_ends,
                   struct err *e)
{
    s->ends = calloc(n_ends + 1, sizeof *ends);
    if (!s->ends)
        return err_no_memory(e, "%zu tokens that end an answer", n_ends);
    if (n_ends)
        memcpy(s->ends, ends, n_ends * sizeof *ends);
    s->n_ends = n_ends;
    s->most_tokens = most_tokens;
    return 0;
}

struct pack_span sampler_grammar(const struct sampler *s)
{
    return s->params.grammar;
}

bool sampler_needs_texts(const struct sampler *s)
{
    return sampling_has_step(s->params.steps, SAMPLING_INFILL);
}

void sampler_texts_use(struct sampler *s, const struct token_tree *texts)
{
    s->texts = texts;
}

int sampler_constrain(struct sampler *s, struct automaton *a, struct err *e)
{
    int rc = matcher_create(a, s->most_tokens, s->ends, s->n_ends, &s->matcher, e);
    for (size_t i = 0; rc == 0 && i < s->n_before; i++)
        matcher_accept(s->matcher, s->before[i]);
    if (rc == 0) { /* a megabyte and more, which nobody reads again */
        free((void *)s->params.grammar.data);
        s->params.grammar = (struct pack_span){0};
    }
    return rc < 0 ? rc : matcher_error(s->matcher, e);
}

bool sampler_lacks(struct sampler *s)
{
    return s->matcher && matcher_lacks(s->matcher);
}

bool sampler_look_ahead(struct sampler *s)
{
    return s->matcher && matcher_look_ahead(s->matcher);
}

/* ---- drawing ---- */

/* The likeliest token; what is no number is not. */
static uint32_t token_heaviest(const struct sampler *s, const float *row, float greatest)
{
    size_t n = (size_t)s->vocabulary, at = s->kernels->find(row, n, greatest);
    return (uint32_t)(at < n ? at : n - 1);
}

/* The least value that weighs something in double, though its weight may be too small for a
 * float. */
static float weight_lightest(float greatest, double temperature)
{
    float nothing = (float)((double)greatest - 800 * temperature), something = greatest;
    while (nextafterf(nothing, INFINITY) < something) {
        float middle = (float)(((double)nothing + (double)something) / 2);
        if (exp(((double)middle - (double)greatest) / temperature) > 0)
            something = middle;
        else
            nothing = middle;
    }
    return something;
}

/* Those that weigh something in double, in order of their tokens. Gives how many. */
static size_t candidates_list(struct sampler *s, const float *row, float greatest)
{
    return s->kernels->gather(row, s->weights, (size_t)s->vocabulary,
                              weight_lightest(greatest, s->params.temperature), INFINITY, 0,
                              s->candidates);
}

/* What `candidates_list` and the first turn of `sampler_select_few` leave, without listing all:
 * false when that cannot be said so. The last has changed places with the pivot, the middle one. */
static bool candidates_select(struct sampler *s, size_t k, size_t *n)
{
    const struct sampler_kernels *kernels = s->kernels;
    size_t all = (size_t)s->vocabulary, middle = all / 2, last = all - 1, m;
    const float *w = s->weights;
    uint64_t pivot = sampler_candidate(w[middle], (uint32_t)middle), *c = s->candidates;
    if (all < 3 || kernels->find(w, all, 0) < all)
        return false;
    m = kernels->gather(w, w, middle, w[middle], INFINITY, 0, c);
    c[m++] = sampler_candidate(w[last], (uint32_t)last);
    m += kernels->gather(w + middle + 1, w + middle + 1, last - middle - 1, w[middle], INFINITY,
                         (uint32_t)middle + 1, c + m);
    *n = kernels->keep_before(c, m, pivot);
    return *n >= k;
}

static uint32_t sample_exactly(struct sampler *s, const float *row, float greatest)
{
    const struct sampling_params *p = &s->params;
    uint64_t *c = s->candidates;
    size_t n = 0;
    if (!p->top_k || !candidates_select(s, p->top_k, &n))
        n = candidates_list(s, row, greatest);
    if (p->top_k > 0 && p->top_k < n) {
        sampler_select_few(s->kernels, c, n, p->top_k);
        n = p->top_k;
    }
    if (p->top_p < 1)
        n = sampler_cut_top_p(c, n, p->top_p);
    if (p->min_p > 0)
        n = sampler_cut_light(c, n, (float)p->min_p);
    return sampler_draw(c, n, sampler_chance(s));
}

/* ---- the fast way ---- */

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
    double at = sampler_chance(s) * all;
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
    size_t n = s->kernels->gather(s->weights, s->weights, (size_t)s->vocabulary, least, INFINITY, 0,
                                  s->candidates);
    return sampler_mass(s->candidates, n);
}

/* Where the draw falls among weights of which `kept` are left, or a bit more. */
static bool draw_from_mass(struct sampler *s, double kept, double more, double doubt,
                           uint32_t *token)
{
    struct sampler_order_cut cut;
    double at = sampler_chance(s) * kept, at_most = sampler_chance(s) * (kept + more);
    if (!sampler_order_find_mass(&s->order, at, &cut))
        return false;
    *token = cut.token;
    return fall_certain(at, cut.before, cut.after, doubt) && cut.after - at_most > doubt;
}

/* The last weight that top-p keeps is let in whole. It need not be known: what it can be at most
 * moves the draw by little. */
static bool draw_without_cut(struct sampler *s, double wanted, double doubt, uint32_t *token)
{
    float low, high;
    return sampler_order_bound_mass(&s->order, wanted, doubt, &low, &high) &&
           (float)s->params.min_p <= low && draw_from_mass(s, wanted, (double)high, doubt, token);
}

static bool draw_after_cut(struct sampler *s, double wanted, double doubt, uint32_t *token)
{
    float min_p = (float)s->params.min_p;
    struct sampler_order_cut cut;
    if (!sampler_order_find_mass(&s->order, wanted, &cut) ||
        !fall_certain(wanted, cut.before, cut.after, doubt))
        return false;
    double kept = min_p > 0 && cut.weight < min_p ? mass_at_least(s, min_p) : cut.after;
    return draw_from_mass(s, kept, 0, doubt, token);
}

/* With top-p they are drawn from in the order of their weights. */
static bool draw_in_order_of_weights(struct sampler *s, uint32_t *token)
{
    const struct sampling_params *p = &s->params;
    struct sampler_order *o = &s->order;
    struct sampler_order_cut cut;
    o->kernels = s->kernels;
    o->weights = s->weights;
    o->n = (size_t)s->vocabulary;
    o->scratch = s->candidates;
    double all = sampler_order_begin(o), left = all, doubt = DOUBT * all;
    if (p->top_k > 0 && p->top_k < (uint64_t)s->vocabulary &&
        sampler_order_find_rank(o, (uint32_t)p->top_k, &cut))
        left = cut.after;
    double wanted = p->top_p * left;
    return draw_without_cut(s, wanted, doubt, token) || draw_after_cut(s, wanted, doubt, token);
}

/* After the cuts, in which order are tokens drawn from? Top-k alone leaves one that only the exact
 * way knows. */
static bool sample_fast(struct sampler *s, uint32_t *token)
{
    const struct sampling_params *p = &s->params;
    if (p->top_p < 1)
        return draw_in_order_of_weights(s, token);
    return p->top_k == 0 && p->min_p <= 0 && draw_in_order_of_tokens(s, token);
}

static uint32_t token_sample(struct sampler *s, const float *row, float greatest)
{
    uint32_t token = 0;
    if (!isfinite(greatest))
        return token_heaviest(s, row, greatest);
    if (s->params.steps)
        return sampler_steps_pick(s, row, greatest);
    s->kernels->weigh(row, (size_t)s->vocabulary, (double)greatest, s->params.temperature,
                      s->weights);
    return sample_fast(s, &token) ? token : sample_exactly(s, row, greatest);
}

static uint32_t row_pick(struct sampler *s, const float *row)
{
    float greatest = s->kernels->greatest(row, (size_t)s->vocabulary);
    return s->params.temperature > 0 || s->params.steps ? token_sample(s, row, greatest)
                                                        : token_heaviest(s, row, greatest);
}

/* What is allowed and leaves tokens enough to end; where a few picks do not, or the logits rule out
 * all that is allowed, the next token of the shortest end. */
static uint32_t allowed_pick(struct sampler *s, float *row)
{
    const uint64_t *mask = matcher_mask(s->matcher);
    if (!mask)
        return SAMPLER_NONE;
    s->kernels->rule_out(row, mask, (size_t)s->vocabulary);
    for (int i = 0; i < FIT_TRIES; i++) {
        uint32_t token = row_pick(s, row);
        if (!(row[token] > -INFINITY))
            break;
        if (matcher_fits(s->matcher, token))
            return token;
        row[token] = -INFINITY;
    }
    return matcher_shortest(s->matcher);
}

uint32_t sampler_pick(struct sampler *s, const float *logits)
{
    const float *row = logits;
    if (s->adjusts) {
        sampler_logits_adjust(s, logits);
        row = s->adjusted;
    }
    uint32_t token = s->matcher ? allowed_pick(s, s->adjusted) : row_pick(s, row);
    if (token != SAMPLER_NONE)
        sampler_accept(s, token);
    return token;
}

void sampler_kernels_use(struct sampler *s, const struct sampler_kernels *k)
{
    s->kernels = k;
}
