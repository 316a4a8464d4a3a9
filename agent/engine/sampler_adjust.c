#include "agent/engine/sampler_adjust.h"

#include <math.h>
#include <string.h>

#include "common/vector.h"

static void token_list(struct sampler *s, uint32_t token)
{
    if (s->listed[token])
        return;
    s->listed[token] = 1;
    s->seen[s->n_seen++] = token;
}

/* The last `window` tokens count, of the prompt, too. One that there is no memory for does not. */
static void window_move(struct sampler *s, uint32_t token)
{
    uint64_t window = s->params.penalty_window;
    if (!vector_push(s->recent, s->n_recent, s->recent_room, token))
        return;
    token_list(s, token);
    s->times[token]++;
    if (s->n_recent > window)
        s->times[s->recent[s->n_recent - 1 - window]]--;
}

void sampler_prompt_see(struct sampler *s, const uint32_t *prompt, size_t n)
{
    uint64_t window = s->params.penalty_window;
    for (size_t i = window && n > window ? n - (size_t)window : 0; i < n; i++) {
        if (prompt[i] >= (uint32_t)s->vocabulary)
            continue;
        if (window)
            window_move(s, prompt[i]);
        else
            token_list(s, prompt[i]);
    }
}

void sampler_output_see(struct sampler *s, uint32_t token)
{
    if (token >= (uint32_t)s->vocabulary)
        return;
    if (s->params.penalty_window) {
        window_move(s, token);
        return;
    }
    token_list(s, token);
    s->times[token]++;
}

/* Only what was seen before, or is named, differs from the row. */
void sampler_logits_adjust(struct sampler *s, const float *logits)
{
    const struct sampling_params *p = &s->params;
    memcpy(s->adjusted, logits, (size_t)s->vocabulary * sizeof *logits);
    for (size_t i = 0; i < s->n_seen; i++) {
        uint32_t t = s->seen[i];
        float *logit = &s->adjusted[t];
        if (!sampler_penalises(s, t))
            continue;
        if (p->repetition_penalty != 1)
            *logit = *logit > 0 ? *logit / (float)p->repetition_penalty
                                : *logit * (float)p->repetition_penalty;
        if (s->times[t])
            *logit -= (float)(p->presence_penalty + p->frequency_penalty * s->times[t]);
    }
    const struct sampling_bias *bias = p->bias.items;
    for (size_t i = 0; i < p->bias.count; i++)
        s->adjusted[bias[i].token] += (float)bias[i].bias;
    for (size_t i = 0; s->n_picks < p->min_tokens && i < p->late_ids.count; i++)
        s->adjusted[p->late_ids.items[i]] = -INFINITY;
}
