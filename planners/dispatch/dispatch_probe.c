/* When a batch would be done on a pipeline, if it were sent now. */
#include <assert.h>
#include <stdlib.h>

#include "common/vector.h"
#include "planners/dispatch/dispatch_int.h"
#include "planners/dispatch/reservations.h"

/* The share of the first stage that can begin first. Nothing that is dispatched now may begin in
 * the past, so only the end of each line counts. */
static void probe_first(const struct share_pool *p, int64_t now_ns, struct dispatch_leg *leg)
{
    int best = p->cursor;
    int64_t least = INT64_MAX;
    for (int i = p->cursor, left = p->n; left > 0; left--) {
        int64_t t = p->free_ns[i];
        if (t < least) {
            least = t;
            best = i;
            if (t <= now_ns)
                break;
        }
        if (++i == p->n)
            i = 0;
    }
    leg->share = best;
    leg->start_ns = least > now_ns ? least : now_ns;
    leg->transfer_start_ns = leg->transfer_end_ns = 0;
}

struct hop {
    const struct reservation_line *uplink;
    int64_t transfer_ns, latency_ns, compute_ns;
    int64_t first_ns; /* the uplink's first chance */
};

/* Fills a hole, if one is free earlier than what was found. */
static void probe_gaps(const struct dispatch *d, const struct share_pool *p, const struct hop *h,
                       struct dispatch_leg *leg)
{
    for (int g = 0; g < p->n_gaps; g++) {
        const struct share_gap *gap = &p->gaps[g];
        if (gap->to_ns - h->compute_ns < h->first_ns + h->transfer_ns + h->latency_ns)
            continue;
        int64_t move = line_earliest_both(h->uplink, &d->downlinks[p->nodes[gap->at]], h->first_ns,
                                          h->transfer_ns);
        int64_t there = move + h->transfer_ns + h->latency_ns,
                start = there > gap->from_ns ? there : gap->from_ns;
        if (start + h->compute_ns > gap->to_ns || start >= leg->start_ns)
            continue;
        leg->share = gap->at;
        leg->transfer_start_ns = move;
        leg->start_ns = start;
    }
}

/* The share of a later stage that can begin first, with the transfer to its node. */
static void probe_next(const struct dispatch *d, const struct share_pool *p, const struct hop *h,
                       struct dispatch_leg *leg)
{
    int64_t soonest = h->first_ns + h->transfer_ns + h->latency_ns, move = h->first_ns;
    int node = -1;
    leg->start_ns = INT64_MAX;
    for (int i = p->cursor, left = p->n; left > 0; left--) {
        int64_t free_ns = p->free_ns[i];
        if (free_ns < leg->start_ns) {
            if (p->nodes[i] != node) {
                node = p->nodes[i];
                move =
                    line_earliest_both(h->uplink, &d->downlinks[node], h->first_ns, h->transfer_ns);
            }
            int64_t there = move + h->transfer_ns + h->latency_ns,
                    start = there > free_ns ? there : free_ns;
            if (start < leg->start_ns) {
                leg->share = i;
                leg->transfer_start_ns = move;
                leg->start_ns = start;
                if (start == soonest)
                    break;
            }
        }
        if (++i == p->n)
            i = 0;
    }
    if (p->n_gaps > 0 && leg->start_ns > soonest)
        probe_gaps(d, p, h, leg);
    leg->transfer_end_ns = leg->transfer_start_ns + h->transfer_ns;
}

void dispatch_probe(const struct dispatch *d, int pipeline, int n, int64_t now_ns,
                    struct dispatch_path *out)
{
    const struct dispatch_pipeline *pl = &d->t->pipelines[pipeline];
    int64_t ready_ns = now_ns, work_ns = 0;
    assert(n >= 1 && n <= pl->batch);
    out->pipeline = pipeline;
    out->n = n;
    for (int s = 0; s < pl->n_stages; s++) {
        const struct share_pool *p = pool_of(d, pipeline, s);
        struct dispatch_leg *leg = &out->legs[s];
        int64_t compute_ns = pl->stages[s].compute_ns[n];
        if (s == 0) {
            probe_first(p, now_ns, leg);
        } else {
            const struct dispatch_stage *before = &pl->stages[s - 1];
            const struct reservation_line *uplink =
                &d->uplinks[d->t->shares[out->legs[s - 1].share].node];
            struct hop h = {uplink, before->transfer_ns[n], before->hop_latency_ns, compute_ns, 0};
            h.first_ns = line_earliest(uplink, ready_ns, h.transfer_ns);
            probe_next(d, p, &h, leg);
            work_ns += h.transfer_ns + h.latency_ns;
        }
        leg->share += p->first_share;
        leg->end_ns = ready_ns = leg->start_ns + compute_ns;
        work_ns += compute_ns;
    }
    out->finish_ns = ready_ns;
    out->wait_ns = ready_ns - now_ns - work_ns;
}
