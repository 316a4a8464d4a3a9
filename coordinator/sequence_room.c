#include "coordinator/sequence_room.h"

#include "coordinator/growth.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_orders.h"
#include "coordinator/targets.h"

static uint64_t pages_all(const struct deployment *d)
{
    return d->kv_tokens / KV_PAGE_TOKENS;
}

bool sequence_may_fit(const struct deployment *d, const struct sequence *s,
                      const struct prefix_hit *hit)
{
    const struct kv_holding *from = hit->from ? &hit->from->holding : NULL;
    return d->n_active < d->max_sequences &&
           d->kv.used_growing + kv_account_growth(&d->kv, s->reserved, from, hit->length) +
                   growth_margin(d) <=
               pages_all(d);
}

static bool sequence_fits(const struct deployment *d, const struct sequence *s,
                          const struct prefix_hit *hit)
{
    bool place = !prefixes_narrow(d) || d->n_active + prefixes_kept(d) < d->max_sequences;
    return place && sequence_may_fit(d, s, hit) &&
           d->kv.used + kv_account_need(s->reserved, hit->length) <= pages_all(d);
}

static void prefix_evict(struct coord *c, struct deployment *d, struct prefix *p)
{
    d->prefix_counts.evicted++;
    sequence_order_put_away(c, d, p);
}

bool sequence_room_make(struct coord *c, struct deployment *d, const struct sequence *s,
                        struct prefix_hit *hit)
{
    struct prefix *p;
    if (!sequence_may_fit(d, s, hit))
        return false;
    while (!sequence_fits(d, s, hit) && (p = prefixes_victim(c, d, hit->from)) != NULL)
        prefix_evict(c, d, p);
    if (!sequence_fits(d, s, hit) && hit->from) {
        hit->length = hit->length / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        if (hit->from->kept && !prefixes_narrow(d)) {
            prefix_cut(d, hit->from, hit->length);
            sequence_order_close(c, d, hit->from->sequence, hit->length);
        }
    }
    if (!sequence_fits(d, s, hit) && hit->from && hit->from->kept) {
        prefix_evict(c, d, hit->from);
        *hit = (struct prefix_hit){0};
    }
    return sequence_fits(d, s, hit);
}

void sequence_open(struct coord *c, struct deployment *d, struct sequence *s,
                   const struct prefix_hit *hit)
{
    const struct sequence *running = hit->from ? sequence_active(d, hit->from->sequence) : NULL;
    const struct kv_holding *from = running     ? &running->holding
                                    : hit->from ? &hit->from->holding
                                                : NULL;
    if (!sequence_activate(d, s, from, hit->length)) {
        sequence_fail_memory(c, s);
        return;
    }
    s->share = hit->from ? hit->from->sequence : 0;
    s->shared = hit->length;
    s->reads = true;
    prefixes_hit(c, d, s, hit);
    prefixes_begin(c, d, s);
    sequence_deadline_start(c, d, s);
    targets_opened(d, s);
    bool first = !s->opened_ns;
    if (first) {
        s->cached = s->shared;
        s->opened_ns = coord_now(c);
    } else {
        d->growth_counts.recomputed += sequence_given(s) - sequence_had(s);
    }
    if (first && !sequence_is_silent(s)) {
        c->counts.opened++;
        c->counts.prompt_tokens += s->n_prompt;
        d->tokens.prompt += s->n_prompt;
    }
    if (!sequence_order_open(c, d, s))
        sequence_fail_memory(c, s);
}
