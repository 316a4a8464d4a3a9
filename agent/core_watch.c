/* Owns the deadlines of what goes on: batches that are away, runs that the executor has, outputs
 * that the next stage does not take, frames that wait for what precedes them. What is overdue fails
 * its sequences with a text that names the stage. */
#include "agent/core_watch.h"

#include <stdio.h>

#include "agent/core_out.h"
#include "agent/core_sequences.h"
#include "common/log.h"

static uint64_t time_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- outputs that wait for the next stage ---- */

void core_output_back(struct agent_core *c, struct core_stage *s)
{
    s->outputs_out -= s->outputs_out > 0;
    s->outputs_since_ns = env_now_ns(c->env);
}

void core_output_freed(struct agent_core *c, const struct agent_event *ev)
{
    struct core_stage *s = core_stage_of_slot(c, ev->u.output_back.slot);
    if (s)
        core_output_back(c, s);
}

static uint64_t outputs_deadline_ns(const struct agent_core *c, const struct core_stage *s)
{
    double planned_s = s->prepare.planned_trip_s_per_token * (double)s->prepare.max_batch_tokens;
    return s->outputs_out && s->connected
               ? time_later(s->outputs_since_ns, s->arrived_ns) +
                     core_scaled_ns(c, AGENT_RUN_LIMIT_MS) + (uint64_t)(10e9 * planned_s)
               : UINT64_MAX;
}

static void outputs_check(struct agent_core *c, struct core_stage *s, uint64_t now_ns)
{
    char text[160];
    if (!s->queue || outputs_deadline_ns(c, s) > now_ns)
        return;
    snprintf(text, sizeof text,
             "stage %llu takes no batches: %u wait for it at stage %llu, for %.1f s",
             (unsigned long long)s->prepare.stage + 1, s->outputs_out,
             (unsigned long long)s->prepare.stage, (double)(now_ns - s->outputs_since_ns) * 1e-9);
    s->outputs_since_ns = now_ns; /* said once per limit */
    s->link_broken = true;        /* the next sequence makes it anew */
    core_sequences_fail_all(c, s, HP_ETIMEOUT, text);
}

/* ---- the executors ---- */

/* Runs follow each other: the second is not late before the first is. */
static uint64_t run_deadline_ns(const struct agent_core *c, const struct core_device *own)
{
    const struct core_run *r = &own->runs[own->first_run];
    double expected_s = r->expected_s > 0 ? r->expected_s : 60;
    return r->overdue ? UINT64_MAX
                      : time_later(r->handed_ns, own->arrived_ns) +
                            core_scaled_ns(c, AGENT_RUN_LIMIT_MS) + (uint64_t)(10e9 * expected_s);
}

static void run_overdue_text(const struct core_stage *s, const struct core_run *r, uint64_t now_ns,
                             char *text, size_t size)
{
    if (s->missing_bytes)
        snprintf(text, size,
                 "stage %llu waits for %.3g MB of its weights, none of which came for %.1f s",
                 (unsigned long long)s->prepare.stage, (double)s->missing_bytes * 1e-6,
                 (double)(now_ns - s->arrived_ns) * 1e-9);
    else
        snprintf(text, size,
                 "stage %llu has run a batch of %u tokens for %.1f s and does not answer",
                 (unsigned long long)s->prepare.stage, r->batch.n_tokens,
                 (double)(now_ns - r->handed_ns) * 1e-9);
}

static void run_check(struct agent_core *c, struct core_device *own, uint64_t now_ns)
{
    struct core_run *r = &own->runs[own->first_run];
    char text[160];
    if (!own->n_running || run_deadline_ns(c, own) > now_ns)
        return;
    struct core_stage *s = core_stage_of_slot(c, r->slot);
    r->overdue = true;
    if (!s || !s->queue)
        return;
    run_overdue_text(s, r, now_ns, text, sizeof text);
    core_sequences_fail_all(c, s, HP_ETIMEOUT, text);
}

/* ---- batches that are away ---- */

static void overdue_text(const struct core_stage *s, const struct queue_overdue *o, uint64_t now_ns,
                         char *text, size_t size)
{
    unsigned long long last = (unsigned long long)s->prepare.n_stages - 1;
    size_t n = (size_t)snprintf(
        text, size,
        "batch %u (%u tokens) left stage 0 %.1f s ago and has not come back: ", o->number,
        o->n_tokens, o->away_s);
    if (n >= size)
        return;
    if (s->missing_in_all_bytes)
        snprintf(text + n, size - n,
                 "stages wait for %.3g MB of their weights, none of which came for %.1f s",
                 (double)s->missing_in_all_bytes * 1e-6, (double)(now_ns - s->arrived_ns) * 1e-9);
    else if (o->heard)
        snprintf(text + n, size - n, "stage %llu, the last, was last heard %.1f s ago (batch %u)",
                 last, o->heard_s, o->heard_number);
    else
        snprintf(text + n, size - n, "stage %llu, the last, was never heard", last);
}

static void flights_check(struct agent_core *c, struct core_stage *s, uint64_t now_ns)
{
    struct queue_overdue o;
    char text[200];
    while (s->queue && queue_flight_expire(s->queue, now_ns, &o)) {
        overdue_text(s, &o, now_ns, text, sizeof text);
        if (o.n_live)
            log_warn("agent", "batch_overdue", "deployment=%llu text=\"%s\"",
                     (unsigned long long)s->prepare.deployment, text);
        for (uint32_t i = o.n_live; i-- > 0;)
            core_sequence_fail(c, s, o.live[i], HP_ETIMEOUT, text);
    }
}

/* ---- frames that wait for what precedes them ---- */

static void frames_check(struct agent_core *c, struct core_stage *s, uint64_t now_ns)
{
    uint64_t ids[64];
    size_t n = s->queue ? queue_expire(s->queue, now_ns, ids, sizeof ids / sizeof *ids) : 0;
    for (size_t k = 0; k < n; k++)
        core_sequence_fail(c, s, ids[k], HP_ETIMEOUT,
                           "a batch of the sequence waited too long for what precedes it");
}

/* ---- all of them ---- */

void core_expire(struct agent_core *c, uint64_t now_ns)
{
    for (size_t i = 0; i < c->n_devices; i++)
        run_check(c, &c->devices[i], now_ns);
    for (size_t i = 0; i < c->n_stages; i++) {
        flights_check(c, c->stages[i], now_ns);
        outputs_check(c, c->stages[i], now_ns);
        if (!core_device_of(c, c->stages[i])->n_running)
            frames_check(c, c->stages[i], now_ns);
    }
}

static uint64_t time_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t core_expire_deadline(const struct agent_core *c)
{
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; i < c->n_devices; i++) {
        const struct core_device *own = &c->devices[i];
        if (own->n_running)
            at = time_earlier(at, run_deadline_ns(c, own));
    }
    for (size_t i = 0; i < c->n_stages; i++) {
        const struct core_stage *s = c->stages[i];
        if (s->queue)
            at = time_earlier(at,
                              time_earlier(queue_deadline_ns(s->queue), outputs_deadline_ns(c, s)));
    }
    return at;
}
