/* Operators that come again and again, as those of decode steps do, as one launch: a CUDA graph for
 * each key, which is recorded when it comes the second time (the first finds rooms). Where products
 * may go several ways one is recorded for each, the next few times, until the fastest is known
 * (tuning.c). What differs from step to step lies in the device's memory: rows of values where they
 * always are, tables of the batch in slots. */
#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

/* Runs without tiles and rows that are few: beyond that a launch is little of what is done. */
static bool batch_is_small(const struct op_batch *b)
{
    uint32_t rows = 0;
    for (int i = 0; b && i < b->n_runs; i++) {
        if (b->runs[i].n_tokens >= GPU_TILE_LEAST)
            return false;
        rows += b->runs[i].n_tokens;
    }
    return rows <= CUDA_STEP_ROWS;
}

static void steps_drop(struct cuda_stream *s, struct cuda_steps *p, int way)
{
    if (p->kept[way]) {
        cuda_note(s, gpu_stream_wait(s->stream));
        gpu_kept_free(p->kept[way]);
    }
    p->kept[way] = NULL;
}

/* All but those of a way; -1: all. */
static void steps_drop_others(struct cuda_stream *s, struct cuda_steps *p, int way)
{
    for (int i = 0; i < CUDA_WAYS; i++)
        if (i != way)
            steps_drop(s, p, i);
}

static void steps_clear(struct cuda_stream *s, struct cuda_steps *p)
{
    steps_drop_others(s, p, -1);
    cuda_trials_give_up(&p->trials);
}

/* What attention does by, beside the key: steps of one kind are launched as those of another are
 * not. */
static struct cuda_steps steps_kind(uint64_t key, const struct op_batch *b)
{
    struct cuda_steps kind = {.key = key, .alone = true, .brief = true};
    for (int i = 0; b && i < b->n_runs; i++) {
        const struct attention_run *r = &b->runs[i];
        kind.alone = kind.alone && r->n_tokens == 1;
        kind.brief = kind.brief && r->first_position + r->n_tokens <= CUDA_BRIEF_TOKENS;
    }
    return kind;
}

/* Those of the kind; where they come for the first time they take the place of those that came
 * longest ago. */
static struct cuda_steps *steps_find(struct cuda_stream *s, const struct cuda_steps *kind)
{
    struct cuda_steps *oldest = &s->all_steps[0];
    for (int i = 0; i < CUDA_STEPS; i++) {
        struct cuda_steps *p = &s->all_steps[i];
        if (p->turn && p->key == kind->key && p->alone == kind->alone && p->brief == kind->brief)
            return p;
        oldest = p->turn < oldest->turn ? p : oldest;
    }
    steps_clear(s, oldest);
    *oldest = *kind;
    return oldest;
}

static void steps_start(struct cuda_stream *s, struct cuda_steps *p, const struct op_batch *b)
{
    if (p->slots && !cuda_slots_fill(s, p->slots, b))
        return;
    cuda_trial_begin(s, &p->trials);
    cuda_note(s, gpu_kept_start(p->kept[s->way], s->stream));
    cuda_trial_end(s, &p->trials);
}

/* Their tables have room. False: they go on without being kept. */
static bool steps_fit(struct cuda_stream *s, struct cuda_steps *p, const struct op_batch *b)
{
    if (p->slots == 0 || cuda_slots_want(s, p->slots, b))
        return true;
    p->refused = true;
    if (s->failed == GPU_NO_MEMORY)
        s->failed = 0;
    return false;
}

/* Which way they go now. Where that is known the others are not kept any longer. */
static int steps_way(struct cuda_stream *s, struct cuda_steps *p)
{
    bool undecided = !p->trials.decided;
    int way = cuda_trials_way(s, &p->trials);
    if (undecided && p->trials.decided)
        steps_drop_others(s, p, way);
    return way;
}

bool cuda_steps_begin(struct stream *stream, uint64_t key, const struct op_batch *b)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    s->steps = NULL;
    s->way = 0;
    cuda_note(s, gpu_use(s->device->ordinal));
    if (s->failed || !batch_is_small(b))
        return false;
    const struct cuda_steps kind = steps_kind(key, b);
    struct cuda_steps *p = steps_find(s, &kind);
    bool first = p->turn == 0, by_lot = b && b->experts_by_lot;
    p->turn = ++s->turn;
    if (p->refused)
        return false;
    s->steps = p;
    if (first || !steps_fit(s, p, b)) {
        p->by_lot = by_lot;
        return false;
    }
    if (p->moved != s->moved || p->by_lot != by_lot)
        steps_drop_others(s, p, -1);
    p->by_lot = by_lot;
    s->way = steps_way(s, p);
    if (p->kept[s->way]) {
        steps_start(s, p, b);
        s->steps = NULL;
        return true;
    }
    s->keeps = gpu_keep_begin(s->stream) == 0;
    p->refused = !s->keeps;
    return false;
}

/* What could not be recorded is no way, and where it is the first there is none. */
static void steps_refuse(struct cuda_stream *s, struct cuda_steps *p)
{
    p->refused = s->way == 0;
    steps_drop_others(s, p, p->refused ? -1 : 0);
    cuda_trials_give_up(&p->trials);
}

bool cuda_steps_end(struct stream *stream, const struct op_batch *b)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    struct cuda_steps *p = s->steps;
    bool kept = s->keeps;
    s->steps = NULL;
    s->keeps = false;
    if (!kept)
        return true;
    int rc = gpu_keep_end(s->stream, &p->kept[s->way]), failed = s->failed;
    s->failed = 0;
    if (rc || failed) { /* what went wrong shows when they are put on the stream once more */
        steps_refuse(s, p);
        return false;
    }
    p->moved = s->moved;
    if (!p->trials.have_ways)
        cuda_trials_give_up(&p->trials);
    steps_start(s, p, b);
    return true;
}

void cuda_steps_forget(struct cuda_stream *s)
{
    for (int i = 0; i < CUDA_STEPS; i++)
        steps_clear(s, &s->all_steps[i]);
    for (int i = 0; i < CUDA_SLOTS; i++)
        cuda_room_give(s, &s->slots[i].room);
}
