/* Owns guesses of the next tokens on the last stage: who gets some, how they went, what they cost.
 */
#include "agent/core_drafts.h"

void core_drafts_begin(const struct core_stage *s, struct core_sequence *own)
{
    const struct message_sequence_open *o = &own->open;
    if (core_stage_is_last(s) && o->speculate != SPECULATE_OFF && !o->all_logits && o->prompt.count)
        own->drafts = drafts_create(o->prompt.items, o->prompt.count, o->kv_tokens);
}

/* The guesses that the first stage was told of last; one that it made up is none. */
static void run_fill(const struct core_stage *s, const struct batch_run *run, uint32_t *ids)
{
    const struct queue_sequence *q = queue_sequence_find(s->queue, run->sequence);
    const struct core_sequence *own = q ? q->owner : NULL;
    uint32_t n = 0;
    const uint32_t *made = own && own->drafts ? drafts_made(own->drafts, &n) : NULL;
    for (uint32_t k = 0; k < run->n_drafts; k++)
        ids[1 + k] = k < n ? made[k] : UINT32_MAX;
}

void core_drafts_order(const struct core_stage *s, struct batch *b)
{
    uint32_t at = 0, n = 0;
    for (uint32_t i = 0; i < b->n_runs; i++)
        n += b->runs[i].n_drafts;
    if (!n || !core_stage_is_last(s) || core_stage_is_first(s))
        return;
    for (uint32_t i = 0; i < b->n_runs; at += b->runs[i++].n_tokens)
        if (b->runs[i].n_drafts)
            run_fill(s, &b->runs[i], b->ids + at);
}

void core_drafts_ran(struct agent_core *c, struct core_stage *s, struct core_sequence *own,
                     const struct batch_run *run, const uint32_t *ids, uint32_t right)
{
    uint64_t now = env_now_ns(c->env);
    if (!own->drafts)
        return;
    for (uint32_t k = 0; k <= right; k++)
        drafts_token(own->drafts, ids[k]);
    if (run->n_drafts)
        drafts_judge(own->drafts, run->n_drafts, right);
    if (own->said_ns)
        draft_costs_add(&s->draft_costs, run->n_drafts, (double)(now - own->said_ns) * 1e-9);
    own->said_ns = now;
}

uint32_t core_drafts_say(const struct core_stage *s, struct core_sequence *own, uint32_t room,
                         struct frame_token *rows)
{
    bool always = own->open.speculate == SPECULATE_LOOKUP;
    uint64_t left = own->open.max_tokens - own->sampled; /* a step gives one more than it guesses */
    const uint32_t *made;
    if (!own->drafts)
        return 0;
    if (left < 2 || (!always && queue_view(s->queue).sequences > s->prepare.n_stages))
        left = 1;
    uint32_t most = left > BATCH_MAX_DRAFTS ? BATCH_MAX_DRAFTS : (uint32_t)left - 1;
    most = most < room ? most : room;
    uint32_t n = drafts_make(own->drafts, always ? NULL : &s->draft_costs, most, &made);
    for (uint32_t k = 0; k < n; k++)
        rows[k] = (struct frame_token){
            .sequence = own->open.sequence, .token = made[k], .kind = FRAME_TOKEN_DRAFT};
    return n;
}
