/* Keys and values of the simulated executor: what a toy layer remembers after each position. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster_int.h"

void sim_kv_order(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    struct sim_order o = {.kind = act->kind};
    if (act->kind == AGENT_DO_KV_IMPORT) {
        o.slot = act->u.kv_import.slot;
        o.ticket = act->u.kv_import.ticket;
        o.sequence = act->u.kv_import.sequence;
        o.kv = act->u.kv_import.range;
        o.buffer = act->u.kv_import.buffer;
    } else {
        o.slot = act->u.kv_export.slot;
        o.ticket = act->u.kv_export.ticket;
        o.sequence = act->u.kv_export.sequence;
        o.kv = act->u.kv_export.range;
        o.header = act->u.kv_export.header;
        snprintf(o.to, sizeof o.to, "%.*s", (int)act->u.kv_export.to.size,
                 (const char *)act->u.kv_export.to.data);
    }
    sim_order_add(s, a, o);
}

static bool piece_fits(const struct sim_sequence *q, const struct kv_range *r)
{
    return q && r->first + r->count <= q->memory.length &&
           r->first_block + r->n_blocks <= TOY_LAYERS;
}

static int piece_take(const struct sim_order *o, struct sim_sequence *q)
{
    const struct kv_range *r = &o->kv;
    size_t at = 0;
    if (!piece_fits(q, r) || !q->came)
        return HP_EINVAL;
    for (uint32_t l = r->first_block; l < r->first_block + r->n_blocks; l++)
        for (uint32_t p = r->first; p < r->first + r->count; p++) {
            uint64_t x = o->buffer->x[at++];
            q->n_awaited -= !q->came[p][l];
            if (!q->came[p][l])
                q->history[p][l] = x;
            q->came[p][l] = true;
        }
    if (!q->n_awaited && q->memory.length)
        memcpy(q->memory.mixed, q->history[q->memory.length - 1], sizeof q->memory.mixed);
    return 0;
}

static void import_done(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    struct sim_sequence *q = sim_sequence_of(a, o->slot, o->sequence);
    struct agent_event ev = {.kind = AGENT_EVENT_KV_IMPORTED};
    struct err e = {0};
    bool late = q && !q->n_awaited; /* it runs already */
    int rc = late ? 0 : piece_take(o, q);
    if (rc < 0)
        err_set(&e, rc, "the simulated stage awaits no such keys and values");
    sim_buffer_release(a, o->buffer);
    ev.u.kv_imported.slot = o->slot;
    ev.u.kv_imported.ticket = o->ticket;
    ev.u.kv_imported.sequence = o->sequence;
    ev.u.kv_imported.status = rc;
    ev.u.kv_imported.error = &e;
    ev.u.kv_imported.awaited = q ? q->n_awaited : 0;
    sim_agent_event(s, a, &ev);
}

static struct sim_buffer *piece_give(struct sim_agent *a, const struct sim_order *o,
                                     const struct sim_sequence *q)
{
    const struct kv_range *r = &o->kv;
    struct sim_buffer *b = sim_buffer_create(a, r->n_blocks * r->count);
    size_t at = 0;
    for (uint32_t l = r->first_block; l < r->first_block + r->n_blocks; l++)
        for (uint32_t p = r->first; p < r->first + r->count; p++)
            b->x[at++] = q->history[p][l];
    return b;
}

static void export_done(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    const struct sim_sequence *q = sim_sequence_of(a, o->slot, o->sequence);
    struct agent_event ev = {.kind = AGENT_EVENT_KV_LEFT};
    struct err e = {0};
    int rc = !o->kv.count || piece_fits(q, &o->kv) ? 0 : HP_EINVAL;
    if (rc == 0 && !sim_kv_post(s, a, o, o->kv.count ? piece_give(a, o, q) : NULL))
        rc = HP_ELINK;
    if (rc < 0)
        err_set(&e, rc, "the simulated stage cannot send keys and values");
    ev.u.kv_left.ticket = o->ticket;
    ev.u.kv_left.status = rc;
    ev.u.kv_left.error = &e;
    sim_agent_event(s, a, &ev);
}

void sim_kv_done(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    if (o->kind == AGENT_DO_KV_IMPORT)
        import_done(s, a, o);
    else
        export_done(s, a, o);
}
