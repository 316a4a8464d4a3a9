/* Owns the sequences that are open in a slot of the executor, and their samplers. */
#include <stdlib.h>

#include "agent/executor_int.h"
#include "common/log.h"
#include "common/vector.h"

static int sampler_keep(struct held_slot *h, uint64_t sequence, struct sampler *sampler,
                        struct err *e)
{
    struct own_sampler own = {sequence, sampler};
    return vector_push(h->samplers, h->n_samplers, h->sampler_capacity, own)
               ? 0
               : err_set(e, HP_ENOMEM, "no memory for a sampler");
}

/* Only what its grammar allows is picked, where it has one. */
static int sampler_bind(struct held_slot *h, struct sampler *sampler, struct err *e)
{
    struct pack_span grammar = sampler_grammar(sampler);
    struct automaton *a = NULL;
    if (!grammar.size)
        return 0;
    if (!h->grammars)
        h->grammars = grammar_shelf_create(h->model ? model_path(h->model) : NULL, h->vocabulary);
    int rc = h->grammars ? grammar_shelf_find(h->grammars, grammar, &a, e)
                         : err_no_memory(e, "grammars");
    return rc < 0 ? rc : sampler_constrain(sampler, a, e);
}

static int sequence_open(struct slot *s, const struct executor_opening *o, struct err *e)
{
    uint32_t begun = o->shared ? o->shared : o->length;
    int rc = s->table->state_open(s, o->sequence, o->kv_tokens,
                                  o->reserved ? o->reserved : o->kv_tokens, begun, o->share, e);
    if (rc < 0 || begun == o->length)
        return rc;
    rc = s->table->state_await(s, o->sequence, o->length, e);
    if (rc < 0)
        s->table->state_close(s, o->sequence);
    return rc;
}

void executor_sequence_begin(struct executor *x, const struct order *o)
{
    struct held_slot *h = executor_slot_find(x, o->u.sequence.slot);
    struct sampler *sampler = o->u.sequence.sampler;
    struct err e = {0};
    int rc = h ? 0 : err_set(&e, HP_ENOENT, "the stage is not loaded");
    if (rc == 0 && sampler)
        rc = sampler_bind(h, sampler, &e);
    if (rc == 0)
        rc = sequence_open(h->held, &o->u.sequence, &e);
    if (rc == 0 && sampler) {
        rc = sampler_keep(h, o->u.sequence.sequence, sampler, &e);
        x->looks_ahead = x->looks_ahead || (rc == 0 && h->grammars);
        if (rc < 0)
            h->held->table->state_close(h->held, o->u.sequence.sequence);
    }
    if (rc < 0)
        sampler_destroy(&sampler);
    executor_tell(
        x,
        &(struct executor_report){
            .kind = EXECUTOR_OPENED,
            .slot = o->u.sequence.slot,
            .ticket = o->u.sequence.ticket,
            .sequence = o->u.sequence.sequence,
            .status = rc,
            .awaited = rc < 0 ? 0 : h->held->table->state_awaited(h->held, o->u.sequence.sequence),
            .error = &e});
}

void executor_sequence_more(struct executor *x, const struct executor_opening *o)
{
    struct held_slot *h = executor_slot_find(x, o->slot);
    struct err e = {0};
    if (h && h->held->table->state_reserve(h->held, o->sequence, o->reserved, &e) < 0)
        log_warn_limited("agent", "sequence_not_grown", "sequence=%llu why=\"%s\"",
                         (unsigned long long)o->sequence, e.text);
}

void executor_sequence_end(struct executor *x, const struct executor_opening *o)
{
    struct held_slot *h = executor_slot_find(x, o->slot);
    if (!h)
        return;
    if (executor_batches_have(x, o->slot, o->sequence))
        executor_batches_settle(x); /* they still sample for it */
    if (o->length)
        h->held->table->state_keep(h->held, o->sequence, o->length);
    else
        h->held->table->state_close(h->held, o->sequence);
    struct own_sampler *s = executor_sampler_find(h, o->sequence);
    if (!s)
        return;
    sampler_destroy(&s->sampler);
    *s = h->samplers[--h->n_samplers];
}
