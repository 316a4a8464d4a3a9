/* Owns the record of how a prompt went through a stage: when the input of each slice was there,
 * when it ran. Said when the prompt's last token has run, and before that where it takes long. So
 * are the first steps of the answer, when there are CORE_DECODE_STEPS of them, or the answer ends.
 */
#include "agent/core_prefill.h"

#include <stdlib.h>
#include <string.h>

#include "agent/core_out.h"
#include "common/vector.h"

static struct core_slice *slice_find(const struct core_sequence *own, uint32_t first_position)
{
    for (size_t i = own->n_slices; i-- > 0;)
        if (own->slices[i].told.first_position == first_position)
            return &own->slices[i];
    return NULL;
}

/* Whether a run is of the prompt while that is noted, or of the steps that follow. */
static bool run_is_noted(const struct core_sequence *own, const struct batch_run *run)
{
    bool of_prompt = run->first_position < own->open.prompt_tokens;
    return of_prompt ? !own->prefill_told : own->prefill_told && !own->decode_told;
}

/* NULL when there is no need for it, or no room. */
static struct core_slice *slice_add(struct core_sequence *own, const struct batch_run *run)
{
    if (!run_is_noted(own, run))
        return NULL;
    struct core_slice s = {
        .told = {.first_position = run->first_position, .tokens = run->n_tokens}};
    if (own->prefill_told)
        s.told.arrived_ns = own->returned_ns;
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
    s->ready_ns = own->prefill_told ? 0 : ready_ns;
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

/* What was noted and has run, in the order of positions, until this event is over. What came and
 * did not run, since the answer ended, or did not yet, is left out. */
static struct pack_list slices_say(struct agent_core *c, const struct core_sequence *own)
{
    struct message_prefill_slice *said =
        own->n_slices ? arena_alloc(&c->scratch, own->n_slices, sizeof *said) : NULL;
    size_t n = 0;
    for (size_t i = 0; said && i < own->n_slices; i++)
        if (own->slices[i].told.end_ns)
            said[n++] = own->slices[i].told;
    if (said) /* one that ran at once is noted behind one that came meanwhile */
        qsort(said, n, sizeof *said, by_position);
    return (struct pack_list){said, n};
}

/* The same; it is forgotten. */
static struct pack_list slices_take(struct agent_core *c, struct core_sequence *own)
{
    struct pack_list said = slices_say(c, own);
    free(own->slices);
    own->slices = NULL;
    own->n_slices = own->slice_capacity = 0;
    return said;
}

static void prefill_send(struct agent_core *c, const struct core_stage *s,
                         const struct core_sequence *own, struct pack_list slices, bool part)
{
    struct message *m = slices.count ? core_send(c, MESSAGE_PREFILL) : NULL;
    if (m)
        m->u.prefill = (struct message_prefill){.deployment = s->prepare.deployment,
                                                .generation = s->prepare.generation,
                                                .sequence = own->open.sequence,
                                                .stage = s->prepare.stage,
                                                .clock_ns = env_now_ns(c->env),
                                                .slices = slices,
                                                .loading = own->awaited_weights,
                                                .part = part};
}

void core_decode_ended(struct agent_core *c, const struct core_stage *s, struct core_sequence *own)
{
    if (!own->prefill_told || own->decode_told)
        return;
    struct pack_list steps = slices_take(c, own);
    struct message *m = steps.count ? core_send(c, MESSAGE_DECODE) : NULL;
    own->decode_told = true;
    if (m)
        m->u.decode = (struct message_decode){s->prepare.deployment, s->prepare.generation,
                                              own->open.sequence,    s->prepare.stage,
                                              env_now_ns(c->env),    steps};
}

/* After another slice of the prompt. */
static void prompt_told(struct agent_core *c, const struct core_stage *s, struct core_sequence *own,
                        const struct batch_run *run)
{
    uint64_t due = own->prefill_due_ns ? own->prefill_due_ns : CORE_PREFILL_LONG_NS;
    if ((uint64_t)run->first_position + run->n_tokens >= own->open.prompt_tokens) {
        own->prefill_told = true;
        prefill_send(c, s, own, slices_take(c, own), false);
    } else if (own->prefill_ran_ns >= due) {
        own->prefill_due_ns = 2 * own->prefill_ran_ns;
        prefill_send(c, s, own, slices_say(c, own), true);
    }
}

static void run_told(struct agent_core *c, const struct core_stage *s, struct core_sequence *own,
                     const struct batch_run *run)
{
    if (!own->prefill_told)
        prompt_told(c, s, own, run);
    else if (own->n_slices >= CORE_DECODE_STEPS)
        core_decode_ended(c, s, own);
}

void core_prefill_ran(struct agent_core *c, struct core_stage *s, const struct batch *b,
                      uint64_t start_ns, uint64_t end_ns)
{
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct batch_run *run = &b->runs[i];
        struct queue_sequence *q = queue_sequence_find(s->queue, run->sequence);
        struct core_sequence *own = q ? q->owner : NULL;
        if (!own || !run_is_noted(own, run))
            continue;
        struct core_slice *slice = slice_find(own, run->first_position);
        slice = slice ? slice : slice_add(own, run);
        own->awaited_weights |= !own->prefill_told && start_ns < s->arrived_ns;
        if (slice) {
            slice->told.start_ns = start_ns;
            slice->told.end_ns = end_ns;
            slice->told.runs = b->n_runs;
            own->prefill_ran_ns += (end_ns - start_ns) / b->n_runs;
        }
        run_told(c, s, own, run);
    }
}
