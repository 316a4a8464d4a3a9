/* Owns batches that have run: what they took, and where they go on. */
#include "agent/core_batches.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/core_arrivals.h"
#include "agent/core_out.h"
#include "agent/core_posts.h"
#include "agent/core_prefill.h"
#include "agent/core_tokens.h"
#include "agent/core_watch.h"

/* ---- batches that ran ---- */

void core_batch_failed(struct agent_core *c, struct core_stage *s, const struct batch *b,
                       const struct agent_event *ev)
{
    const struct err *e = ev->u.batch_done.error;
    if (ev->u.batch_done.status == HP_EDEVICE)
        core_stage_break(c, s, e); /* before its sequences: they go on elsewhere */
    core_batch_fail(c, s, b, ev->u.batch_done.status,
                    e && e->text[0] ? e->text : "the stage could not run a batch");
    if (core_stage_is_first(s))
        queue_returned(s->queue, b->number, env_now_ns(c->env));
    else
        core_batch_pass_empty(c, s, b);
    if (ev->u.batch_done.status == HP_EIO)
        core_stage_break(c, s, e); /* its weights cannot be read: so it would go with every batch */
}

/* The oldest of the runs that an executor has; NULL when the event is of none. */
static struct core_run *run_take(struct agent_core *c, const struct agent_event *ev)
{
    for (size_t i = 0; i < c->n_devices; i++) {
        struct core_device *own = &c->devices[i];
        struct core_run *r = &own->runs[own->first_run];
        if (!own->n_running || r->slot != ev->u.batch_done.slot ||
            r->ticket != ev->u.batch_done.ticket)
            continue;
        own->first_run = (own->first_run + 1) % CORE_RUN_PLACES;
        own->n_running--;
        own->done_ns = c->now_ns;
        return r;
    }
    return NULL;
}

/* Seconds that a batch should take from here until it has been through all stages. */
static double trip_seconds(const struct core_stage *s, const struct batch *b, double seconds)
{
    double planned = s->prepare.planned_trip_s_per_token * b->n_tokens,
           measured = seconds * (double)s->prepare.n_stages;
    double unplanned = s->prepare.planned_trip_s_per_token > 0
                           ? 0
                           : 9; /* nobody has said how fast the others are */
    return (planned > measured ? planned : measured) + unplanned;
}

static void batch_count(struct agent_core *c, struct core_stage *s, const struct batch *b,
                        const struct agent_event *ev)
{
    uint64_t now = env_now_ns(c->env), due = ev->u.batch_done.due_ns,
             end = due                       ? due
                   : ev->u.batch_done.end_ns ? ev->u.batch_done.end_ns
                                             : now;
    uint64_t start = ev->u.batch_done.start_ns ? ev->u.batch_done.start_ns
                                               : end - (uint64_t)(ev->u.batch_done.seconds * 1e9);
    s->batches_done++;
    if (!core_run_awaited_weights(c, s, start)) { /* else it is no measure of the device */
        s->busy_s += ev->u.batch_done.seconds;
        s->planned_s += s->prepare.planned_s_per_token * b->n_tokens;
        s->tokens_done += b->n_tokens;
    }
    c->due_ns = ev->u.batch_done.due_ns ? ev->u.batch_done.due_ns : now;
    if (ev->u.batch_done.status >= 0)
        core_prefill_ran(c, s, b, start, end);
}

void core_batch_done(struct agent_core *c, const struct agent_event *ev)
{
    struct core_stage *s = core_stage_of_slot(c, ev->u.batch_done.slot);
    struct core_run *r = run_take(c, ev);
    bool ok = ev->u.batch_done.status >= 0;
    if (r && s && r->reserved && !ev->u.batch_done.posted)
        core_output_back(c, s);
    if (r && s)
        s->turn_s += (ev->u.batch_done.seconds - r->charged_s) / core_stage_weight(s);
    if (!r || !s || !r->queue || s->queue != r->queue) {
        core_release(c, ev->u.batch_done.output);
        return;
    }
    queue_done(s->queue, &r->batch, env_now_ns(c->env),
               trip_seconds(s, &r->batch, ev->u.batch_done.seconds));
    batch_count(c, s, &r->batch, ev);
    bool hands_on = ok && !core_stage_is_last(s) && !ev->u.batch_done.posted;
    if (!hands_on)
        core_release(c, ev->u.batch_done.output);
    if (!ok)
        core_batch_failed(c, s, &r->batch, ev);
    else if (core_stage_is_last(s))
        core_tokens_picked(c, s, &r->batch, ev);
    else if (hands_on)
        core_batch_post(c, s, &r->batch, ev->u.batch_done.output);
}
