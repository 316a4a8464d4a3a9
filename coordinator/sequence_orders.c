#include "coordinator/sequence_orders.h"

#include <stdlib.h>

#include "coordinator/effects.h"
#include "coordinator/model_slots.h"
#include "coordinator/slices.h"
#include "coordinator/spills.h"

void sequence_order_close(struct coord *c, struct deployment *d, uint64_t sequence, uint32_t keep)
{
    struct message m = {.type = MESSAGE_SEQUENCE_CLOSE};
    for (int i = 0; i < d->n_stages; i++) {
        m.u.sequence_close =
            (struct message_sequence_close){d->id, d->generation, sequence, (uint64_t)i, keep};
        if (!effects_send(c, d->stages[i].agent->peer, &m))
            d->unclosed = true; /* that stage keeps it until it is connected anew */
    }
}

void sequence_order_spill(struct coord *c, struct deployment *d, uint64_t sequence,
                          const struct digest *root, const uint32_t *ids, size_t n)
{
    struct message m = {.type = MESSAGE_SEQUENCE_SPILL};
    uint32_t n_pages;
    if (d->spec.copy_of[0]) /* who began with it would be another deployment's */
        return;
    struct digest *names = spills_worth(c, d, root, ids, n, &n_pages);
    for (int i = 0; names && i < d->n_stages; i++) {
        m.u.sequence_spill =
            (struct message_sequence_spill){d->id,
                                            d->generation,
                                            sequence,
                                            (uint64_t)i,
                                            {(const uint8_t *)names, n_pages * sizeof *names}};
        effects_send(c, d->stages[i].agent->peer, &m); /* what is lost is not there */
    }
    free(names);
}

void sequence_order_put_away(struct coord *c, struct deployment *d, struct prefix *p)
{
    sequence_order_spill(c, d, p->sequence, &p->root, p->own_ids, p->n);
    sequence_order_evict(c, d, p);
}

void sequence_order_evict(struct coord *c, struct deployment *d, struct prefix *p)
{
    sequence_order_close(c, d, p->sequence, 0);
    prefix_remove(d, p);
}

void sequence_orders_close_all(struct coord *c, const struct member *m,
                               const struct message_held_stage *h)
{
    struct message close = {.type = MESSAGE_SEQUENCE_CLOSE};
    close.u.sequence_close =
        (struct message_sequence_close){h->deployment, h->generation, 0, h->stage, 0};
    effects_send(c, m->peer, &close);
}

/* Pages are reserved for it as a whole, its last one too. */
static uint64_t reserved_of(const struct sequence *s)
{
    uint64_t all = s->n_prompt + s->max_tokens;
    return s->reserved < all ? s->reserved : all;
}

void sequence_order_grow(struct coord *c, struct deployment *d, const struct sequence *s)
{
    struct message m = {.type = MESSAGE_SEQUENCE_GROW};
    for (int i = 0; i < d->n_stages; i++) {
        m.u.sequence_grow = (struct message_sequence_grow){d->id, d->generation, s->id, (uint64_t)i,
                                                           reserved_of(s)};
        effects_send(c, d->stages[i].agent->peer, &m); /* what is lost ends with its deadline */
    }
}

/* Each token of a prompt that is scored meets the head: others are not to wait long for a slice. */
enum { SCORED_SLICE_TOKENS = 256 };

/* None is longer than `most` then. There is room for one a token. */
static int slices_split(uint32_t *slices, int n, uint32_t most)
{
    int parts = 0;
    for (int i = 0; i < n; i++)
        parts += (int)((slices[i] - 1) / most) + 1;
    for (int i = n, to = parts; i-- > 0;)
        for (uint32_t left = slices[i], part; left; left -= part) {
            part = (left - 1) % most + 1; /* the last one is what the others leave */
            slices[--to] = part;
        }
    return parts;
}

static struct pack_u32s slices_make(const struct deployment *d, const struct sequence *s,
                                    uint32_t *room)
{
    int n = 0;
    if (s->handed) { /* all others come, or are shared */
        n = slices_cut(d, sequence_given(s) - s->handed, s->handed, room);
    } else if (s->embeds) {
        room[n++] = (uint32_t)s->n_prompt; /* each token sees all of them */
    } else if (s->slice) {
        for (size_t done = 0; done < sequence_given(s); n++) {
            size_t left = sequence_given(s) - done;
            room[n] = (uint32_t)(s->slice < left ? s->slice : left);
            done += room[n];
        }
    } else if (s->kind != SEQUENCE_REQUEST && s->kind != SEQUENCE_PREFILL && !s->planned) {
        room[n++] = sequence_given(s);
    } else {
        n = slices_cut(d, sequence_given(s) - s->shared, s->shared, room);
    }
    if (sequence_scores(s))
        n = slices_split(room, n, SCORED_SLICE_TOKENS);
    return (struct pack_u32s){room, (size_t)n};
}

/* What all stages are told alike. */
static struct message_sequence_open open_make(const struct deployment *d, const struct sequence *s)
{
    bool whole = s->kind == SEQUENCE_LOGITS || s->embeds, scored = sequence_scores(s);
    struct message_sequence_open open = {
        .deployment = d->id,
        .generation = d->generation,
        .sequence = s->id,
        .max_tokens = s->max_tokens,
        .kv_tokens = s->n_prompt + s->max_tokens,
        .reserved = reserved_of(s),
        .all_logits = whole,
        .pooling = s->embeds ? d->model->facts.pooling : 0,
        .prompt_tokens = whole || s->handed || s->resumed || scored ? 0 : s->n_prompt,
        .length = s->handed ? s->handed : s->shared,
        .share = s->share,
        .shared = s->spilled ? s->shared : 0,
        .speculate = d->spec.speculate,
        .said_scores = s->said_width,
        .prompt_scores = scored ? s->prompt_width : 0,
        .sampling = s->sampling,
        .stream = s->stream,
    };
    if (s->spilled)
        open.spilled = (struct pack_span){s->spill_page.bytes, DIGEST_BYTES};
    if (!s->ignore_end)
        open.end_ids = (struct pack_u32s){d->model->facts.end_ids, d->model->facts.n_end_ids};
    return open;
}

bool sequence_order_open(struct coord *c, struct deployment *d, const struct sequence *s)
{
    uint32_t *room = calloc(sequence_given(s), sizeof *room);
    bool told = room != NULL;
    if (!room)
        return false;
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    const struct message_sequence_open open = open_make(d, s);
    struct pack_u32s prompt = {s->prompt, sequence_given(s)}, none = {NULL, 0},
                     slices = d->spec.copy_of[0] ? none : slices_make(d, s, room);
    for (int i = 0; i < d->n_stages; i++) {
        bool runs = !d->spec.copy_of[0], first = runs && i == 0,
             last = runs && i == d->n_stages - 1;
        m.u.sequence_open = open;
        m.u.sequence_open.stage = (uint64_t)i;
        m.u.sequence_open.prompt = first || last ? prompt : none;
        m.u.sequence_open.slices = first ? slices : none;
        m.u.sequence_open.sampled = last ? s->resumed : 0;
        if (!last)
            m.u.sequence_open.sampling.grammar = (struct pack_span){0};
        told = effects_send(c, d->stages[i].agent->peer, &m) && told;
    }
    free(room);
    return told;
}
