/* Owns what is known of weights that come while stages serve (hp-agent --serve-while-loading): a
 * stage's own, as its executor says, and those of the deployment's other stages, as the coordinator
 * does. Whoever waits for a batch waits on as long as some come. */
#include "agent/core_arrivals.h"

/* Batches of the stage, here or at later stages, may have waited for what has just come. */
static void stage_arrival_note(struct agent_core *c, struct core_stage *s)
{
    s->arrived_ns = c->now_ns;
    if (s->queue)
        queue_deadlines_renew(s->queue, c->now_ns);
}

/* While a batch waits for weights its device does nothing else. */
static void device_arrival_note(struct agent_core *c, const struct core_stage *of)
{
    core_device_of(c, of)->arrived_ns = c->now_ns;
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->prepare.device == of->prepare.device)
            stage_arrival_note(c, c->stages[i]);
}

void core_stage_filling(struct agent_core *c, const struct agent_event *ev)
{
    struct core_stage *s = core_stage_of_slot(c, ev->u.filling.slot);
    if (!s || (s->state != STAGE_LOADING && s->state != STAGE_READY))
        return;
    if (ev->u.filling.status < 0) {
        core_stage_fail(c, s, ev->u.filling.error);
        return;
    }
    s->missing_bytes = ev->u.filling.missing_bytes;
    device_arrival_note(c, s);
}

static uint64_t loading_missing_bytes(const struct pack_list *loading, const struct core_stage *s)
{
    const struct message_loading *rows = loading->items;
    for (size_t i = 0; i < loading->count; i++)
        if (rows[i].deployment == s->prepare.deployment &&
            rows[i].generation == s->prepare.generation)
            return rows[i].missing_bytes;
    return 0;
}

void core_arrivals_told(struct agent_core *c, const struct pack_list *loading)
{
    for (size_t i = 0; i < c->n_stages; i++) {
        struct core_stage *s = c->stages[i];
        uint64_t missing = loading_missing_bytes(loading, s);
        if (missing == s->missing_in_all_bytes)
            continue;
        s->missing_in_all_bytes = missing;
        stage_arrival_note(c, s);
    }
}

bool core_run_awaited_weights(const struct agent_core *c, const struct core_stage *s,
                              uint64_t start_ns)
{
    return start_ns < core_device_of(c, s)->arrived_ns;
}
