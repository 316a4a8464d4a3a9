/* Owns the stages that this agent holds: where each is, what state it is in, and what the
 * coordinator hears of that. */
#include "agent/core_state.h"

#include <stdlib.h>

#include "agent/core_out.h"
#include "common/log.h"

struct core_stage *core_stage_of(struct agent_core *c, uint64_t deployment, uint64_t generation,
                                 uint64_t stage)
{
    for (size_t i = 0; i < c->n_stages; i++) {
        const struct message_stage_prepare *p = &c->stages[i]->prepare;
        if (p->deployment == deployment && p->generation == generation && p->stage == stage)
            return c->stages[i];
    }
    return NULL;
}

uint64_t core_deployment_generation(const struct agent_core *c, uint64_t deployment)
{
    uint64_t newest = 0;
    for (size_t i = 0; i < c->n_stages; i++) {
        const struct message_stage_prepare *p = &c->stages[i]->prepare;
        if (p->deployment == deployment && p->generation > newest)
            newest = p->generation;
    }
    return newest;
}

uint64_t core_orders_term(const struct agent_core *c, uint64_t deployment)
{
    uint64_t newest = core_deployment_generation(c, deployment);
    for (size_t i = 0; i < CORE_TERMS; i++)
        if (c->terms[i].deployment == deployment && c->terms[i].generation > newest)
            newest = c->terms[i].generation;
    return newest;
}

void core_orders_term_take(struct agent_core *c, uint64_t deployment, uint64_t generation)
{
    size_t i = 0;
    while (i < CORE_TERMS && c->terms[i].deployment != deployment)
        i++;
    if (i == CORE_TERMS) {
        i = c->next_term;
        c->next_term = (c->next_term + 1) % CORE_TERMS;
    }
    c->terms[i] = (struct core_term){deployment, generation};
}

struct core_stage *core_stage_ordered(struct agent_core *c, uint64_t deployment,
                                      uint64_t generation, uint64_t stage)
{
    bool old = generation < core_orders_term(c, deployment);
    return old ? NULL : core_stage_of(c, deployment, generation, stage);
}

struct core_stage *core_stage_of_slot(const struct agent_core *c, uint64_t slot)
{
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->slot == slot)
            return c->stages[i];
    return NULL;
}

void core_stage_free(struct core_stage *s)
{
    free(s->wanted);
    free(s->next_address);
    free(s->first_address);
    free(s->next_device);
    free(s->first_device);
    message_ref_release(s->message);
    message_ref_release(s->connect);
    free(s);
}

void core_stage_report(struct agent_core *c, const struct core_stage *s)
{
    struct message *m = core_send(c, MESSAGE_STAGE_STATE);
    if (!m)
        return;
    bool failed = s->state == STAGE_FAILED, says = failed || s->state == STAGE_FETCHING;
    m->u.stage_state = (struct message_stage_state){
        .deployment = s->prepare.deployment,
        .generation = s->prepare.generation,
        .stage = s->prepare.stage,
        .state = stage_states[s->state].word,
        .done_bytes = s->done_bytes,
        .total_bytes = s->total_bytes,
        .moved_bytes = s->moved_bytes,
        .missing_bytes = s->missing_bytes,
        .wanted = {s->wanted, s->state == STAGE_FETCHING ? s->n_wanted : 0},
        .code = failed ? status_word(s->error.code) : "",
        .text = says ? s->error.text : "",
        .hint = failed ? s->error.hint : ""};
}

size_t core_stages_held(struct agent_core *c)
{
    for (size_t i = 0; i < c->n_stages; i++) {
        const struct core_stage *s = c->stages[i];
        const struct core_device *own = core_device_of(c, s);
        struct queue_view q = s->queue ? queue_view(s->queue) : (struct queue_view){0};
        c->held[i] = (struct message_held_stage){
            .deployment = s->prepare.deployment,
            .generation = s->prepare.generation,
            .stage = s->prepare.stage,
            .device = s->prepare.device,
            .state = stage_states[s->state].word,
            .sequences = q.sequences,
            .kept = s->n_kept,
            .queued_batches = q.frames + q.in_flight + s->share_queued,
            .kv_used_tokens = q.kv_tokens,
            .kv_tokens = s->prepare.kv_tokens,
            .batches_done = s->batches_done,
            .busy_s = s->busy_s,
            .planned_s = s->planned_s,
            .hop_heard = s->hop.heard,
            .missing_bytes = s->missing_bytes,
            .running =
                s->share_running || (own->n_running && own->runs[own->first_run].slot == s->slot)};
    }
    return c->n_stages;
}

void core_stage_move(struct agent_core *c, struct core_stage *s, enum stage_state to)
{
    machine_move(stage_states, &s->state, (int)to);
    log_info("agent", "stage_state", "deployment=%llu generation=%llu stage=%llu state=%s",
             (unsigned long long)s->prepare.deployment, (unsigned long long)s->prepare.generation,
             (unsigned long long)s->prepare.stage, stage_states[to].word);
    core_stage_report(c, s);
}

void core_stage_fail(struct agent_core *c, struct core_stage *s, const struct err *e)
{
    if (e)
        s->error = *e;
    else
        err_set(&s->error, HP_EBUG, "failed without a reason");
    log_warn("agent", "stage_failed", "deployment=%llu code=%s text=\"%s\"",
             (unsigned long long)s->prepare.deployment, status_word(s->error.code), s->error.text);
    core_stage_move(c, s, STAGE_FAILED);
}

void core_stage_break(struct agent_core *c, struct core_stage *s, const struct err *e)
{
    if (s->state == STAGE_READY)
        core_stage_fail(c, s, e);
}
