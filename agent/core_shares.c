/* Owns shares of plans of pools: what is ordered, where their batches go, and what the coordinator
 * hears of them. Batches themselves pass whoever holds the slot (share_runner.h). */
#include "agent/core_shares.h"

#include "agent/core_out.h"
#include "agent/core_slots.h"
#include "common/log.h"

static int share_check(const struct agent_core *c, const struct message_stage_prepare *p,
                       struct err *e)
{
    const struct message_share *s = p->share.items;
    if (p->device >= c->n_devices)
        return err_set(e, HP_EINVAL, "device %llu: this agent has %zu",
                       (unsigned long long)p->device, c->n_devices);
    if (s->part >= s->parts || s->parts > UINT16_MAX)
        return err_set(e, HP_EINVAL, "part %llu of a device in %llu parts",
                       (unsigned long long)s->part, (unsigned long long)s->parts);
    if (p->first_layer >= p->end_layer || p->end_layer > s->n_blocks || s->n_blocks > INT32_MAX)
        return err_set(e, HP_EINVAL, "blocks %llu to %llu of a network with %llu",
                       (unsigned long long)p->first_layer, (unsigned long long)p->end_layer,
                       (unsigned long long)s->n_blocks);
    if (s->bounds.count && s->bounds.count != s->n_blocks + 1)
        return err_set(e, HP_EINVAL, "%llu blocks with %zu bounds, and not one more",
                       (unsigned long long)s->n_blocks, s->bounds.count);
    if (!s->batch || s->batch > MESSAGE_MAX_BATCH)
        return err_set(e, HP_EINVAL, "batches of up to %llu; 1 to %d are possible",
                       (unsigned long long)s->batch, MESSAGE_MAX_BATCH);
    if (s->sizes > MESSAGE_MAX_SIZES || (s->sizes && s->dims.count % s->sizes))
        return err_set(e, HP_EINVAL, "%zu dimensions of %llu sizes", s->dims.count,
                       (unsigned long long)s->sizes);
    if (p->stage > UINT16_MAX || p->generation > UINT32_MAX)
        return err_set(e, HP_EINVAL, "share %llu of generation %llu is beyond what frames can name",
                       (unsigned long long)p->stage, (unsigned long long)p->generation);
    if (p->model.size != DIGEST_BYTES)
        return err_set(e, HP_EINVAL, "a model's id has 32 bytes, this has %zu", p->model.size);
    return 0;
}

void core_share_prepare(struct agent_core *c, struct message_ref *m)
{
    const struct message_stage_prepare *p = &m->message.u.stage_prepare;
    struct core_stage *s = core_stage_of(c, p->deployment, p->generation, p->stage);
    struct err e = {0};
    if (s && s->state != STAGE_FAILED) {
        core_stage_report(c, s);
        return;
    }
    if (s)
        core_stage_drop(c, s);
    if (share_check(c, p, &e) < 0)
        core_stage_report_without(c, p, STAGE_FAILED, &e);
    else
        core_stage_add(c, m);
}

void core_share_connect(struct agent_core *c, struct message_ref *message)
{
    const struct message_share_connect *m = &message->message.u.share_connect;
    struct agent_action *a = NULL;
    for (size_t i = 0; i < c->n_stages; i++) {
        struct core_stage *s = c->stages[i];
        if (!s->is_share || s->prepare.deployment != m->deployment ||
            s->prepare.generation != m->generation)
            continue;
        message_ref_hold(message);
        message_ref_release(s->connect);
        s->connect = message;
        a = a ? a : core_act(c, AGENT_DO_SHARE_CONNECT);
    }
    if (!a) {
        c->dropped_stale++;
        return;
    }
    a->u.share_connect.deployment = m->deployment;
    a->u.share_connect.generation = m->generation;
    a->u.share_connect.peers = m->peers;
    log_info("agent", "share_connect", "deployment=%llu generation=%llu peers=%zu",
             (unsigned long long)m->deployment, (unsigned long long)m->generation, m->peers.count);
}

void core_share_metered(struct agent_core *c, const struct agent_event *ev)
{
    struct core_stage *s = core_stage_of_slot(c, ev->u.share_meter.slot);
    if (!s || !s->is_share)
        return;
    s->share_queued = ev->u.share_meter.queued;
    s->share_running = ev->u.share_meter.running;
    s->batches_done = ev->u.share_meter.done;
    s->busy_s = ev->u.share_meter.busy_s;
    s->planned_s = ev->u.share_meter.planned_s;
}

void core_share_failed(struct agent_core *c, const struct agent_event *ev)
{
    struct message *m = core_send(c, MESSAGE_SHARE_FAILED);
    if (m)
        m->u.share_failed =
            (struct message_share_failed){.deployment = ev->u.share_failed.deployment,
                                          .generation = ev->u.share_failed.generation,
                                          .stage = ev->u.share_failed.share,
                                          .batch = ev->u.share_failed.batch,
                                          .code = status_word(ev->u.share_failed.code),
                                          .text = core_text(c, ev->u.share_failed.text)};
}
