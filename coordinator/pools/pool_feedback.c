#include "coordinator/pools/pool_feedback.h"

#include "coordinator/clocks.h"
#include "coordinator/member.h"

enum { OVERHEADS = 32 };

/* What is to be added to the clock of a share's agent to have ours. */
static int64_t share_offset_ns(const struct coord *c, const struct pool_share *s)
{
    return s->agent ? (int64_t)(clock_offset_s(c, s->agent) * 1e9) : 0;
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
    int64_t offset_ns = share_offset_ns(c, s);
    struct infer_stage_times *t = &times->stages[i];
    *t = (struct infer_stage_times){.share = planned->share,
                                    .planned_transfer_start_ns = planned->transfer_start_ns,
                                    .planned_transfer_end_ns = planned->transfer_end_ns,
                                    .planned_start_ns = planned->start_ns,
                                    .planned_end_ns = planned->end_ns,
                                    .arrived_ns = (int64_t)leg->arrived_ns + offset_ns,
                                    .began_ns = (int64_t)leg->began_ns + offset_ns,
                                    .ended_ns = (int64_t)leg->ended_ns + offset_ns};
    if (!s->agent || !leg->began_ns || leg->ended_ns < leg->began_ns)
        return;
    computing_correct(p, b, t);
    const struct dispatch_pipeline *pl = &p->topology.pipelines[b->path.pipeline];
    if (i > 0 && p->shares[planned[-1].share].agent && leg->arrived_ns &&
        planned->transfer_end_ns > planned->transfer_start_ns)
        transfer_correct(p, b, &t[-1], t, pl->stages[i - 1].hop_latency_ns);
}

/* How much later than planned, or than it was computed, a batch's results are here: the mean and as
 * much again. */
static void overhead_note(const struct coord *c, struct pool_plan *p, const struct pool_batch *b)
{
    int64_t *known = &p->overhead_ns[b->model],
            late_ns = (int64_t)coord_clock(c) - b->path.finish_ns;
    int64_t wanted_ns = late_ns > 0 ? 2 * late_ns : 0;
    *known += (wanted_ns - *known) / OVERHEADS;
}

void pool_feedback_take(const struct coord *c, struct pool_plan *p, const struct pool_batch *b,
                        const struct frame_leg *legs, struct infer_times *times)
{
    times->plan = p->id;
    times->batch = b->id;
    times->samples = b->n_parts;
    times->sent_ns = b->sent_ns;
    times->n_stages = p->topology.pipelines[b->path.pipeline].n_stages;
    for (int i = 0; i < times->n_stages; i++)
        stage_take(c, p, b, &legs[i], i, times);
    overhead_note(c, p, b);
}
