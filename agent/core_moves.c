/* Owns what is under way of keys and values that come to this agent's sequences or go elsewhere:
 * who may send them, how far they are, and what the coordinator hears of it. */
#include "agent/core_moves.h"

#include "agent/core_out.h"
#include "agent/core_sessions.h"

void core_kv_say(struct agent_core *c, uint64_t id, const struct message_kv_state *state,
                 const struct err *e)
{
    struct message *m = core_send(c, MESSAGE_KV_STATE);
    if (!m)
        return;
    m->id = id;
    m->u.kv_state = *state;
    m->u.kv_state.code = e ? status_word(e->code) : "";
    m->u.kv_state.text = core_text(c, e ? e->text : "");
    if (e)
        m->u.kv_state.state = kv_state_words[KV_STATE_FAILED];
}

struct core_stage *core_kv_stage(struct agent_core *c, uint64_t deployment, uint64_t generation,
                                 uint64_t stage, struct err *e)
{
    struct core_stage *s = core_stage_ordered(c, deployment, generation, stage);
    if (s && s->queue)
        return s;
    c->dropped_stale += !s && generation < core_orders_term(c, deployment);
    err_set(e, HP_ESTALE, "this agent has no such stage of that deployment and generation");
    return NULL;
}

/* ---- what comes ---- */

/* Ends all imports of a sequence, each with its answer. */
static void imports_end(struct agent_core *c, const struct core_stage *s,
                        const struct core_sequence *own, const struct err *e)
{
    for (size_t i = 0; i < c->n_kv_imports;) {
        struct core_kv_import gone = c->kv_imports[i];
        if (gone.slot != s->slot || gone.sequence != own->open.sequence) {
            i++;
            continue;
        }
        c->kv_imports[i] = c->kv_imports[--c->n_kv_imports];
        core_session_revoke(c, gone.session);
        core_kv_say(c, gone.id,
                    &(struct message_kv_state){.deployment = own->open.deployment,
                                               .generation = own->open.generation,
                                               .stage = s->prepare.stage,
                                               .sequence = gone.sequence,
                                               .state = kv_state_words[KV_STATE_RECEIVED],
                                               .moved_bytes = gone.moved_bytes},
                    e);
    }
}

void core_kv_received(struct agent_core *c, const struct core_stage *s, struct core_sequence *own)
{
    c->n_kv_awaiting -= own->awaits_kv;
    own->awaits_kv = false;
    imports_end(c, s, own, NULL);
}

/* ---- what goes ---- */

void core_kv_export_end(struct agent_core *c, struct core_kv_export *x, const struct err *e)
{
    const struct message_kv_export *o = &x->order;
    struct agent_action *a = core_act(c, AGENT_DO_KV_DROP);
    if (a)
        a->u.kv_drop.ticket = x->ticket;
    core_kv_say(c, x->id,
                &(struct message_kv_state){.deployment = o->deployment,
                                           .generation = o->generation,
                                           .stage = o->stage,
                                           .sequence = o->sequence,
                                           .state = kv_state_words[KV_STATE_SENT],
                                           .moved_bytes = x->moved_bytes},
                e);
    message_ref_release(x->message);
    c->n_kv_exports--;
    *x = (struct core_kv_export){0};
}

void core_kv_forget(struct agent_core *c, const struct core_stage *s, struct core_sequence *own)
{
    struct err e = {0};
    err_set(&e, HP_ECANCELED, "the sequence was closed");
    c->n_kv_awaiting -= own->awaits_kv;
    own->awaits_kv = false;
    imports_end(c, s, own, &e);
    for (size_t i = 0; c->n_kv_exports && i < AGENT_MAX_KV_EXPORTS; i++) {
        struct core_kv_export *x = &c->kv_exports[i];
        if (x->message && x->slot == s->slot && x->order.sequence == own->open.sequence)
            core_kv_export_end(c, x, &e);
    }
}

/* ---- time ---- */

void core_kv_forgive(struct agent_core *c, uint64_t gap_ns)
{
    struct queue_sequence *q;
    for (size_t i = 0; c->n_kv_exports && i < AGENT_MAX_KV_EXPORTS; i++)
        if (c->kv_exports[i].message)
            c->kv_exports[i].left_ns += gap_ns;
    for (size_t i = 0; c->n_kv_awaiting && i < c->n_stages; i++)
        for (size_t k = 0;
             c->stages[i]->queue && (q = queue_sequence_at(c->stages[i]->queue, k)) != NULL; k++)
            ((struct core_sequence *)q->owner)->kv_ns += gap_ns;
}
