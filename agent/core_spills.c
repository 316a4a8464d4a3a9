/* Owns what this agent has spilled of chains of tokens, as the coordinator sees it. */
#include "agent/core_spills.h"

#include <string.h>

#include "agent/core_out.h"

/* Of what a stage computes: what is spilled under another identity is none of its own. */
static struct digest stage_identity(const struct core_stage *s)
{
    const struct message_stage_prepare *p = &s->prepare;
    enum kv_format kv = KV_F16;
    bool f32 = strcmp(p->compute, "f32") == 0;
    uint32_t words[] = {f32,
                        kv_format_of_word(p->kv, f32, &kv) ? (uint32_t)kv : UINT32_MAX,
                        (uint32_t)s->wire,
                        (uint32_t)p->first_layer,
                        (uint32_t)p->end_layer,
                        (uint32_t)p->expert_groups};
    size_t used = sizeof words - (p->expert_groups > 1 ? 0 : sizeof *words);
    uint8_t all[DIGEST_BYTES + sizeof words] = {0};
    if (p->model.size == DIGEST_BYTES)
        memcpy(all, p->model.data, DIGEST_BYTES);
    memcpy(all + DIGEST_BYTES, words, used);
    return digest_of(all, DIGEST_BYTES + used);
}

static struct agent_action *spill_act(struct agent_core *c, enum agent_action_kind kind,
                                      const struct core_stage *s)
{
    struct agent_action *a = core_act(c, kind);
    if (!a)
        return NULL;
    a->u.spill.slot = s->slot;
    a->u.spill.identity = stage_identity(s);
    return a;
}

void core_spills_begin(struct agent_core *c, const struct core_stage *s)
{
    if (c->config->spills)
        spill_act(c, AGENT_DO_SPILLS_TELL, s);
}

void core_spills_told(struct agent_core *c, const struct agent_event *ev)
{
    const struct core_stage *s = core_stage_of_slot(c, ev->u.spills.slot);
    struct message *m = s && s->queue ? core_send(c, MESSAGE_SPILLS) : NULL;
    if (!m)
        return;
    m->u.spills = ev->u.spills.told;
    m->u.spills.deployment = s->prepare.deployment;
    m->u.spills.generation = s->prepare.generation;
    m->u.spills.stage = s->prepare.stage;
}

/* Whether its first pages have been computed, or will have been by the batches handed out. */
static bool sequence_has(const struct core_stage *s, uint64_t sequence, size_t tokens)
{
    const struct queue_sequence *q = queue_sequence_find(s->queue, sequence);
    if (q)
        return q->length >= tokens && !((struct core_sequence *)q->owner)->awaits_kv;
    for (size_t i = 0; i < s->n_kept; i++)
        if (s->kept[i] == sequence)
            return true; /* the executor knows how much is kept */
    return false;
}

void core_sequence_spill(struct agent_core *c, struct message_ref *m)
{
    const struct message_sequence_spill *o = &m->message.u.sequence_spill;
    struct core_stage *s = core_stage_ordered(c, o->deployment, o->generation, o->stage);
    size_t n = o->pages.size / DIGEST_BYTES;
    if (!c->config->spills || !s || !s->queue || !n || o->pages.size % DIGEST_BYTES ||
        !sequence_has(s, o->sequence, n * KV_PAGE_TOKENS))
        return;
    struct agent_action *a = spill_act(c, AGENT_DO_SPILL, s);
    if (!a)
        return;
    a->u.spill.sequence = o->sequence;
    a->u.spill.pages = o->pages;
    a->u.spill.n_pages = (uint32_t)n;
}

void core_spill_back(struct agent_core *c, const struct core_stage *s,
                     const struct core_sequence *own)
{
    const struct message_sequence_open *o = &own->open;
    struct agent_action *a = o->spilled.size ? spill_act(c, AGENT_DO_UNSPILL, s) : NULL;
    if (!a)
        return;
    a->u.spill.ticket = own->ticket;
    a->u.spill.sequence = o->sequence;
    a->u.spill.pages = o->spilled;
    a->u.spill.n_pages = (uint32_t)(o->length / KV_PAGE_TOKENS);
    a->u.spill.kept = (uint32_t)(o->shared / KV_PAGE_TOKENS);
}
