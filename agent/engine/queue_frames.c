/* Owns how the stages after the first choose among the frames that have come. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/queue_int.h"
#include "common/vector.h"

enum run_fate { RUN_DUE, RUN_WAITS, RUN_DROPPED, RUN_SEEN };

static enum run_fate run_fate(const struct queue *q, const struct batch_run *r, bool *hopeless)
{
    *hopeless = false;
    const struct queue_sequence *s = queue_sequence_find(q, r->sequence);
    if (!s && (r->sequence <= q->highest || queue_closed_early(q, r->sequence)))
        return RUN_DROPPED;
    if (s && r->first_position < s->certain)
        return RUN_SEEN;
    *hopeless = !s || (s->ready && r->first_position > s->length); /* unless something comes */
    bool may = s && s->ready && r->first_position <= s->length &&
               r->n_tokens <= queue_sequence_room(s, r->first_position);
    *hopeless = *hopeless || (s && s->ready && !may);
    return may ? RUN_DUE : RUN_WAITS;
}

int queue_frame_add(struct queue *q, uint32_t number, const struct batch_run *runs, uint32_t n_runs,
                    uint32_t n_tokens, void *buffer, uint64_t now_ns)
{
    if (n_tokens > q->config.max_batch_tokens)
        return HP_EINVAL;
    if (q->n_frames == q->max_frames)
        return HP_EBUSY;
    struct frame_entry *f = &q->frames[q->n_frames];
    if (!vector_reserve(f->runs, f->run_capacity, n_runs))
        return HP_ENOMEM;
    if (n_runs)
        memcpy(f->runs, runs, n_runs * sizeof *runs);
    f->number = number;
    f->n_runs = n_runs;
    f->n_tokens = n_tokens;
    f->buffer = buffer;
    f->arrived_ns = now_ns;
    q->n_frames++;
    q->some_dead = true;
    return 0;
}

/* A slice as far as turns go: a short one goes with the decode steps; several together count as
 * one. */
static bool frame_is_slice(const struct frame_entry *f)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < f->n_runs; i++)
        tokens += f->runs[i].n_tokens > 1 + f->runs[i].n_drafts ? f->runs[i].n_tokens : 0;
    return tokens > QUEUE_SHORT_TOKENS;
}

static bool frame_guesses(const struct frame_entry *f)
{
    for (uint32_t i = 0; i < f->n_runs; i++)
        if (f->runs[i].n_drafts)
            return true;
    return false;
}

static bool frame_due(const struct queue *q, const struct frame_entry *f)
{
    bool hopeless;
    for (uint32_t i = 0; i < f->n_runs; i++)
        if (run_fate(q, &f->runs[i], &hopeless) == RUN_WAITS)
            return false;
    return true;
}

/* The due frame of the kind that has its turn with the lowest batch number; -1 when none is due. */
static int frame_choose(const struct queue *q)
{
    int best = -1;
    bool best_turn = false;
    for (uint32_t i = 0; i < q->n_frames; i++) {
        const struct frame_entry *f = &q->frames[i];
        if (f->n_tokens > q->most_tokens || !frame_due(q, f))
            continue;
        bool turn = frame_is_slice(f) != q->slice_was_last;
        bool earlier = best >= 0 && (int32_t)(f->number - q->frames[best].number) < 0;
        if (best < 0 || (turn && !best_turn) || (turn == best_turn && earlier)) {
            best = (int)i;
            best_turn = turn;
        }
    }
    return best;
}

static void frame_remove(struct queue *q, uint32_t i)
{
    struct frame_entry gone = q->frames[i];
    q->n_frames--;
    memmove(&q->frames[i], &q->frames[i + 1], (q->n_frames - i) * sizeof gone);
    gone.buffer = NULL;
    q->frames[q->n_frames] = gone; /* its run table is used again */
}

/* Nothing of it is left to run; *again: it came twice. */
static bool frame_dead(const struct queue *q, const struct frame_entry *f, bool *again)
{
    bool hopeless;
    *again = false;
    for (uint32_t i = 0; i < f->n_runs; i++) {
        enum run_fate fate = run_fate(q, &f->runs[i], &hopeless);
        if (fate == RUN_DUE || fate == RUN_WAITS)
            return false;
        *again = *again || fate == RUN_SEEN;
    }
    return true;
}

bool queue_frames_dead(struct queue *q, struct batch *b, uint64_t *dropped)
{
    uint32_t i = 0;
    while (i < q->n_frames && !frame_dead(q, &q->frames[i], &b->again))
        i++;
    if (i == q->n_frames)
        return false;
    b->number = q->frames[i].number;
    b->input = q->frames[i].buffer;
    *dropped += q->frames[i].n_runs;
    frame_remove(q, i);
    return true;
}

bool queue_frames_next(struct queue *q, struct batch *b, uint64_t *dropped)
{
    int i = frame_choose(q);
    if (i < 0)
        return false;
    const struct frame_entry *f = &q->frames[i];
    bool guesses = q->config.last && frame_guesses(f);
    if (!batch_reserve(b, f->n_runs, guesses ? f->n_tokens : 0))
        return false;
    uint32_t row = 0;
    bool hopeless;
    for (uint32_t k = 0; k < f->n_runs; k++) {
        if (run_fate(q, &f->runs[k], &hopeless) == RUN_DUE)
            queue_run_append(q, b, &f->runs[k], row);
        else
            ++*dropped;
        row += f->runs[k].n_tokens;
    }
    if (!b->n_runs)
        frame_dead(q, f, &b->again);
    b->number = f->number;
    b->slice = frame_is_slice(f);
    b->input = f->buffer;
    b->input_runs = f->n_runs;
    b->input_tokens = f->n_tokens;
    frame_remove(q, (uint32_t)i);
    return true;
}

/* ---- what waits too long ---- */

static uint64_t frame_deadline(const struct queue *q, const struct frame_entry *f)
{
    uint64_t from = f->arrived_ns > q->progress_ns ? f->arrived_ns : q->progress_ns;
    return from + q->config.hold_limit_ns;
}

uint64_t queue_deadline_ns(const struct queue *q)
{
    uint64_t at = queue_flights_deadline_ns(q);
    for (uint32_t i = 0; i < q->n_frames; i++) {
        uint64_t d = frame_deadline(q, &q->frames[i]);
        at = d < at ? d : at;
    }
    return at;
}

size_t queue_expire(struct queue *q, uint64_t now_ns, uint64_t *ids, size_t max)
{
    size_t n = 0;
    if (frame_choose(q) >= 0)
        return 0; /* something still moves */
    for (uint32_t i = 0; i < q->n_frames; i++) {
        struct frame_entry *f = &q->frames[i];
        bool hopeless;
        for (uint32_t k = 0; frame_deadline(q, f) <= now_ns && k < f->n_runs && n < max; k++)
            if (run_fate(q, &f->runs[k], &hopeless) == RUN_WAITS && hopeless)
                ids[n++] = f->runs[k].sequence;
    }
    return n;
}
