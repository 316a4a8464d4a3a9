/* Owns orders and frames of keys and values that come: a sequence that begins with a length awaits
 * them from whom the coordinator names. Every order has an answer; a sequence whose keys and values
 * do not all come fails. */
#include "agent/core_imports.h"

#include "agent/core_moves.h"
#include "agent/core_out.h"
#include "agent/core_sequences.h"
#include "agent/core_sessions.h"

static void import_refuse(struct agent_core *c, const struct message *m, const struct err *e)
{
    const struct message_kv_import *o = &m->u.kv_import;
    core_kv_say(c, m->id,
                &(struct message_kv_state){.deployment = o->deployment,
                                           .generation = o->generation,
                                           .stage = o->stage,
                                           .sequence = o->sequence},
                e);
}

static int import_add(struct agent_core *c, const struct core_stage *s, const struct message *m,
                      struct err *e)
{
    const struct message_kv_import *o = &m->u.kv_import;
    const struct queue_sequence *q = queue_sequence_find(s->queue, o->sequence);
    unsigned long long id = o->sequence;
    if (!q)
        return err_set(e, HP_ENOENT, "sequence %llu is not open", id);
    if (!((struct core_sequence *)q->owner)->awaits_kv)
        return err_set(e, HP_EINVAL, "sequence %llu awaits no keys and values", id);
    if (!o->session || (o->from.size && o->from.size != KEY_BYTES))
        return err_set(e, HP_EINVAL, "keys and values of sequence %llu without a session", id);
    if (c->n_kv_imports == AGENT_MAX_KV_IMPORTS)
        return err_set(e, HP_EBUSY, "this agent awaits keys and values from %d senders already",
                       AGENT_MAX_KV_IMPORTS);
    c->kv_imports[c->n_kv_imports++] =
        (struct core_kv_import){s->slot, o->sequence, o->session, m->id, 0};
    core_session_allow(c, o->session, o->from);
    core_kv_say(c, m->id,
                &(struct message_kv_state){.deployment = o->deployment,
                                           .generation = o->generation,
                                           .stage = o->stage,
                                           .sequence = o->sequence,
                                           .state = kv_state_words[KV_STATE_AWAITED]},
                NULL);
    return 0;
}

void core_kv_import(struct agent_core *c, struct message_ref *ref)
{
    const struct message_kv_import *o = &ref->message.u.kv_import;
    struct err e = {0};
    struct core_stage *s = core_kv_stage(c, o->deployment, o->generation, o->stage, &e);
    if (!s || import_add(c, s, &ref->message, &e) < 0)
        import_refuse(c, &ref->message, &e);
}

/* Whom a frame is awaited from; NULL: from nobody. */
static struct core_kv_import *import_of(struct agent_core *c, const struct core_stage *s,
                                        const struct frame_header *h)
{
    for (size_t i = 0; i < c->n_kv_imports; i++)
        if (c->kv_imports[i].slot == s->slot && c->kv_imports[i].sequence == h->sequence &&
            c->kv_imports[i].session == h->session)
            return &c->kv_imports[i];
    return NULL;
}

static bool frame_fits(const struct core_stage *s, const struct core_sequence *own,
                       const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    const struct kv_range *r = &ev->u.frame.kv;
    struct kv_shape came = s->kv;
    enum kv_format format;
    if (r->group >= came.n_groups || !frame_dtype_is_kv(h->dtype, &format) ||
        !kv_shape_group_as(&came.groups[r->group], format))
        return false;
    uint64_t bytes = kv_shape_bytes(&came, r);
    return bytes && h->payload_bytes == FRAME_KV_BYTES + bytes && ev->u.frame.buffer &&
           r->first <= own->open.length && r->count <= own->open.length - r->first;
}

/* A piece that fits. HP_EPROTO: more comes than even pieces that come twice, from one sender and
 * then another, would make. HP_ENOMEM. */
static int piece_hand_over(struct agent_core *c, const struct core_stage *s,
                           struct core_sequence *own, const struct agent_event *ev)
{
    enum { TIMES = 4 };
    uint64_t bytes = kv_shape_bytes(&s->kv, &ev->u.frame.kv);
    if (own->kv_bytes + bytes > TIMES * kv_shape_whole_bytes(&s->kv, (uint32_t)own->open.length))
        return HP_EPROTO;
    struct agent_action *a = core_act(c, AGENT_DO_KV_IMPORT);
    if (!a)
        return HP_ENOMEM;
    own->kv_bytes += bytes;
    own->kv_pending++;
    a->u.kv_import.slot = s->slot;
    a->u.kv_import.ticket = own->ticket;
    a->u.kv_import.sequence = ev->u.frame.header->sequence;
    a->u.kv_import.range = ev->u.frame.kv;
    frame_dtype_is_kv(ev->u.frame.header->dtype, &a->u.kv_import.format);
    a->u.kv_import.buffer = ev->u.frame.buffer;
    return 0;
}

