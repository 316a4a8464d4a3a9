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

/* Only what its grammar allows is picked, where it has one; and it knows how tokens read, where its
 * steps compare them. */
static int sampler_bind(struct held_slot *h, struct sampler *sampler, struct err *e)
{
    struct pack_span grammar = sampler_grammar(sampler);
    struct automaton *a = NULL;
    const struct token_tree *texts = NULL;
    int rc = 0;
    if (!grammar.size && !sampler_needs_texts(sampler))
        return 0;
    if (!h->grammars)
        h->grammars =
            grammar_shelf_create(h->model ? model_path(h->model) : NULL, h->vocabulary, NULL, NULL);
    if (!h->grammars)
        return err_no_memory(e, "grammars");
    if (sampler_needs_texts(sampler))
        rc = grammar_shelf_tree(h->grammars, &texts, e);
    sampler_texts_use(sampler, texts);
    if (rc < 0 || !grammar.size)
        return rc;
    rc = grammar_shelf_find(h->grammars, grammar, &a, e);
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

/* What begins with nothing and needs the vocabulary's tree may wait for it: so does no other
 * sequence. */
static bool opening_waits(struct executor *x, const struct held_slot *h, const struct order *o)
{
    const struct executor_opening *s = &o->u.sequence;
    return h && h->grammars && s->sampler && !s->length &&
           (sampler_grammar(s->sampler).size || sampler_needs_texts(s->sampler)) &&
           !grammar_shelf_ready(h->grammars) &&
           vector_push(x->waiting, x->n_waiting, x->waiting_room, *o);
}

void executor_sequence_begin(struct executor *x, const struct order *o)
{
    struct held_slot *h = executor_slot_find(x, o->u.sequence.slot);
    struct sampler *sampler = o->u.sequence.sampler;
    struct err e = {0};
    if (opening_waits(x, h, o))
        return;
    int rc = h ? 0 : err_set(&e, HP_ENOENT, "the stage is not loaded");
    if (rc == 0 && sampler)
        rc = sampler_bind(h, sampler, &e);
    if (rc == 0)
        rc = sequence_open(h->held, &o->u.sequence, &e);
    if (rc == 0 && sampler) {
        rc = sampler_keep(h, o->u.sequence.sequence, sampler, &e);
        if (rc == 0)
            look_ahead_add(x->ahead, sampler);
        else
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

void executor_waiting_begin(struct executor *x)
{
    for (size_t n = x->n_waiting; n > 0; n--) { /* those that still wait go behind the others */
        struct order o = x->waiting[0];
        vector_remove(x->waiting, x->n_waiting, 0);
        executor_sequence_begin(x, &o);
    }
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
    if (!h || executor_waiting_drop(x, o->slot, o->sequence))
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
    look_ahead_stop(x->ahead);
    sampler_destroy(&s->sampler);
    *s = h->samplers[--h->n_samplers];
}
