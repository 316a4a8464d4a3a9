/* Owns the record of how a prompt went through a stage: when the input of each slice was there,
 * when it ran. Said once, when the prompt's last token has run. */
#include <stdlib.h>
#include <string.h>

#include "agent/core_int.h"
#include "common/vector.h"

static struct core_slice *slice_find(const struct core_sequence *own, uint32_t first_position)
{
    for (size_t i = own->n_slices; i-- > 0;)
        if (own->slices[i].told.first_position == first_position)
            return &own->slices[i];
    return NULL;
}

/* NULL when there is no need for it, or no room. */
static struct core_slice *slice_add(struct core_sequence *own, const struct batch_run *run)
{
    if (run->first_position >= own->open.prompt_tokens)
        return NULL;
    struct core_slice s = {
        .told = {.first_position = run->first_position, .tokens = run->n_tokens}};
    bool added = own->n_slices < CORE_PREFILL_SLICES &&
                 vector_push(own->slices, own->n_slices, own->slice_capacity, s);
    return added ? &own->slices[own->n_slices - 1] : NULL;
}

void core_prefill_arrived(struct core_sequence *own, const struct batch_run *run, uint64_t ready_ns,
                          uint64_t now_ns)
{
    struct core_slice *s = slice_find(own, run->first_position) ? NULL : slice_add(own, run);
    if (!s)
        return;
    s->told.arrived_ns = now_ns;
    s->ready_ns = ready_ns;
}

uint64_t core_prefill_ready_ns(const struct core_stage *s, const struct batch *b)
{
    uint64_t ready = 0;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct queue_sequence *q = queue_sequence_find(s->queue, b->runs[i].sequence);
        const struct core_slice *slice = q ? slice_find(q->owner, b->runs[i].first_position) : NULL;
        if (slice && slice->ready_ns > ready)
            ready = slice->ready_ns;
    }
    return ready;
}

static int by_position(const void *a, const void *b)
{
    const struct message_prefill_slice *x = a, *y = b;
    return (x->first_position > y->first_position) - (x->first_position < y->first_position);
}

static void prefill_send(struct agent_core *c, const struct core_stage *s,
                         struct core_sequence *own)
{
    struct message_prefill_slice *copy =
        own->n_slices ? arena_alloc(&c->scratch, own->n_slices, sizeof *copy) : NULL;
    for (size_t i = 0; copy && i < own->n_slices; i++)
        copy[i] = own->slices[i].told;
    if (copy) /* one that ran at once is noted behind one that came meanwhile */
        qsort(copy, own->n_slices, sizeof *copy, by_position);
    struct message *m = copy ? core_send(c, MESSAGE_PREFILL) : NULL;
    if (m)
        m->u.prefill = (struct message_prefill){s->prepare.deployment, s->prepare.generation,
                                                own->open.sequence,    s->prepare.stage,
                                                env_now_ns(c->env),    {copy, own->n_slices}};
    free(own->slices);
    own->slices = NULL;
    own->n_slices = own->slice_capacity = 0;
}

void core_prefill_ran(struct agent_core *c, struct core_stage *s, const struct batch *b,
                      uint64_t start_ns, uint64_t end_ns)
{
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct batch_run *run = &b->runs[i];
        struct queue_sequence *q = queue_sequence_find(s->queue, run->sequence);
        struct core_sequence *own = q ? q->owner : NULL;
        if (!own || run->first_position >= own->open.prompt_tokens)
            continue;
        struct core_slice *slice = slice_find(own, run->first_position);
        slice = slice ? slice : slice_add(own, run);
        if (slice) {
            slice->told.start_ns = start_ns;
            slice->told.end_ns = end_ns;
            slice->told.runs = b->n_runs;
        }
        if ((uint64_t)run->first_position + run->n_tokens >= own->open.prompt_tokens)
            prefill_send(c, s, own);
    }
}