/* A sender that has nothing to send as yet keeps the lease; whatever else is empty fits nothing. */
static bool frame_is_beat(const struct frame_header *h)
{
    return !h->payload_bytes && !h->n_tokens;
}

void core_kv_frame(struct agent_core *c, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    struct core_stage *s = core_stage_of(c, h->deployment, h->generation, h->stage);
    uint64_t newest = core_deployment_generation(c, h->deployment);
    struct core_kv_import *from = s && s->queue ? import_of(c, s, h) : NULL;
    bool stale = !s && newest && newest != h->generation;
    c->dropped_stale += stale;
    c->dropped_foreign += !stale && !from;
    struct queue_sequence *q = from ? queue_sequence_find(s->queue, h->sequence) : NULL;
    if (!q) {
        core_release(c, ev->u.frame.buffer);
        return;
    }
    struct core_sequence *own = q->owner;
    if (frame_is_beat(h)) {
        own->kv_ns = c->now_ns;
        core_release(c, ev->u.frame.buffer);
        return;
    }
    bool fits = frame_fits(s, own, ev);
    int rc = fits ? piece_hand_over(c, s, own, ev) : HP_EPROTO;
    c->dropped_malformed += rc == HP_EPROTO;
    if (rc == 0) {
        from->moved_bytes += h->payload_bytes - FRAME_KV_BYTES;
        return;
    }
    core_release(c, ev->u.frame.buffer);
    core_sequence_fail(c, s, h->sequence, rc,
                       rc == HP_ENOMEM ? "no memory for keys and values that came"
                       : fits          ? "the same keys and values come over and over"
                                       : "keys and values came that are none of this stage's");
}

void core_kv_imported(struct agent_core *c, const struct agent_event *ev)
{
    uint64_t id = ev->u.kv_imported.sequence;
    const struct err *e = ev->u.kv_imported.error;
    struct core_stage *s = core_stage_of_slot(c, ev->u.kv_imported.slot);
    struct queue_sequence *q = s && s->queue ? queue_sequence_find(s->queue, id) : NULL;
    struct core_sequence *own = q ? q->owner : NULL;
    if (!own || own->ticket != ev->u.kv_imported.ticket || !own->awaits_kv)
        return;
    if (ev->u.kv_imported.status < 0) {
        core_sequence_fail(c, s, id, ev->u.kv_imported.status,
                           e ? e->text : "the stage could not take keys and values");
        return;
    }
    own->kv_pending -= own->kv_pending > 0;
    if (ev->u.kv_imported.awaited < own->kv_left) { /* what comes again is no progress */
        own->kv_left = ev->u.kv_imported.awaited;
        own->kv_ns = c->now_ns;
    }
    if (ev->u.kv_imported.awaited)
        return;
    core_kv_received(c, s, own);
    queue_sequence_ready(s->queue, id);
}

/* ---- time ---- */

/* When a sequence has awaited its keys and values for too long; of one whose pieces wait for the
 * batch that its executor is at, only after that. */
static uint64_t awaiting_deadline_ns(const struct agent_core *c, const struct core_stage *s,
                                     const struct core_sequence *own)
{
    const struct core_device *device = core_device_of(c, s);
    uint64_t from = own->kv_pending && device->done_ns > own->kv_ns ? device->done_ns : own->kv_ns;
    return own->kv_pending && device->n_running ? UINT64_MAX
                                                : from + core_scaled_ns(c, AGENT_KV_LIMIT_MS);
}

/* The next sequence of a stage that has awaited its keys and values for too long; NULL: none. */
static struct core_sequence *overdue_find(const struct agent_core *c, const struct core_stage *s,
                                          uint64_t now_ns, uint64_t *earliest_ns)
{
    struct queue_sequence *q;
    for (size_t i = 0; s->queue && (q = queue_sequence_at(s->queue, i)) != NULL; i++) {
        struct core_sequence *own = q->owner;
        uint64_t at = own->awaits_kv ? awaiting_deadline_ns(c, s, own) : UINT64_MAX;
        if (at <= now_ns)
            return own;
        *earliest_ns = at < *earliest_ns ? at : *earliest_ns;
    }
    return NULL;
}

void core_imports_tick(struct agent_core *c, uint64_t now_ns)
{
    uint64_t earliest = UINT64_MAX;
    struct core_sequence *own;
    for (size_t i = 0; c->n_kv_awaiting && i < c->n_stages; i++)
        while ((own = overdue_find(c, c->stages[i], now_ns, &earliest)) != NULL)
            core_sequence_fail(
                c, c->stages[i], own->open.sequence, HP_ETIMEOUT,
                "the keys and values that the sequence begins with did not all come");
}

uint64_t core_imports_deadline(const struct agent_core *c)
{
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; c->n_kv_awaiting && i < c->n_stages; i++)
        overdue_find(c, c->stages[i], 0, &at);
    return at;
}
