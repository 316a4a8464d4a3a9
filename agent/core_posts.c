/* Owns the frames that leave a stage: batches for the next one, tokens for the first. */
#include "agent/core_posts.h"

#include "agent/core_out.h"
#include "agent/core_sequences.h"

static struct frame_header header_of(const struct agent_core *c, const struct core_stage *s,
                                     enum frame_kind kind, uint32_t batch)
{
    return (struct frame_header){
        .kind = (uint16_t)kind,
        .stage = kind == FRAME_TOKEN ? 0 : (uint16_t)(s->prepare.stage + 1),
        .dtype = (uint16_t)(kind == FRAME_TOKEN ? FRAME_BYTES : s->wire),
        .session = kind == FRAME_TOKEN ? s->first_session : s->next_session,
        .deployment = s->prepare.deployment,
        .generation = (uint32_t)s->prepare.generation,
        .batch = batch,
        .sent_ns = c->due_ns ? c->due_ns : env_now_ns(c->env)};
}

struct frame_header core_activation_header(const struct agent_core *c, const struct core_stage *s,
                                           const struct batch *b)
{
    struct frame_header h = header_of(c, s, FRAME_ACTIVATION, b->number);
    h.n_runs = (uint16_t)b->n_runs;
    h.n_tokens = b->n_tokens;
    h.sequence = b->runs[0].sequence;
    h.first_position = b->runs[0].first_position;
    return h;
}

void core_batch_fail(struct agent_core *c, struct core_stage *s, const struct batch *b, int code,
                     const char *text)
{
    for (uint32_t i = 0; i < b->n_runs; i++)
        if (queue_sequence_find(s->queue, b->runs[i].sequence))
            core_sequence_fail(c, s, b->runs[i].sequence, code, text);
}

void core_tokens_post(struct agent_core *c, struct core_stage *s, uint32_t batch, uint32_t n)
{
    if (core_stage_is_first(s)) {
        queue_returned(s->queue, batch, env_now_ns(c->env));
        for (uint32_t i = 0; i < n; i++)
            queue_token(s->queue, batch, &c->tokens[i]);
        return;
    }
    struct agent_action *a = core_act(c, AGENT_DO_POST);
    for (uint32_t i = 0; !a && i < n; i++)
        if (queue_sequence_find(s->queue, c->tokens[i].sequence))
            core_sequence_fail(c, s, c->tokens[i].sequence, HP_ENOMEM, "no memory to say a token");
    if (!a)
        return;
    a->u.post.slot = s->slot;
    a->u.post.link = AGENT_LINK_FIRST;
    a->u.post.header = header_of(c, s, FRAME_TOKEN, batch);
    a->u.post.header.n_runs = (uint16_t)n;
    a->u.post.header.sequence = n ? c->tokens[0].sequence : 0;
    a->u.post.tokens = c->tokens;
}

void core_batch_post(struct agent_core *c, struct core_stage *s, const struct batch *b,
                     void *output)
{
    struct agent_action *a = core_act(c, AGENT_DO_POST);
    if (!a) {
        core_release(c, output);
        core_batch_fail(c, s, b, HP_ENOMEM, "no memory to hand a batch on");
        return;
    }
    a->u.post.slot = s->slot;
    a->u.post.link = AGENT_LINK_NEXT;
    a->u.post.header =
        output ? core_activation_header(c, s, b) : header_of(c, s, FRAME_ACTIVATION, b->number);
    a->u.post.buffer = output;
    a->u.post.runs = output ? b->runs : NULL;
}

void core_batch_pass_empty(struct agent_core *c, struct core_stage *s, const struct batch *b)
{
    if (core_stage_is_last(s))
        core_tokens_post(c, s, b->number, 0);
    else
        core_batch_post(c, s, b, NULL);
}

void core_batch_drop(struct agent_core *c, struct core_stage *s, const struct batch *b)
{
    core_release(c, b->input);
    if (!b->again)
        core_batch_pass_empty(c, s, b);
}
