#include "coordinator/pools/pool_feedback.h"

#include "coordinator/clocks.h"
#include "coordinator/member.h"

/* A result that is later than was allowed for adds so much, one that is not takes so much away: in
 * the end one in a hundred is later. What is rarer, such as pauses of a box, costs fewer requests
 * than as much time off every deadline would. */
enum { OVERHEAD_UP_NS = 100000, OVERHEAD_DOWN_NS = OVERHEAD_UP_NS / 100 };
/* Where so many in a row are not later, which one in a hundred seldom leaves, the rest was a
 * pause's with all that had waited behind it: in such steps it would go in a quarter of an hour, in
 * which most requests would be refused. */
enum { OVERHEAD_ROW = 400 };
static const uint64_t CLOCK_MOST_NS = INT64_MAX / 4;

/* What an agent's clock said, by ours. Clocks may have jumped: nothing was before the batch left,
 * and nothing after its results came. */
static int64_t moment_here(const struct coord *c, const struct pool_batch *b,
                           const struct member *m, uint64_t there_ns)
{
    int64_t now_ns = (int64_t)coord_clock(c), at_ns = now_ns;
    if (there_ns <= CLOCK_MOST_NS)
        at_ns = (int64_t)there_ns + (m ? (int64_t)(clock_offset_s(c, m) * 1e9) : 0);
    return at_ns < b->sent_ns ? b->sent_ns : at_ns < now_ns ? at_ns : now_ns;
}

/* How long it was computed there, by that clock; at most since it left. */
static int64_t leg_computed_ns(const struct coord *c, const struct pool_batch *b,
                               const struct frame_leg *leg)
{
    uint64_t most_ns = coord_clock(c) - (uint64_t)b->sent_ns,
             took_ns = leg->ended_ns > leg->began_ns ? leg->ended_ns - leg->began_ns : 0;
    return (int64_t)(took_ns < most_ns ? took_ns : most_ns);
}

/* One batch counts for no more than that: somebody may have stood still. */
static const double RATIO_MOST = 8;

/* How far it was off, where the workload wants to be planned anew for that. */
static void ratio_note(const struct pool_plan *p, struct pool_share *s, double planned_s,
                       double actual_s)
{
    double margin = p->spec->workload.replan_margin, ratio = actual_s / planned_s;
    if (margin <= 0 || planned_s <= 0)
        return;
    ratio = ratio < 1 / RATIO_MOST ? 1 / RATIO_MOST : ratio < RATIO_MOST ? ratio : RATIO_MOST;
    s->slow += ratio > 1 + margin;
    s->fast += ratio < 1 / (1 + margin);
    s->ratio_sum += ratio;
}

static void computing_correct(struct pool_plan *p, const struct pool_batch *b,
                              const struct infer_stage_times *t)
{
    struct pool_share *s = &p->shares[t->share];
    struct dispatch_report r = {.batch = b->id,
                                .share = t->share,
                                .from_share = -1,
                                .planned_start_ns = t->planned_start_ns,
                                .start_ns = t->began_ns,
                                .end_ns = t->ended_ns};
    dispatch_correct(p->dispatch, &r);
    s->batches++;
    s->actual_s += (double)(t->ended_ns - t->began_ns) * 1e-9;
    s->planned_s += (double)(t->planned_end_ns - t->planned_start_ns) * 1e-9;
    ratio_note(p, s, (double)(t->planned_end_ns - t->planned_start_ns) * 1e-9,
               (double)(t->ended_ns - t->began_ns) * 1e-9);
}

/* Transfers are told by what arrived when. */
static void transfer_correct(struct pool_plan *p, const struct pool_batch *b,
                             const struct infer_stage_times *from,
                             const struct infer_stage_times *to, int64_t hop_latency_ns)
{
    struct dispatch_report r = {.batch = b->id,
                                .share = to->share,
                                .from_share = from->share,
                                .planned_start_ns = to->planned_transfer_start_ns,
                                .start_ns = from->ended_ns,
                                .end_ns = to->arrived_ns - hop_latency_ns};
    if (r.start_ns < to->planned_transfer_start_ns)
        r.start_ns = to->planned_transfer_start_ns;
    if (r.end_ns > r.start_ns)
        dispatch_correct(p->dispatch, &r);
}

static void stage_take(const struct coord *c, struct pool_plan *p, const struct pool_batch *b,
                       const struct frame_leg *leg, int i, struct infer_times *times)
{
    const struct dispatch_leg *planned = &b->path.legs[i];
    const struct pool_share *s = &p->shares[planned->share];
    struct infer_stage_times *t = &times->stages[i];
    *t = (struct infer_stage_times){.share = planned->share,
                                    .planned_transfer_start_ns = planned->transfer_start_ns,
                                    .planned_transfer_end_ns = planned->transfer_end_ns,
                                    .planned_start_ns = planned->start_ns,
                                    .planned_end_ns = planned->end_ns,
                                    .arrived_ns = moment_here(c, b, s->agent, leg->arrived_ns),
                                    .began_ns = moment_here(c, b, s->agent, leg->began_ns),
                                    .ended_ns = moment_here(c, b, s->agent, leg->ended_ns)};
    if (!s->agent || !leg->began_ns || leg->ended_ns < leg->began_ns)
        return;
    computing_correct(p, b, t);
    const struct dispatch_pipeline *pl = &p->topology.pipelines[b->path.pipeline];
    if (i > 0 && p->shares[planned[-1].share].agent && leg->arrived_ns &&
        planned->transfer_end_ns > planned->transfer_start_ns)
        transfer_correct(p, b, &t[-1], t, pl->stages[i - 1].hop_latency_ns);
}

/* How much later than planned a batch's results are here, but for one in a hundred. More than a
 * deadline is no measure of messages. */
static void overhead_note(const struct coord *c, struct pool_plan *p, const struct pool_batch *b)
{
    struct pool_overhead *o = &p->overheads[b->line];
    int64_t most_ns = p->topology.models[b->line].slo_ns;
    int64_t late_ns = (int64_t)coord_clock(c) - b->path.finish_ns;
    bool later = late_ns > o->ns;
    o->ns += later ? OVERHEAD_UP_NS : -OVERHEAD_DOWN_NS;
    o->in_row = later ? 0 : o->in_row + 1;
    o->latest_ns = o->in_row > 1 && o->latest_ns > late_ns ? o->latest_ns : late_ns;
    if (o->in_row == OVERHEAD_ROW) {
        o->ns = o->latest_ns < o->ns ? o->latest_ns : o->ns;
        o->in_row = 0;
    }
    o->ns = o->ns < 0 ? 0 : o->ns < most_ns ? o->ns : most_ns;
}

double pool_feedback_take(const struct coord *c, struct pool_plan *p, const struct pool_batch *b,
                          const struct frame_leg *legs, struct infer_times *times)
{
    times->plan = p->id;
    times->batch = b->id;
    times->samples = b->n_parts;
    times->sent_ns = b->sent_ns;
    times->n_stages = p->topology.pipelines[b->path.pipeline].n_stages;
    double computed_s = 0;
    for (int i = 0; i < times->n_stages; i++) {
        stage_take(c, p, b, &legs[i], i, times);
        computed_s += (double)leg_computed_ns(c, b, &legs[i]) * 1e-9;
    }
    overhead_note(c, p, b);
    return computed_s;
}
