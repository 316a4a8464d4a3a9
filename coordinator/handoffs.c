#include "coordinator/handoffs.h"

#include <stdlib.h>

#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/stages.h"
#include "transport/stage_state.h"

/* ---- whether ---- */

/* Positions are rotated by what a sequence reserves (docs/engine.md, Rotation): both sides must
 * come to the same. */
static bool rotation_same(const struct deployment *d, const struct sequence *s)
{
    uint32_t from = d->model->facts.long_from;
    return !from || (s->n_prompt > from) == (s->n_prompt + s->max_tokens > from);
}

struct deployment *handoff_reader(struct coord *c, const struct deployment *d,
                                  const struct sequence *s, uint32_t have)
{
    bool text = s->kind == SEQUENCE_REQUEST || s->kind == SEQUENCE_GREEDY;
    size_t n = s->n_prompt - 1;
    if (!deployment_readers(d)[0] || !text || s->embeds || s->slice || s->planned ||
        s->reads_itself || s->resumed || n < have + (size_t)HANDOFF_LEAST_TOKENS ||
        2 * (size_t)have > n)
        return NULL;
    struct deployment *p = deployment_partner(c, d);
    bool able = p && p->state == DEPLOYMENT_SERVING && p->model == d->model && p->model->open &&
                n < p->context && d->model->facts.kv_before;
    return able && rotation_same(d, s) ? p : NULL;
}

/* Parts that an agent sends, or is going to. */
static uint32_t exports_of(const struct coord *c, const struct member *m)
{
    uint32_t n = 0;
    for (size_t i = 0; i < c->n_deployments; i++) {
        const struct deployment *d = c->deployments[i];
        for (const struct sequence *s = d->active; s; s = s->next) {
            const struct handoff *h = s->handoff && s->handoff->from == s ? s->handoff : NULL;
            for (size_t k = 0; h && k < h->n_parts; k++)
                n += !h->parts[k].sent && d->stages[h->parts[k].from_stage].agent == m;
        }
    }
    return n;
}

bool handoff_may_begin(const struct coord *c, const struct deployment *from,
                       const struct deployment *to)
{
    for (int i = 0; i < from->n_stages; i++) {
        uint32_t n = exports_of(c, from->stages[i].agent);
        if (n && n + (uint32_t)to->n_stages > HANDOFF_MOST_EXPORTS)
            return false;
    }
    return true;
}

/* ---- who sends what to whom ---- */

/* The blocks of a group that two stages have in common. */
static struct message_kv_blocks blocks_common(const struct model_facts *f,
                                              const struct deployment_stage *a,
                                              const struct deployment_stage *b, int group)
{
    uint32_t a_first = f->kv_before[a->first_layer][group],
             a_end = f->kv_before[a->end_layer][group],
             b_first = f->kv_before[b->first_layer][group],
             b_end = f->kv_before[b->end_layer][group];
    uint32_t first = a_first > b_first ? a_first : b_first, end = a_end < b_end ? a_end : b_end;
    return (struct message_kv_blocks){(uint64_t)group, first, end > first ? end - first : 0};
}

static size_t blocks_list(const struct model_facts *f, const struct deployment_stage *a,
                          const struct deployment_stage *b,
                          struct message_kv_blocks out[MODEL_KV_GROUPS])
{
    size_t n = 0;
    for (int g = 0; g < MODEL_KV_GROUPS; g++) {
        struct message_kv_blocks own = blocks_common(f, a, b, g);
        if (own.count)
            out[n++] = own;
    }
    return n;
}

bool handoff_tie(struct coord *c, struct sequence *to, struct sequence *from)
{
    const struct deployment *d = to->deployment, *p = from->deployment;
    struct message_kv_blocks ignored[MODEL_KV_GROUPS];
    size_t most = (size_t)d->n_stages * (size_t)p->n_stages;
    struct handoff *h = calloc(1, sizeof *h + most * sizeof *h->parts);
    if (!h)
        return false;
    for (int i = 0; i < p->n_stages; i++)
        for (int k = 0; k < d->n_stages; k++)
            if (blocks_list(&d->model->facts, &p->stages[i], &d->stages[k], ignored))
                h->parts[h->n_parts++] = (struct handoff_part){
                    .from_stage = i, .to_stage = k, .session = stages_session_create(c)};
    if (!h->n_parts) {
        free(h);
        return false;
    }
    h->to = to;
    h->from = from;
    to->handoff = from->handoff = h;
    return true;
}

/* ---- orders ---- */

