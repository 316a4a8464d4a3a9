#include "coordinator/growth.h"

#include "common/log.h"
#include "coordinator/prefixes.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_orders.h"

enum { STEP_TOKENS = KV_PAGE_TOKENS };

/* ---- how much ---- */

static uint64_t tokens_round(uint64_t tokens)
{
    return (tokens + DEPLOYMENT_KV_ROUND - 1) / DEPLOYMENT_KV_ROUND * DEPLOYMENT_KV_ROUND;
}

uint64_t growth_first(const struct deployment *d, const struct sequence *s)
{
    uint64_t usual = d->answer_tokens > 0 ? (uint64_t)d->answer_tokens + 1 : GROWTH_ANSWER_TOKENS,
             more = usual > s->n_output + GROWTH_AHEAD_TOKENS ? usual - s->n_output
                                                              : GROWTH_AHEAD_TOKENS,
             tokens = tokens_round(sequence_given(s) + more);
    return sequence_grows(s) && tokens < s->kv_tokens ? tokens : s->kv_tokens;
}

uint32_t growth_margin(const struct deployment *d)
{
    uint32_t n = 0;
    for (const struct sequence *s = d->active; s; s = s->next)
        n += s->reserved < s->kv_tokens;
    return n;
}

/* ---- from whom ---- */

/* What is kept gives up the end of its least needed, or all of it, until there are `n` pages. */
static bool pages_find(struct coord *c, struct deployment *d, uint32_t n)
{
    uint64_t all = d->kv_tokens / KV_PAGE_TOKENS;
    struct prefix *p;
    while (d->kv.used + n > all && (p = prefixes_victim(c, d, NULL)) != NULL) {
        uint32_t pages = kv_pages_for(p->n), lack = (uint32_t)(d->kv.used + n - all);
        bool cuts = !prefixes_narrow(d) && kv_account_alone(&d->kv, &p->holding) > lack &&
                    pages > lack && (pages - lack) * KV_PAGE_TOKENS >= PREFIX_LEAST_TOKENS;
        if (!cuts) {
            d->prefix_counts.evicted++;
            sequence_order_put_away(c, d, p);
            continue;
        }
        sequence_order_spill(c, d, p->sequence, &p->root, p->own_ids, p->n);
        prefix_cut(d, p, (pages - lack) * KV_PAGE_TOKENS);
        sequence_order_close(c, d, p->sequence, p->n);
    }
    return d->kv.used + n <= all;
}

/* The youngest that can give way to this one; NULL: none. */
static struct sequence *victim_of(const struct deployment *d, const struct sequence *s)
{
    struct sequence *best = NULL;
    for (struct sequence *o = d->active; o; o = o->next)
        if (sequence_is_before(s, o) && sequence_can_resume(o) &&
            (!best || sequence_is_before(best, o)))
            best = o;
    return best;
}

static bool sequence_grow(struct coord *c, struct deployment *d, struct sequence *s)
{
    uint64_t tokens =
        s->reserved + STEP_TOKENS < s->kv_tokens ? s->reserved + STEP_TOKENS : s->kv_tokens;
    uint32_t n = kv_pages_for(tokens) - s->holding.n_pages;
    while (!pages_find(c, d, n)) {
        struct sequence *victim = victim_of(d, s);
        if (!victim)
            return false;
        sequence_preempt(c, victim);
    }
    if (!kv_account_grow(&d->kv, &s->holding, tokens))
        return false;
    s->reserved = tokens;
    sequence_order_grow(c, d, s);
    return true;
}

/* ---- when ---- */

static bool sequence_needs(const struct sequence *s)
{
    return s->reserved < s->kv_tokens &&
           s->n_prompt + s->n_output + GROWTH_AHEAD_TOKENS > s->reserved;
}

void growth_told(struct coord *c, struct deployment *d, struct sequence *s)
{
    while (sequence_needs(s) && !s->starved)
        s->starved = !sequence_grow(c, d, s);
}

/* The oldest that waits for room to grow. */
static struct sequence *starved_next(const struct deployment *d)
{
    struct sequence *best = NULL;
    for (struct sequence *s = d->active; s; s = s->next)
        if (s->starved && (!best || sequence_is_before(s, best)))
            best = s;
    return best;
}

bool growth_advance(struct coord *c, struct deployment *d)
{
    for (struct sequence *s; (s = starved_next(d)) != NULL; s->starved = false)
        if (!sequence_grow(c, d, s))
            return false;
    return true;
}
