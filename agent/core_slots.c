/* Owns what stages and shares have in common: they are ordered, held, fetched, dropped, and the
 * coordinator hears of them. */
#include "agent/core_slots.h"

#include <stdlib.h>

#include "agent/core_out.h"
#include "agent/core_sequences.h"
#include "agent/core_sessions.h"
#include "common/log.h"

void core_stage_report_without(struct agent_core *c, const struct message_stage_prepare *p,
                               enum stage_state state, const struct err *e)
{
    struct message *m = core_send(c, MESSAGE_STAGE_STATE);
    if (m)
        m->u.stage_state = (struct message_stage_state){.deployment = p->deployment,
                                                        .generation = p->generation,
                                                        .stage = p->stage,
                                                        .state = stage_states[state].word,
                                                        .code = e ? status_word(e->code) : "",
                                                        .text = core_text(c, e ? e->text : ""),
                                                        .hint = core_text(c, e ? e->hint : "")};
}

void core_stage_work(struct agent_core *c, struct core_stage *s, enum agent_action_kind kind)
{
    struct agent_action *a = core_act(c, kind);
    s->ticket = ++c->last_ticket;
    s->done_bytes = s->total_bytes = 0;
    if (!a)
        return;
    a->u.work.slot = s->slot;
    a->u.work.ticket = s->ticket;
    a->u.work.prepare = s->message;
}

struct core_stage *core_stage_add(struct agent_core *c, struct message_ref *m)
{
    const struct message_stage_prepare *p = &m->message.u.stage_prepare;
    struct err e = {0};
    struct core_stage *s = NULL;
    if (c->n_stages == AGENT_MAX_STAGES)
        err_set(&e, HP_EBUSY, "this agent holds %d stages already", AGENT_MAX_STAGES);
    else if ((s = calloc(1, sizeof *s)) == NULL)
        err_set(&e, HP_ENOMEM, "no memory for a stage");
    if (!s) {
        core_stage_report_without(c, p, STAGE_FAILED, &e);
        return NULL;
    }
    s->message = message_ref_hold(m);
    s->prepare = *p;
    s->is_share = p->share.count > 0;
    s->slot = ++c->last_slot;
    s->state = STAGE_FETCHING;
    c->stages[c->n_stages++] = s;
    core_stage_sessions_allow(c, s);
    log_info("agent", s->is_share ? "share_prepare" : "stage_prepare",
             "deployment=%llu generation=%llu stage=%llu/%llu layers=%llu-%llu device=%llu",
             (unsigned long long)p->deployment, (unsigned long long)p->generation,
             (unsigned long long)p->stage, (unsigned long long)p->n_stages,
             (unsigned long long)p->first_layer, (unsigned long long)p->end_layer - 1,
             (unsigned long long)p->device);
    core_stage_report(c, s);
    core_stage_work(c, s, AGENT_DO_FETCH);
    return s;
}

void core_stage_drop(struct agent_core *c, struct core_stage *s)
{
    core_queue_destroy(c, s);
    struct agent_action *a = core_act(c, AGENT_DO_UNLOAD);
    if (a)
        a->u.unload.slot = s->slot;
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i] == s)
            c->stages[i] = c->stages[--c->n_stages];
    core_stage_sessions_revoke(c, s->prepare.session, s->prepare.input_session);
    s->next_dead = c->dead_stages;
    c->dead_stages = s;
}
