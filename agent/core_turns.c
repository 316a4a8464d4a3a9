/* Owns which stage has its device next, and what each executor is given. Which batch of a stage
 * runs next is engine/queue.c's. */
#include "agent/core_turns.h"

#include <string.h>

#include "agent/core_batches.h"
#include "agent/core_drafts.h"
#include "agent/core_out.h"
#include "agent/core_posts.h"
#include "agent/core_prefill.h"
#include "common/vector.h"

/* Seconds that a batch should take here; 0: nobody knows. */
static double run_seconds(const struct core_stage *s, const struct batch *b)
{
    double measured = s->tokens_done ? s->busy_s / (double)s->tokens_done : 0;
    return (measured > s->prepare.planned_s_per_token ? measured : s->prepare.planned_s_per_token) *
           b->n_tokens;
}

static void run_keep(struct agent_core *c, const struct core_stage *s, struct core_run *r)
{
    r->slot = s->slot;
    r->ticket = ++c->last_ticket;
    r->queue = s->queue;
    r->handed_ns = env_now_ns(c->env);
    r->expected_s = run_seconds(s, &r->batch);
    r->overdue = false;
    r->charged_s = r->expected_s;
    r->reserved = !core_stage_is_last(s) && s->outputs &&
                  core_rows_bytes(s, s->row_out, r->batch.n_runs, r->batch.n_tokens) >
                      AGENT_SMALL_OUTPUT_BYTES;
}

/* The tokens that follow those that are scored. False: no memory. */
static bool targets_fill(const struct core_stage *s, struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_runs; i++)
        n += b->runs[i].n_scored;
    if (n && !vector_reserve(b->targets, b->target_capacity, n))
        return false;
    uint32_t *to = b->targets;
    for (uint32_t i = 0; n && i < b->n_runs; i++) {
        const struct batch_run *run = &b->runs[i];
        const struct core_sequence *own = queue_sequence_find(s->queue, run->sequence)->owner;
        if (run->n_scored)
            memcpy(to, own->open.prompt.items + run->first_position + 1,
                   run->n_scored * sizeof *to);
        to += run->n_scored;
    }
    return true;
}

static void run_order(struct agent_core *c, const struct core_stage *s, struct core_run *r,
                      struct agent_action *a)
{
    a->u.run.slot = s->slot;
    a->u.run.ticket = r->ticket;
    a->u.run.batch = &r->batch;
    uint64_t ready = core_prefill_ready_ns(s, &r->batch);
    a->u.run.ready_ns = ready ? ready : c->ready_ns;
    a->u.run.reserved = r->reserved;
    if (!core_stage_is_last(s))
        a->u.run.header = core_activation_header(c, s, &r->batch);
}

static void run_begin(struct agent_core *c, struct core_stage *s, struct core_run *r)
{
    struct agent_action *a = targets_fill(s, &r->batch) ? core_act(c, AGENT_DO_RUN) : NULL;
    if (!a) { /* as if it had failed */
        core_release(c, r->batch.input);
        core_batch_failed(c, s, &r->batch, &(struct agent_event){.u.batch_done.status = HP_ENOMEM});
        return;
    }
    run_keep(c, s, r);
    if (r->reserved && s->outputs_out++ == 0)
        s->outputs_since_ns = r->handed_ns;
    core_device_of(c, s)->n_running++;
    core_drafts_order(s, &r->batch);
    run_order(c, s, r, a);
}

/* While all of its outputs are out, a stage makes only what is small. */
static void stage_narrow(struct core_stage *s)
{
    uint32_t per_token = (uint32_t)core_rows_bytes(s, s->row_out, 1, 1),
             small = AGENT_SMALL_OUTPUT_BYTES / per_token;
    bool blocked = s->outputs && s->outputs_out >= s->outputs && !core_stage_is_last(s);
    queue_narrow(s->queue, blocked ? (small ? small : 1) : UINT32_MAX);
}

/* Stages take turns by the time that they have had on their device over their weight: the one with
 * the least runs next, so that stages which always have something to do share the device's time by
 * their weights, and one that has little waits for a run of each other one at most. One that had
 * nothing to do is owed nothing for it (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM
 * 1996). */
static void turn_charge(const struct core_device *own, struct core_stage *s, double seconds)
{
    s->turn_s = (s->turn_s > own->turn_floor_s ? s->turn_s : own->turn_floor_s) +
                seconds / core_stage_weight(s);
}

static struct core_stage *turn_next(const struct agent_core *c, const struct core_device *own,
                                    uint64_t tried)
{
    struct core_stage *best = NULL;
    for (size_t i = 0; i < c->n_stages; i++) {
        struct core_stage *s = c->stages[i];
        if (s->queue && core_device_of(c, s) == own && !(tried >> i & 1) &&
            (!best || s->turn_s < best->turn_s))
            best = s;
    }
    return best;
}

static uint64_t turn_bit(const struct agent_core *c, const struct core_stage *s)
{
    size_t i = 0;
    while (c->stages[i] != s)
        i++;
    return UINT64_C(1) << i;
}

/* False when none of the device's stages has anything. */
static bool dispatch_one(struct agent_core *c, struct core_device *own)
{
    struct core_run *r = &own->runs[(own->first_run + own->n_running) % CORE_RUN_PLACES];
    struct core_stage *s;
    for (uint64_t tried = 0; (s = turn_next(c, own, tried)) != NULL; tried |= turn_bit(c, s)) {
        stage_narrow(s);
        if (!queue_next(s->queue, &r->batch, &c->dropped_runs))
            continue;
        if (!r->batch.n_runs) {
            core_batch_drop(c, s, &r->batch);
            return true;
        }
        double had = s->turn_s;
        turn_charge(own, s, run_seconds(s, &r->batch));
        own->turn_floor_s = had > own->turn_floor_s ? had : own->turn_floor_s;
        run_begin(c, s, r);
        return true;
    }
    return false;
}

/* Another run is handed out before the first is done only where that is short: what comes meanwhile
 * should not wait for two that are long. */
static bool executor_has_room(const struct agent_core *c, const struct core_device *own)
{
    size_t ahead = c->config->runs_ahead ? c->config->runs_ahead : 1;
    if (own->n_running == 0)
        return true;
    const struct core_run *first = &own->runs[own->first_run];
    return own->n_running < ahead && own->n_running < CORE_RUNS && first->expected_s > 0 &&
           first->expected_s * 1000 < AGENT_SHORT_RUN_MS;
}

/* Batches of which nothing is left do not wait for the executor. */
static void dead_pass(struct agent_core *c, struct core_stage *s)
{
    while (s->queue && queue_dead_take(s->queue, &c->passed, &c->dropped_runs))
        core_batch_drop(c, s, &c->passed);
}

void core_dispatch(struct agent_core *c)
{
    for (size_t i = 0; i < c->n_stages; i++)
        dead_pass(c, c->stages[i]);
    for (size_t i = 0; i < c->n_devices; i++)
        while (executor_has_room(c, &c->devices[i]) && dispatch_one(c, &c->devices[i]))
            ;
}
