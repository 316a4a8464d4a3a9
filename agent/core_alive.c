/* Owns the signs of life between the stages of a deployment. Every stage sends an empty frame over
 * its links twice a second, whatever else goes there; a stage that hears the first one knows that
 * the hop works, and one that hears nothing for a while knows that it does not any more, also where
 * neither end has died (a firewall, a cable, a WLAN that isolates its clients). The coordinator is
 * told both, and calls no deployment serving before every hop was heard. */
#include "agent/core_alive.h"

#include "agent/core_links.h"
#include "agent/core_out.h"
#include "agent/core_sequences.h"
#include "common/log.h"

static const uint64_t ms = 1000000;

static bool has_hops(const struct core_stage *s)
{
    return s->state == STAGE_READY && s->prepare.n_stages > 1 && !s->is_share;
}

static void hop_say(struct agent_core *c, const struct core_stage *s, uint64_t silent_ns)
{
    struct message *m = core_send(c, MESSAGE_HOP_STATE);
    if (m)
        m->u.hop_state = (struct message_hop_state){.deployment = s->prepare.deployment,
                                                    .generation = s->prepare.generation,
                                                    .stage = s->prepare.stage,
                                                    .heard = s->hop.heard,
                                                    .silent_s = (double)silent_ns * 1e-9};
}

static void alive_send(struct agent_core *c, struct core_stage *s)
{
    struct agent_action *a = core_act(c, AGENT_DO_POST);
    if (!a)
        return; /* the next one comes soon */
    bool last = core_stage_is_last(s);
    a->u.post.slot = s->slot;
    a->u.post.link = last ? AGENT_LINK_FIRST : AGENT_LINK_NEXT;
    a->u.post.header = (struct frame_header){.kind = FRAME_ALIVE,
                                             .stage = last ? 0 : (uint16_t)(s->prepare.stage + 1),
                                             .dtype = FRAME_BYTES,
                                             .session = last ? s->first_session : s->next_session,
                                             .deployment = s->prepare.deployment,
                                             .generation = (uint32_t)s->prepare.generation};
}

void core_hop_heard(struct agent_core *c, struct core_stage *s)
{
    s->hop.heard_ns = env_now_ns(c->env);
    if (s->hop.heard)
        return;
    s->hop.heard = true;
    hop_say(c, s, 0);
}

void core_hop_reset(struct core_stage *s)
{
    s->hop = (struct core_hop){0};
}

static void hop_silent(struct agent_core *c, struct core_stage *s, uint64_t silent_ns)
{
    struct queue_sequence *q;
    log_warn("agent", "hop_silent", "deployment=%llu stage=%llu seconds=%.1f",
             (unsigned long long)s->prepare.deployment, (unsigned long long)s->prepare.stage,
             (double)silent_ns * 1e-9);
    s->hop.heard = false;
    hop_say(c, s, silent_ns);
    while (s->queue && (q = queue_sequence_at(s->queue, 0)) != NULL)
        core_sequence_fail(c, s, q->id, HP_ELINK,
                           "nothing comes over the data channel from the stage before");
}

void core_hops_tick(struct agent_core *c, uint64_t now_ns)
{
    for (size_t i = 0; i < c->n_stages; i++) {
        struct core_stage *s = c->stages[i];
        if (!has_hops(s))
            continue;
        if (s->connected && now_ns >= s->hop.send_ns) {
            s->hop.send_ns = now_ns + AGENT_ALIVE_MS * ms;
            core_stage_links_mend(c, s); /* so that a hop works again as soon as the network does,
                                            whether there is a request or not */
            alive_send(c, s);
        }
        if (s->hop.heard && now_ns >= s->hop.heard_ns + AGENT_SILENCE_MS * ms)
            hop_silent(c, s, now_ns - s->hop.heard_ns);
    }
}

void core_hops_forgive(struct agent_core *c, uint64_t gap_ns)
{
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->hop.heard)
            c->stages[i]->hop.heard_ns += gap_ns;
}

uint64_t core_hops_deadline(const struct agent_core *c)
{
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; i < c->n_stages; i++) {
        const struct core_stage *s = c->stages[i];
        uint64_t silent =
            has_hops(s) && s->hop.heard ? s->hop.heard_ns + AGENT_SILENCE_MS * ms : UINT64_MAX;
        uint64_t send = has_hops(s) && s->connected ? s->hop.send_ns : UINT64_MAX;
        at = send < at ? send : at;
        at = silent < at ? silent : at;
    }
    return at;
}
