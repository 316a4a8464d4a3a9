#include "coordinator/sequence_moves.h"

#include "coordinator/growth.h"
#include "coordinator/handoffs.h"
#include "coordinator/model_slots.h"
#include "coordinator/sequence_create.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_room.h"

/* All that it has said is known here, and it is tied to nobody. */
static bool sequence_can_move(const struct sequence *s, const struct deployment *heir)
{
    return s->kind == SEQUENCE_REQUEST && !s->embeds && !s->handoff && !s->stays && s->n_output &&
           s->n_ids == s->n_prompt + s->n_output && s->n_output < s->max_tokens &&
           s->n_prompt + s->max_tokens <= heir->context && heir->model->facts.kv_before;
}

static struct sequence *mover_create(struct coord *c, struct deployment *heir,
                                     const struct sequence *s)
{
    struct sequence *m;
    struct err ignored;
    struct prefix_hit none = {0};
    const struct sequence_asked asked = {
        s->client, s->prompt, s->n_ids, s->max_tokens - s->n_output, s->priority, false, 0};
    if (sequence_create(c, heir, &asked, &m, &ignored) < 0)
        return NULL;
    m->kind = SEQUENCE_MOVE;
    m->number = s->number;
    m->alone = true;
    m->ignore_end = s->ignore_end;
    m->said_width = s->said_width;
    m->n_prompt = s->n_prompt;
    m->resumed = m->n_output = s->n_output;
    m->max_tokens = s->max_tokens;
    m->stream = s->stream;
    m->handed = (uint32_t)s->n_ids - 1;
    m->reserved = growth_first(heir, m);
    if (sampling_copy(&m->sampling, &s->sampling, &ignored) == 0 &&
        sequence_room_make(c, heir, m, &none))
        return m;
    sequence_leave(c, heir, m);
    sequence_free(m);
    return NULL;
}

/* False: there is no room now. */
static bool sequence_move_begin(struct coord *c, struct deployment *heir, struct sequence *s)
{
    const struct prefix_hit none = {0};
    struct sequence *m = mover_create(c, heir, s);
    if (!m)
        return false;
    s->stays = true; /* one try */
    if (!handoff_tie(c, m, s)) {
        sequence_leave(c, heir, m);
        sequence_free(m);
        return false;
    }
    sequence_open(c, heir, m, &none);
    if (s->handoff && !handoff_imports_order(c, s->handoff))
        sequence_fail_memory(c, m);
    return true;
}

void sequences_move(struct coord *c, struct deployment *d, struct deployment *heir)
{
    for (struct sequence *s = d->active, *next; s && heir->state == DEPLOYMENT_SERVING; s = next) {
        next = s->next;
        if (sequence_can_move(s, heir) &&
            (!handoff_may_begin(c, d, heir) || !sequence_move_begin(c, heir, s)))
            return;
    }
}
