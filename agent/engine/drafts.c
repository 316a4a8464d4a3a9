/* Owns what a sequence has said so far, and how its guesses went. */
#include "agent/engine/drafts.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOOK_BACK = 1 << 16, /* tokens in which the last ones are looked for */
    LONG_MATCH = 8,      /* so many equal tokens are as good as more */
    COSTS_OLD = 512,     /* steps after which a measurement counts no more */
    WAIT_LEAST = 8,      /* steps without a guess where they do not pay; doubles */
    WAIT_MOST = 128
};
static const double UNKNOWN_ROW = 0.03; /* of a step: what a guess is taken to cost at first */
static const double LEAST_GAIN = 1.02;
static const double RIGHT_AT_FIRST = 0.4;
static const double FORGETS = 0.8; /* what a judgement leaves of those before it */

struct drafts {
    uint32_t *tokens;
    size_t n, room;
    double right, judged; /* guesses, those long ago less than those lately */
    uint32_t waits, wait; /* steps until the next is tried; how long the next wait will be */
    bool tries;
    uint32_t made[BATCH_MAX_DRAFTS], n_made;
};

/* ---- what a step takes ---- */

static bool cost_known(const struct draft_costs *c, uint32_t n)
{
    return c->heard[n] && c->steps - c->heard[n] < COSTS_OLD;
}

void draft_costs_add(struct draft_costs *c, uint32_t n_drafts, double seconds)
{
    double *step_s = &c->step_s[n_drafts];
    bool known = cost_known(c, n_drafts);
    double taken = known && seconds > 3 * *step_s ? 3 * *step_s : seconds; /* a busy moment */
    *step_s = known ? *step_s + (taken - *step_s) / 8 : taken;
    c->heard[n_drafts] = ++c->steps;
}

double draft_costs_of(const struct draft_costs *c, uint32_t n_drafts)
{
    uint32_t low = n_drafts, high = n_drafts;
    if (!c || !c->heard[0])
        return 1 + UNKNOWN_ROW * n_drafts;
    while (low > 0 && !cost_known(c, low))
        low--;
    while (high <= BATCH_MAX_DRAFTS && !cost_known(c, high))
        high++;
    double step_s = c->step_s[0], low_s = c->step_s[low], row_s = UNKNOWN_ROW * step_s;
    if (high <= BATCH_MAX_DRAFTS)
        row_s = high > low ? (c->step_s[high] - low_s) / (high - low) : 0;
    else if (low > 0 && (low_s - step_s) / low > row_s)
        row_s = (low_s - step_s) / low;
    return (low_s + row_s * (n_drafts - low)) / step_s;
}

/* ---- one sequence ---- */

struct drafts *drafts_create(const uint32_t *prompt, size_t n_prompt, size_t most_tokens)
{
    struct drafts *d = calloc(1, sizeof *d);
    size_t room = most_tokens > n_prompt ? most_tokens : n_prompt;
    uint32_t *tokens = malloc((room ? room : 1) * sizeof *tokens);
    if (!d || !tokens) {
        free(d);
        free(tokens);
        return NULL;
    }
    if (n_prompt)
        memcpy(tokens, prompt, n_prompt * sizeof *tokens);
    *d = (struct drafts){.tokens = tokens,
                         .n = n_prompt,
                         .room = room,
                         .right = RIGHT_AT_FIRST,
                         .judged = 1,
                         .wait = WAIT_LEAST};
    return d;
}

void drafts_destroy(struct drafts *d)
{
    if (!d)
        return;
    free(d->tokens);
    free(d);
}

void drafts_token(struct drafts *d, uint32_t token)
{
    if (d->n < d->room)
        d->tokens[d->n++] = token;
}

void drafts_judge(struct drafts *d, uint32_t n, uint32_t right)
{
    if (d->tries) { /* one guess, after a while without */
        d->tries = false;
        if (right == n) {
            d->right = RIGHT_AT_FIRST, d->judged = 1;
            d->wait = WAIT_LEAST;
        }
        return;
    }
    d->right = FORGETS * d->right + right;
    d->judged = FORGETS * d->judged + right + (right < n);
}

const uint32_t *drafts_made(const struct drafts *d, uint32_t *n)
{
    *n = d->n_made;
    return d->made;
}

/* How many guesses pay best; 0: none does. Of k guesses, of which each is right with chance p when
 * those before it were, 1 + p + .. + p^k tokens come. */
static uint32_t drafts_best(const struct drafts *d, const struct draft_costs *c, uint32_t most)
{
    double p = d->right / d->judged, tokens = 1, chance = 1, best = LEAST_GAIN;
    uint32_t n = 0;
    for (uint32_t k = 1; k <= most; k++) {
        chance *= p;
        tokens += chance;
        double gain = tokens / draft_costs_of(c, k);
        if (gain > best) {
            best = gain;
            n = k;
        }
    }
    return n;
}

/* How many tokens before place `at` and there are as the last ones are. */
static size_t match_length(const struct drafts *d, size_t at)
{
    size_t n = 0;
    while (n < LONG_MATCH && n <= at && d->tokens[at - n] == d->tokens[d->n - 1 - n])
        n++;
    return n;
}

/* Where the last tokens, at least `least` of them, stood before: the place of the last, the latest
 * of the longest matches. d->n - 1: nowhere. */
static size_t match_find(const struct drafts *d, size_t least)
{
    size_t last = d->n - 1, found = last, best = least - 1;
    size_t end = d->n > LOOK_BACK ? d->n - LOOK_BACK : 0;
    uint32_t token = d->tokens[last];
    for (size_t at = last; at-- > end && best < LONG_MATCH;) {
        if (d->tokens[at] != token)
            continue;
        size_t n = match_length(d, at);
        if (n > best) {
            best = n;
            found = at;
        }
    }
    return found;
}

/* What followed there; where that reaches the end, it goes round. */
static uint32_t match_copy(struct drafts *d, uint32_t n, size_t least)
{
    size_t at = d->n > least ? match_find(d, least) : d->n - 1, period = d->n - 1 - at;
    for (uint32_t k = 0; k < n && period; k++)
        d->made[k] = d->tokens[at + 1 + k % period];
    return period ? n : 0;
}

/* None pays now: one is tried now and then, ever less often. */
static uint32_t draft_try(struct drafts *d)
{
    if (d->waits > 0) {
        d->waits--;
        return 0;
    }
    uint32_t n = match_copy(d, 1, 3);
    if (!n)
        return 0;
    d->tries = true;
    d->waits = d->wait;
    d->wait = 2 * d->wait < WAIT_MOST ? 2 * d->wait : WAIT_MOST;
    return n;
}

uint32_t drafts_make(struct drafts *d, const struct draft_costs *c, uint32_t most,
                     const uint32_t **out)
{
    *out = d->made;
    d->n_made = 0;
    d->tries = false;
    most = most < BATCH_MAX_DRAFTS ? most : BATCH_MAX_DRAFTS;
    if (!most || !d->n || (c && !cost_known(c, 0))) /* a step without is measured first */
        return 0;
    uint32_t n = drafts_best(d, c, most);
    d->n_made = n ? match_copy(d, n, 2 * d->right > d->judged ? 2 : 3) : draft_try(d);
    return d->n_made;
}