bool handoff_imports_order(struct coord *c, struct handoff *h)
{
    const struct deployment *d = h->to->deployment, *p = h->from->deployment;
    bool told = true;
    for (size_t i = 0; i < h->n_parts; i++) {
        const struct handoff_part *part = &h->parts[i];
        uint8_t key[KEY_BYTES];
        bool known = key_decode(p->stages[part->from_stage].agent->key, key, NULL) == 0;
        struct message m = {.type = MESSAGE_KV_IMPORT, .id = i + 1};
        m.u.kv_import =
            (struct message_kv_import){d->id,     d->generation, (uint64_t)part->to_stage,
                                       h->to->id, part->session, {key, known ? KEY_BYTES : 0}};
        told = effects_send(c, d->stages[part->to_stage].agent->peer, &m) && told;
    }
    return told;
}

static bool exports_order(struct coord *c, struct handoff *h)
{
    const struct deployment *d = h->to->deployment, *p = h->from->deployment;
    bool told = true;
    for (size_t i = 0; i < h->n_parts; i++) {
        const struct handoff_part *part = &h->parts[i];
        const struct deployment_stage *from = &p->stages[part->from_stage],
                                      *to = &d->stages[part->to_stage];
        struct message_kv_blocks blocks[MODEL_KV_GROUPS];
        size_t n = blocks_list(&d->model->facts, from, to, blocks);
        struct message m = {.type = MESSAGE_KV_EXPORT, .id = i + 1};
        m.u.kv_export =
            (struct message_kv_export){.deployment = p->id,
                                       .generation = p->generation,
                                       .stage = (uint64_t)part->from_stage,
                                       .sequence = h->from->id,
                                       .length = h->to->handed,
                                       .follow = true,
                                       .session = part->session,
                                       .to_address = {to->agent->address, to->agent->address_size},
                                       .to_deployment = d->id,
                                       .to_generation = d->generation,
                                       .to_stage = (uint64_t)part->to_stage,
                                       .to_sequence = h->to->id,
                                       .kv = kv_format_word(d->spec.kv),
                                       .blocks = {blocks, n}};
        told = effects_send(c, from->agent->peer, &m) && told;
    }
    return told;
}

/* ---- how it goes ---- */

static bool all_have_left(const struct handoff *h)
{
    return h->n_sent == h->n_parts;
}

/* All of it has come: how long that took since all had been computed, as far as one sees here. */
static void received_count(struct coord *c, struct handoff *h)
{
    struct deployment *d = h->to->deployment;
    if (h->to->kind == SEQUENCE_REPLICA)
        return;
    *(h->to->kind == SEQUENCE_MOVE ? &d->handoffs.moved
      : h->fetch                   ? &d->peer_counts.fetched
                                   : &d->handoffs.done) += 1;
    if (h->fetch)
        d->peer_counts.tokens += h->to->handed;
    else if (h->read_ns)
        d->handoffs.exposed_s += (double)(coord_now(c) - h->read_ns) * 1e-9;
}

static enum handoff_news receiver_told(struct coord *c, struct handoff *h,
                                       struct handoff_part *part, enum kv_state state)
{
    if (state == KV_STATE_AWAITED && !part->awaited) {
        part->awaited = true;
        if (++h->n_awaited == h->n_parts && h->from && !exports_order(c, h))
            return HANDOFF_UNSAID;
    } else if (state == KV_STATE_RECEIVED && !part->received) {
        part->received = true;
        if (++h->n_received < h->n_parts)
            return HANDOFF_NOTHING;
        received_count(c, h);
        if (h->from && h->to->deployment->spec.copy_of[0])
            return HANDOFF_KEPT;
    }
    return HANDOFF_NOTHING;
}

enum handoff_news handoff_told(struct coord *c, struct sequence *s, uint64_t number,
                               const struct message_kv_state *k)
{
    struct handoff *h = s->handoff;
    struct handoff_part *part = &h->parts[number - 1];
    enum kv_state state = kv_state_of_word(k->state);
    if (s == h->to)
        return receiver_told(c, h, part, state);
    if (state != KV_STATE_SENT || part->sent)
        return HANDOFF_NOTHING;
    part->sent = true;
    h->n_sent++;
    struct deployment *d = h->to ? h->to->deployment : deployment_partner(c, s->deployment);
    if (d)
        d->handoffs.bytes += k->moved_bytes;
    return h->read && all_have_left(h) ? HANDOFF_GONE : HANDOFF_NOTHING;
}

bool handoff_read(struct coord *c, struct sequence *from)
{
    struct handoff *h = from->handoff;
    if (!h)
        return true;
    h->read = true;
    h->read_ns = coord_now(c);
    return all_have_left(h);
}

void handoff_done(struct coord *c, struct sequence *to)
{
    struct handoff *h = to->handoff;
    if (!h || h->to != to)
        return;
    if (h->n_received < h->n_parts) /* some agent's word is still on its way */
        received_count(c, h);
    sequence_untie(to);
}
