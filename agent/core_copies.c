/* Owns copies of layers that other agents run: fetched into the store and left there, so that they
 * are not lost with those. */
#include "agent/core_copies.h"

#include "agent/core_out.h"
#include "agent/core_sessions.h"
#include "model/graph/config.h"

static void copy_report(struct agent_core *c, const struct message_stage_prepare *p,
                        enum stage_state state, const char *text)
{
    struct message *m = core_send(c, MESSAGE_STAGE_STATE);
    if (m)
        m->u.stage_state = (struct message_stage_state){.deployment = p->deployment,
                                                        .generation = p->generation,
                                                        .stage = p->stage,
                                                        .state = stage_states[state].word,
                                                        .code = "",
                                                        .text = core_text(c, text),
                                                        .hint = ""};
}

static void copy_end(struct agent_core *c, struct core_copy *y)
{
    uint64_t session = y->message->message.u.stage_prepare.session;
    struct agent_action *a = core_act(c, AGENT_DO_UNLOAD);
    if (a)
        a->u.unload.slot = y->slot;
    message_ref_release(y->message);
    *y = c->copies[--c->n_copies];
    core_session_revoke(c, session);
}

/* An order may come again while it is being carried out. */
static bool copy_is_under_way(const struct agent_core *c, const struct message_stage_prepare *p)
{
    for (size_t i = 0; i < c->n_copies; i++) {
        const struct message_stage_prepare *o = &c->copies[i].message->message.u.stage_prepare;
        if (o->deployment == p->deployment && o->generation == p->generation &&
            o->stage == p->stage)
            return true;
    }
    return false;
}

void core_copy_begin(struct agent_core *c, struct message_ref *m)
{
    const struct message_stage_prepare *p = &m->message.u.stage_prepare;
    if (copy_is_under_way(c, p))
        return;
    if (c->n_copies == AGENT_MAX_COPIES || p->device >= c->n_devices || p->model.size != 32 ||
        p->first_layer >= p->end_layer || p->end_layer > INT32_MAX ||
        p->expert_groups > MODEL_EXPERTS_MAX) {
        copy_report(c, p, STAGE_UNCOPIED, "this agent takes no such copy now");
        return;
    }
    struct agent_action *a = core_act(c, AGENT_DO_FETCH);
    if (!a)
        return;
    struct core_copy *y = &c->copies[c->n_copies++];
    *y = (struct core_copy){message_ref_hold(m), ++c->last_slot, ++c->last_ticket};
    a->u.work.slot = y->slot;
    a->u.work.ticket = y->ticket;
    a->u.work.prepare = y->message;
    core_session_allow(c, p->session, (struct pack_span){0});
}

bool core_copy_fetched(struct agent_core *c, const struct agent_progress *p)
{
    for (size_t i = 0; i < c->n_copies; i++) {
        struct core_copy *y = &c->copies[i];
        if (y->slot != p->slot || y->ticket != p->ticket)
            continue;
        const struct message_stage_prepare *own = &y->message->message.u.stage_prepare;
        if (p->status == HP_PENDING && !p->wanted.count)
            return true;
        if (p->status == 0)
            copy_report(c, own, STAGE_COPIED, "");
        else
            copy_report(c, own, STAGE_UNCOPIED,
                        p->status < 0 && p->error ? p->error->text
                                                  : "nobody gives some of its chunks");
        copy_end(c, y);
        return true;
    }
    return false;
}

void core_copies_free(struct agent_core *c)
{
    while (c->n_copies)
        message_ref_release(c->copies[--c->n_copies].message);
}
