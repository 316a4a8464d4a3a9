/* Owns what the coordinator asks of an agent beside its stages, and the answers: profiles, probes
 * of links, models to remove, lines of the log. */
#include "agent/core_answers.h"

#include "agent/core_out.h"

/* ---- asked ---- */

void core_profile_run(struct agent_core *c, struct message_ref *ref)
{
    const struct message *m = &ref->message;
    const struct message_profile_run *p = &m->u.profile_run;
    struct agent_action *a = core_act(c, AGENT_DO_PROFILE);
    if (!a)
        return;
    a->u.profile.id = m->id;
    a->u.profile.request = (struct message_profile_run){core_span(c, p->model),
                                                        core_span(c, p->manifest),
                                                        core_text(c, p->compute),
                                                        p->budget_ms,
                                                        p->fine,
                                                        p->device};
}

void core_link_probe(struct agent_core *c, struct message_ref *ref)
{
    const struct message *m = &ref->message;
    const struct message_link_probe *p = &m->u.link_probe;
    struct agent_action *a = core_act(c, AGENT_DO_PROBE);
    if (!a)
        return;
    a->u.probe.id = m->id;
    a->u.probe.request = (struct message_link_probe){
        p->session, core_text(c, p->role), core_text(c, p->peer), core_span(c, p->data_address)};
}

void core_store_remove(struct agent_core *c, struct message_ref *ref)
{
    const struct message *m = &ref->message;
    struct agent_action *a = core_act(c, AGENT_DO_STORE_REMOVE);
    if (!a)
        return;
    a->u.store_remove.id = m->id;
    a->u.store_remove.model = core_span(c, m->u.store_remove.model);
}

void core_log_fetch(struct agent_core *c, struct message_ref *ref)
{
    const struct message *m = &ref->message;
    struct agent_action *a = core_act(c, AGENT_DO_LOG_FETCH);
    if (!a)
        return;
    a->u.log_fetch.id = m->id;
    a->u.log_fetch.lines = m->u.log_fetch.lines;
}

/* Only what is asked gets an answer: two programs must not refuse each other's refusals for ever.
 */
void core_unknown(struct agent_core *c, struct message_ref *ref)
{
    const struct message *m = &ref->message;
    struct message *out = m->id ? core_send(c, MESSAGE_REFUSED) : NULL;
    if (!out)
        return;
    out->id = m->id;
    out->u.refused = (struct message_refused){status_word(HP_EUNSUPPORTED),
                                              "an agent has no answer to this kind of message", ""};
}

/* ---- answered ---- */

void core_profiled(struct agent_core *c, const struct agent_event *ev)
{
    struct message *m = core_send(c, MESSAGE_PROFILE_RESULT);
    if (!m)
        return;
    bool failed = ev->u.profiled.status < 0;
    m->id = ev->u.profiled.id;
    m->u.profile_result = (struct message_profile_result){
        .model = core_span(c, ev->u.profiled.model),
        .kind = core_text(c, ev->u.profiled.kind),
        .tables = core_text(c, ev->u.profiled.tables),
        .code = failed ? status_word(ev->u.profiled.status) : "",
        .text = core_text(c, failed && ev->u.profiled.error ? ev->u.profiled.error->text : ""),
    };
}

void core_profiling(struct agent_core *c, const struct agent_event *ev)
{
    struct message *m = core_send(c, MESSAGE_PROFILE_PROGRESS);
    if (!m)
        return;
    m->id = ev->u.profiling.id;
    m->u.profile_progress = ev->u.profiling.progress;
    m->u.profile_progress.what = core_text(c, ev->u.profiling.progress.what);
}

void core_probed(struct agent_core *c, const struct agent_event *ev)
{
    struct message *m = core_send(c, MESSAGE_LINK_RESULT);
    if (!m)
        return;
    bool failed = ev->u.probed.status < 0;
    m->id = ev->u.probed.id;
    m->u.link_result = (struct message_link_result){
        .latency_s = ev->u.probed.latency_s,
        .bandwidth_bytes_per_s = ev->u.probed.bandwidth_bytes_per_s,
        .code = failed ? status_word(ev->u.probed.status) : "",
        .text = core_text(c, failed && ev->u.probed.error ? ev->u.probed.error->text : "")};
}

void core_log_answer(struct agent_core *c, const struct agent_event *ev)
{
    struct message *m = core_send(c, MESSAGE_LOG_TEXT);
    if (!m)
        return;
    m->id = ev->u.log.id;
    m->u.log_text.text = core_text(c, ev->u.log.text);
}
