/* What a device has to know to pick as sampler_pick would. */
#include <stdlib.h>

#include "agent/engine/sampler_int.h"
#include "agent/engine/sampler_select.h"

/* A device changes all logits of a list at once. */
static bool changes_repeat(const struct sampling_params *p)
{
    const struct sampling_bias *bias = p->bias.items;
    for (size_t i = 0; i < p->bias.count; i++)
        for (size_t k = 0; k < i; k++)
            if (bias[i].token == bias[k].token)
                return true;
    for (size_t i = 0; i < p->late_ids.count; i++)
        for (size_t k = 0; k < i; k++)
            if (p->late_ids.items[i] == p->late_ids.items[k])
                return true;
    return false;
}

static bool changes_reserve(struct sampler *s, size_t n)
{
    if (n <= s->change_room)
        return true;
    size_t room = n * 2;
    struct sample_change *grown = realloc(s->changes, room * sizeof *grown);
    if (!grown)
        return false;
    s->changes = grown;
    s->change_room = room;
    return true;
}

/* Of the prompt's tokens only what divides them changes anything. */
static uint32_t seen_write(const struct sampler *s, struct sample_change *to)
{
    const struct sampling_params *p = &s->params;
    uint32_t n = 0;
    for (size_t i = 0; i < s->n_seen; i++) {
        uint32_t token = s->seen[i], times = s->times[token];
        if (times || (p->repetition_penalty != 1 && sampler_penalises(s, token)))
            to[n++] = (struct sample_change){
                token, times ? (float)(p->presence_penalty + p->frequency_penalty * times) : 0};
    }
    return n;
}

static void changes_write(struct sampler *s, struct sample_ask *out)
{
    const struct sampling_params *p = &s->params;
    const struct sampling_bias *bias = p->bias.items;
    struct sample_change *to = s->changes;
    out->changes = to;
    out->n_seen = seen_write(s, to);
    to += out->n_seen;
    for (size_t i = 0; i < p->bias.count; i++)
        to[out->n_added++] = (struct sample_change){(uint32_t)bias[i].token, (float)bias[i].bias};
    to += out->n_added;
    for (size_t i = 0; s->n_picks < p->min_tokens && i < p->late_ids.count; i++)
        to[out->n_ruled_out++] = (struct sample_change){p->late_ids.items[i], 0};
}

bool sampler_ask(struct sampler *s, struct sample_ask *out)
{
    const struct sampling_params *p = &s->params;
    bool selects = p->temperature > 0 && p->top_p >= 1 && p->top_k > 0;
    *out = (struct sample_ask){.wanted = true,
                               .temperature = p->temperature,
                               .top_p = p->top_p,
                               .min_p = p->min_p,
                               .chance = sampler_chance(s),
                               .repetition = (float)p->repetition_penalty,
                               .top_k = p->top_k < UINT32_MAX ? (uint32_t)p->top_k : UINT32_MAX};
    if (s->matcher || p->grammar.size || p->steps || (selects && p->top_k > SAMPLER_SELECT_FEW))
        return false;
    if (!s->adjusts)
        return true;
    if (changes_repeat(p) || !changes_reserve(s, s->n_seen + p->bias.count + p->late_ids.count))
        return false;
    changes_write(s, out);
    return true;
}
