/* What the executor's device holds: finding a slot, what is free beside them, and their end. */
#include <stdlib.h>

#include "agent/executor_int.h"
#include "common/vector.h"

void executor_tell(struct executor *x, const struct executor_report *r)
{
    x->config.report(x->config.ctx, r);
}

uint64_t executor_memory_free(const struct executor *x)
{
    return atomic_load(&((struct executor *)x)->memory_free);
}

/* Of weights that still come. */
static uint64_t slot_missing_bytes(const struct held_slot *h)
{
    return h->held->table->missing_bytes ? h->held->table->missing_bytes(h->held) : 0;
}

void executor_memory_note(struct executor *x)
{
    if (!x->config.paced) {
        uint64_t free_bytes = x->device->backend->memory_free(x->device),
                 held = atomic_load(&x->outputs_bytes) + atomic_load(&x->logits_bytes);
        for (size_t i = 0; i < x->n_slots; i++)
            held += slot_missing_bytes(x->slots[i]);
        atomic_store(&x->memory_free, free_bytes == UINT64_MAX ? free_bytes
                                      : free_bytes > held      ? free_bytes - held
                                                               : 0);
        return;
    }
    double left = paced_memory_bytes(x->config.paced);
    for (size_t i = 0; i < x->n_slots; i++)
        left -= x->slots[i]->paced_bytes;
    atomic_store(&x->memory_free, left > 0 ? (unsigned long long)left : 0);
}

/* ---- slots ---- */

static struct held_slot **slot_place(struct executor *x, uint64_t slot)
{
    for (size_t i = 0; i < x->n_slots; i++)
        if (x->slots[i]->slot == slot)
            return &x->slots[i];
    return NULL;
}

struct held_slot *executor_slot_find(struct executor *x, uint64_t slot)
{
    struct held_slot **place = slot_place(x, slot);
    return place ? *place : NULL;
}

bool executor_waiting_drop(struct executor *x, uint64_t slot, uint64_t sequence)
{
    bool dropped = false;
    for (size_t i = x->n_waiting; i-- > 0;) {
        struct executor_opening *o = &x->waiting[i].u.sequence;
        if (o->slot != slot || (sequence && o->sequence != sequence))
            continue;
        sampler_destroy(&o->sampler);
        vector_remove(x->waiting, x->n_waiting, i);
        dropped = true;
    }
    return dropped;
}

void executor_slot_free(struct executor *x, struct held_slot *h)
{
    if (!h)
        return;
    executor_waiting_drop(x, h->slot, 0);
    if (h->n_samplers)
        look_ahead_stop(x->ahead);
    for (size_t i = 0; i < h->n_samplers; i++)
        sampler_destroy(&h->samplers[i].sampler);
    free(h->samplers);
    grammar_shelf_destroy(&h->grammars);
    if (h->held)
        h->held->table->unload(&h->held);
    if (h->reserve)
        data_reserve_close(&h->reserve);
    executor_direct_close(x, h);
    profile_free(&h->paced_layers);
    atomic_fetch_sub(&x->outputs_bytes, h->counted_bytes);
    if (h->model)
        model_close(&h->model);
    free(h);
}

const struct profile *executor_paced_layers(const struct held_slot *h)
{
    return h->paced_layers.n_layers ? &h->paced_layers : NULL;
}

void executor_slot_drop(struct executor *x, uint64_t slot)
{
    struct held_slot **place = slot_place(x, slot);
    if (!place)
        return;
    executor_slot_free(x, *place);
    *place = x->slots[--x->n_slots];
    executor_memory_note(x);
}
