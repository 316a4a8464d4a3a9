/* Owns what the last stage makes of a batch: tokens for the coordinator and the first stage, logits
 * for who asked. */
#include <stdlib.h>

#include "agent/core_int.h"

static bool tokens_reserve(struct agent_core *c, uint32_t n)
{
    if (n <= c->token_capacity)
        return true;
    struct frame_token *t = realloc(c->tokens, n * sizeof *t);
    if (!t)
        return false;
    c->tokens = t;
    uint32_t *told = realloc(c->told, n * sizeof *told);
    if (!told)
        return false;
    c->told = told;
    c->token_capacity = n;
    return true;
}

static const char *token_finish(const struct core_sequence *own, uint32_t token)
{
    for (size_t i = 0; i < own->open.end_ids.count; i++)
        if (own->open.end_ids.items[i] == token)
            return "stop";
    return own->sampled >= own->open.max_tokens ? "length" : "";
}

static void tokens_send(struct agent_core *c, struct core_sequence *own, const uint32_t *id,
                        const char *finish)
{
    struct message *m = core_send(c, MESSAGE_TOKENS);
    uint64_t now = env_now_ns(c->env);
    own->first_token_ns = own->first_token_ns ? own->first_token_ns : now;
    own->ended = finish[0] != '\0';
    if (m)
        m->u.tokens = (struct message_tokens){
            .deployment = own->open.deployment,
            .generation = own->open.generation,
            .sequence = own->open.sequence,
            .first = id ? own->sampled - 1 : 0,
            .ids = {id, id != NULL},
            .finish = finish,
            .prefill_s = (double)(own->first_token_ns - own->opened_ns) * 1e-9,
            .decode_s = (double)(now - own->first_token_ns) * 1e-9};
}

static void logits_send(struct agent_core *c, struct core_stage *s, struct core_sequence *own,
                        const struct batch_run *run, const float *rows)
{
    uint32_t step = AGENT_LOGITS_MESSAGE_BYTES / (uint32_t)sizeof(float) / s->vocabulary;
    step = step ? step : 1;
    uint32_t first = run->first_position + run->n_tokens - run->n_logits;
    for (uint32_t i = 0; i < run->n_logits; i += step) {
        uint32_t n = run->n_logits - i < step ? run->n_logits - i : step;
        struct message *m = core_send(c, MESSAGE_LOGITS);
        if (m)
            m->u.logits =
                (struct message_logits){own->open.deployment,
                                        own->open.generation,
                                        own->open.sequence,
                                        first + i,
                                        n,
                                        {(const uint8_t *)(rows + (size_t)i * s->vocabulary),
                                         (size_t)n * s->vocabulary * sizeof(float)}};
    }
    if (own->open.prompt.count && run->first_position + run->n_tokens == own->open.prompt.count)
        tokens_send(c, own, NULL, "length");
}

void core_tokens_picked(struct agent_core *c, struct core_stage *s, const struct batch *b,
                        const struct agent_event *ev)
{
    uint32_t n = 0;
    const float *rows = ev->u.batch_done.logits;
    if (!tokens_reserve(c, b->n_runs)) {
        core_batch_fail(c, s, b, HP_ENOMEM, "no memory for tokens");
        core_tokens_post(c, s, b->number, 0);
        return;
    }
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct batch_run *run = &b->runs[i];
        struct queue_sequence *q = queue_sequence_find(s->queue, run->sequence);
        struct core_sequence *own = q ? q->owner : NULL;
        if (own && own->open.all_logits && run->n_logits && rows)
            logits_send(c, s, own, run, rows);
        if (rows)
            rows += (size_t)run->n_logits * s->vocabulary;
        if (!own || own->ended || !b->runs[i].sample)
            continue;
        own->sampled++;
        c->told[n] = ev->u.batch_done.picked[i];
        const char *finish = token_finish(own, c->told[n]);
        tokens_send(c, own, &c->told[n], finish);
        c->tokens[n] = (struct frame_token){run->sequence, c->told[n], finish[0] != '\0'};
        n++;
    }
    core_tokens_post(c, s, b->number, n);
}
