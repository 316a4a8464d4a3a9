/* Open sequences, by id, and what was closed before it was opened. */
#include <stdlib.h>

#include "agent/engine/queue_int.h"

size_t queue_sequence_place(const struct queue *q, uint64_t id)
{
    size_t low = 0, high = q->n_sequences;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (q->sequences[mid]->id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct queue_sequence *queue_sequence_find(const struct queue *q, uint64_t id)
{
    size_t i = queue_sequence_place(q, id);
    return i < q->n_sequences && q->sequences[i]->id == id ? q->sequences[i] : NULL;
}

struct queue_sequence *queue_sequence_at(const struct queue *q, size_t i)
{
    return i < q->n_sequences ? q->sequences[i] : NULL;
}

void queue_numbers_begin(struct queue *q, uint64_t highest)
{
    q->highest = highest > q->highest ? highest : q->highest;
    q->some_dead = true;
}

bool queue_closed_early(const struct queue *q, uint64_t id)
{
    for (size_t i = 0; i < QUEUE_EARLY_CLOSES; i++)
        if (q->early[i] == id)
            return true;
    return false;
}

uint32_t queue_sequence_room(const struct queue_sequence *s, uint32_t position)
{
    return !s->reserved ? UINT32_MAX : position < s->reserved ? s->reserved - position : 0;
}

static int prompt_check(const struct queue *q, const struct queue_sequence *s, struct err *e)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_slices; i++) {
        if (!s->slices[i])
            return err_set(e, HP_EINVAL, "slice %u of the prompt is empty", i);
        sum += s->slices[i];
    }
    if (q->config.first &&
        (s->n_prompt <= s->length || (s->n_slices && sum != s->n_prompt - s->length)))
        return err_set(e, HP_EINVAL, "a prompt of %u tokens, after %u, in slices of %llu",
                       s->n_prompt, s->length, (unsigned long long)sum);
    return 0;
}

int queue_sequence_open(struct queue *q, const struct queue_sequence *s, struct err *e)
{
    if (queue_sequence_find(q, s->id))
        return err_set(e, HP_EEXIST, "sequence %llu is open already", (unsigned long long)s->id);
    if (queue_closed_early(q, s->id)) {
        q->highest = s->id > q->highest ? s->id : q->highest;
        q->some_dead = true;
        return err_set(e, HP_ECANCELED, "sequence %llu was closed", (unsigned long long)s->id);
    }
    if (s->id <= q->highest)
        return err_set(e, HP_ESTALE,
                       "sequence %llu: %llu was opened before, and numbers rise: has the "
                       "coordinator an older state than its agents?",
                       (unsigned long long)s->id, (unsigned long long)q->highest);
    int rc = prompt_check(q, s, e);
    if (rc < 0)
        return rc;
    if (q->n_sequences == q->config.max_sequences)
        return err_set(e, HP_EBUSY, "%u sequences are open, the most that this stage was made for",
                       q->config.max_sequences);
    struct queue_sequence *own = malloc(sizeof *own);
    if (!own)
        return err_set(e, HP_ENOMEM, "no memory for a sequence");
    *own = *s;
    own->ready = own->has_token = own->awaiting = own->finished = false;
    own->next_slice = own->slice_left = own->n_drafts = 0;
    own->certain = own->length;
    /* Above all others: numbers rise. */
    q->sequences[q->n_sequences++] = own;
    q->highest = s->id;
    return 0;
}

void queue_sequence_ready(struct queue *q, uint64_t id)
{
    struct queue_sequence *s = queue_sequence_find(q, id);
    if (s)
        s->ready = true;
}

/* The last token of a prompt is followed by none of it. */
static void run_score(const struct queue *q, const struct queue_sequence *s, struct batch_run *run)
{
    uint32_t end = run->first_position + run->n_tokens;
    uint32_t scored = !q->config.last || !s->scored_width || !s->n_prompt ? 0 : s->n_prompt - 1;
    end = end < scored ? end : scored;
    run->n_scored = end > run->first_position ? end - run->first_position : 0;
    run->scored_width = run->n_scored ? s->scored_width : 0;
    run->said_width = run->sample ? s->said_width : 0;
}

void queue_run_append(const struct queue *q, struct batch *b, const struct batch_run *run,
                      uint32_t row)
{
    const struct queue_sequence *s = queue_sequence_find(q, run->sequence);
    struct batch_run own = *run;
    own.row = row;
    own.sample = q->config.last && run->n_logits && !s->all_logits;
    run_score(q, s, &own);
    batch_append(b, &own);
}
