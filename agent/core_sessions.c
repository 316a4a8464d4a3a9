/* Owns the sessions of frames: which are welcome, for how long, and from whom. */
#include "agent/core_sessions.h"

#include <string.h>

#include "agent/core_out.h"

static bool session_used(const struct agent_core *c, uint64_t session)
{
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->prepare.session == session ||
            c->stages[i]->prepare.input_session == session)
            return true;
    for (size_t i = 0; i < c->n_grants; i++)
        if (c->grants[i].session == session)
            return true;
    for (size_t i = 0; i < c->n_copies; i++)
        if (c->copies[i].message->message.u.stage_prepare.session == session)
            return true;
    for (size_t i = 0; i < c->n_kv_imports; i++)
        if (c->kv_imports[i].session == session)
            return true;
    return false;
}

void core_session_allow(struct agent_core *c, uint64_t session, struct pack_span from)
{
    struct agent_action *a = core_act(c, AGENT_DO_SESSION_ALLOW);
    if (!a)
        return;
    a->u.session.session = session;
    a->u.session.from = from.size == KEY_BYTES ? from.data : NULL;
}

void core_session_revoke(struct agent_core *c, uint64_t session)
{
    struct agent_action *a = session_used(c, session) ? NULL : core_act(c, AGENT_DO_SESSION_REVOKE);
    if (a)
        a->u.session.session = session;
}

void core_stage_sessions_allow(struct agent_core *c, const struct core_stage *s)
{
    core_session_allow(c, s->prepare.session, (struct pack_span){0});
    if (s->prepare.input_session)
        core_session_allow(c, s->prepare.input_session, s->prepare.input_from);
}

void core_stage_sessions_revoke(struct agent_core *c, uint64_t session, uint64_t input_session)
{
    core_session_revoke(c, session);
    if (input_session)
        core_session_revoke(c, input_session);
}

void core_grant(struct agent_core *c, struct message_ref *message)
{
    const struct message_chunk_grant *m = &message->message.u.chunk_grant;
    size_t i = 0;
    while (i < c->n_grants && c->grants[i].session != m->session)
        i++;
    if (m->revoke && i < c->n_grants) {
        c->grants[i] = c->grants[--c->n_grants];
        core_session_revoke(c, m->session);
    } else if (!m->revoke && i == c->n_grants) {
        if (c->n_grants == AGENT_MAX_GRANTS) {
            uint64_t oldest = c->grants[0].session;
            memmove(&c->grants[0], &c->grants[1], (c->n_grants - 1) * sizeof *c->grants);
            c->n_grants--;
            core_session_revoke(c, oldest);
        }
        c->grants[c->n_grants++].session = m->session;
        core_session_allow(c, m->session, (struct pack_span){0});
    }
}
