#include "coordinator/sequence_begin.h"

#include "coordinator/growth.h"
#include "coordinator/handoffs.h"
#include "coordinator/prefix_peers.h"
#include "coordinator/sequence_create.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_room.h"
#include "coordinator/spills.h"

/* The sequence that reads the prompt's first `length` tokens is made and has room; NULL: not now.
 * *never: nothing would change that. */
static struct sequence *reader_create(struct coord *c, struct deployment *p,
                                      const struct sequence *s, uint32_t length,
                                      struct prefix_hit *hit, bool *never)
{
    struct sequence *r;
    struct err ignored;
    bool keeps = p->spec.copy_of[0]; /* it has all of it, and computes nothing */
    *never = handoff_may_begin(c, p, s->deployment);
    if (!*never)
        return NULL;
    const struct sequence_asked asked = {s->client, s->prompt, length + keeps, 1, s->priority,
                                         false,     1};
    if (sequence_create(c, p, &asked, &r, &ignored) < 0)
        return NULL;
    r->kind = SEQUENCE_PREFILL;
    r->number = s->number;
    r->ignore_end = true;
    r->reserved = growth_first(p, r);
    *hit = prefixes_find(c, p, r);
    *never = !hit->coming && !p->n_active;
    if (!hit->coming && sequence_room_make(c, p, r, hit) && (!keeps || hit->length == length))
        return r;
    sequence_leave(c, p, r);
    sequence_free(r);
    return NULL;
}

/* Opens the sequence on its stages, and on those that read its prompt for it. */
static void sequence_hand_over(struct coord *c, struct sequence *s, struct sequence *r,
                               const struct prefix_hit *hit)
{
    const struct prefix_hit nothing = {0};
    uint32_t found = hit->length;
    bool keeps = r->deployment->spec.copy_of[0];
    s->handed = keeps ? hit->length : (uint32_t)r->n_prompt;
    sequence_open(c, r->deployment, r, hit);
    if (s->handoff && keeps)
        handoff_read(c, r);
    if (s->handoff)
        sequence_open(c, s->deployment, s, &nothing);
    if (!s->handoff) /* there was no memory: it begins anew */
        return;
    s->found = s->resumed ? s->found : found;
    if (!handoff_imports_order(c, s->handoff))
        sequence_fail_memory(c, s);
}

/* Whole pages of what its stages have that can stand before others that are read back. */
static struct prefix_hit hit_whole(const struct deployment *d, const struct prefix_hit *hit)
{
    struct prefix_hit whole = {.from = hit->from,
                               .length = hit->length / KV_PAGE_TOKENS * KV_PAGE_TOKENS};
    return whole.length && prefix_reaches(d, hit->from, whole.length) ? whole
                                                                      : (struct prefix_hit){0};
}

/* Opens it with what its agents have spilled, behind what its stages have. False: there is no room
 * now. */
static bool sequence_read_back(struct coord *c, struct deployment *d, struct sequence *s,
                               const struct spill_hit *spilled, struct prefix_hit *own)
{
    if (!sequence_room_make(c, d, s, own))
        return false;
    s->handed = spilled->length;
    s->spill_page = spilled->page;
    s->spilled = true;
    s->found = s->opened_ns ? s->found : spilled->length - own->length;
    sequence_open(c, d, s, own);
    return true;
}

enum sequence_start sequence_begin(struct coord *c, struct deployment *d, struct sequence *s,
                                   const struct prefix_hit *hit)
{
    struct prefix_hit own, none = {0}, /* all of its tokens come: it has no page of others */
        whole = hit_whole(d, hit);
    struct spill_hit spilled = spills_find(c, d, s, hit->length, whole.length);
    if (spilled.length && sequence_may_fit(d, s, &whole))
        return sequence_read_back(c, d, s, &spilled, &whole) ? SEQUENCE_BEGUN : SEQUENCE_NO_ROOM;
    struct deployment *reader = handoff_reader(c, d, s, hit->length);
    struct prefix_offer offer = {reader, (uint32_t)s->n_prompt - 1};
    if (!reader)
        offer = prefix_peer_find(c, d, s, hit->length);
    struct deployment *p = offer.from;
    bool never = true, room = true;
    struct sequence *r = p && sequence_may_fit(d, s, &none)
                             ? reader_create(c, p, s, offer.length, &own, &never)
                             : NULL;
    if (!r && !never && reader) /* nobody waits for what can be computed here */
        return SEQUENCE_NO_READER;
    if (r && handoff_tie(c, s, r)) {
        s->handoff->fetch = !reader;
        room = sequence_room_make(c, d, s, &none);
        if (room) {
            sequence_hand_over(c, s, r, &own);
            return SEQUENCE_BEGUN;
        }
        sequence_untie(s);
    }
    if (r) {
        sequence_leave(c, p, r);
        sequence_free(r);
    }
    if (!room)
        return SEQUENCE_NO_ROOM;
    sequence_open(c, d, s, hit);
    return SEQUENCE_BEGUN;
}
