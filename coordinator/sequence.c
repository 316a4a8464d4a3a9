#include "coordinator/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "coordinator/clients.h"
#include "coordinator/deployment.h"

const struct machine_state sequence_states[SEQUENCE_STATE_COUNT] = {
    [SEQUENCE_WAITING] = {"waiting", MACHINE_TO(SEQUENCE_ACTIVE) | MACHINE_TO(SEQUENCE_CLOSED)},
    [SEQUENCE_ACTIVE] = {"active", MACHINE_TO(SEQUENCE_WAITING) | MACHINE_TO(SEQUENCE_CLOSED)},
    [SEQUENCE_CLOSED] = {"closed", 0},
};

/* ---- lists ---- */

/* The one setter of its state. */
static void sequence_move(struct sequence *s, int to)
{
    machine_move(sequence_states, &s->state, to);
}

bool sequence_wait(struct coord *c, struct deployment *d, struct sequence *s)
{
    HASH_ADD(by_request, c->sequences, request, sizeof s->request, s);
    if (!s->by_request.tbl)
        return false;
    s->of = client_row_hold(c, d, s->client);
    s->of->n_waiting++;
    s->queued_ns = coord_now(c);
    *(d->waiting_last ? &d->waiting_last->next : &d->waiting_first) = s;
    d->waiting_last = s;
    d->n_waiting++;
    return true;
}

static void waiting_unlink(struct deployment *d, struct sequence *s)
{
    struct sequence **p = &d->waiting_first, *before = NULL;
    while (*p != s) {
        before = *p;
        p = &(*p)->next;
    }
    *p = s->next;
    if (d->waiting_last == s)
        d->waiting_last = before;
    d->n_waiting--;
    s->of->n_waiting--;
}

static void active_unlink(struct deployment *d, struct sequence *s)
{
    struct sequence **p = &d->active;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    HASH_DELETE(by_id, d->active_by_id, s);
    d->n_active--;
    s->of->n_active--;
    kv_account_close(&d->kv, &s->holding);
}

static bool sequence_run(struct deployment *d, struct sequence *s, uint64_t id,
                         const struct kv_holding *from, uint32_t shared)
{
    if (!kv_account_open(&d->kv, &s->holding, s->reserved, from, shared))
        return false;
    s->id = id;
    HASH_ADD(by_id, d->active_by_id, id, sizeof s->id, s);
    if (!s->by_id.tbl) {
        kv_account_close(&d->kv, &s->holding);
        return false;
    }
    waiting_unlink(d, s);
    sequence_move(s, SEQUENCE_ACTIVE);
    s->next = d->active;
    d->active = s;
    d->n_active++;
    s->of->n_active++;
    return true;
}

bool sequence_activate(struct deployment *d, struct sequence *s, const struct kv_holding *from,
                       uint32_t shared)
{
    if (!sequence_run(d, s, d->next_sequence, from, shared))
        return false;
    d->next_sequence++;
    return true;
}

bool sequence_adopt(struct deployment *d, struct sequence *s, uint64_t id)
{
    return !sequence_active(d, id) && sequence_run(d, s, id, NULL, 0);
}

void sequence_requeue(struct deployment *d, struct sequence *s)
{
    active_unlink(d, s);
    sequence_move(s, SEQUENCE_WAITING);
    struct sequence **p = &d->waiting_first;
    while (*p && (*p)->again && sequence_is_before(*p, s))
        p = &(*p)->next;
    s->again = true;
    s->starved = s->reads = false;
    s->next = *p;
    *p = s;
    d->waiting_last = s->next ? d->waiting_last : s;
    s->of->n_waiting++;
    d->n_waiting++;
}

void sequence_leave(struct coord *c, struct deployment *d, struct sequence *s)
{
    if (s->state == SEQUENCE_WAITING)
        waiting_unlink(d, s);
    else
        active_unlink(d, s);
    client_row_leave(d, s->of);
    s->of = NULL;
    HASH_DELETE(by_request, c->sequences, s);
    sequence_move(s, SEQUENCE_CLOSED);
}

struct sequence *sequence_active(const struct deployment *d, uint64_t id)
{
    struct sequence *s;
    HASH_FIND(by_id, d->active_by_id, &id, sizeof id, s);
    return s;
}

struct sequence *sequence_of_request(const struct coord *c, uint64_t request)
{
    struct sequence *s;
    HASH_FIND(by_request, c->sequences, &request, sizeof request, s);
    return s;
}

struct sequence *sequence_of_stream(const struct coord *c, uint64_t stream)
{
    for (struct sequence *s = c->sequences; s; s = s->by_request.next)
        if (s->stream == stream)
            return s;
    return NULL;
}

static void requests_swap(struct coord *c, struct sequence *a, struct sequence *b)
{
    uint64_t request = a->request;
    HASH_DELETE(by_request, c->sequences, a); /* the table stays: the other one is in it */
    a->request = b->request;
    HASH_ADD(by_request, c->sequences, request, sizeof a->request, a);
    HASH_DELETE(by_request, c->sequences, b);
    b->request = request;
    HASH_ADD(by_request, c->sequences, request, sizeof b->request, b);
}

void sequence_take_over(struct coord *c, struct sequence *to, struct sequence *from)
{
    uint32_t *ids = to->prompt;
    requests_swap(c, to, from);
    to->kind = from->kind;
    from->kind = SEQUENCE_MOVE;
    to->stream = from->stream;
    from->stream = 0;
    to->fork = from->fork;
    to->forks = from->forks;
    to->prompt = from->prompt;
    from->prompt = ids;
    to->n_ids = from->n_ids;
    to->room_ids = from->room_ids;
    from->n_ids = 0; /* nothing of it is kept */
    to->callbacks = from->callbacks;
    to->ends = from->ends;
    from->ends = false;
    to->n_output = from->n_output;
    to->asked_ns = from->asked_ns;
    to->opened_ns = from->opened_ns;
    to->first_ns = from->first_ns;
    to->last_ns = from->last_ns;
    to->cached = from->cached;
    to->found = from->found;
    to->replica = from->replica;
    to->keeper = from->keeper;
    to->keeper_generation = from->keeper_generation;
    to->replicated = from->replicated;
    from->replica = 0;
}

void sequence_untie(struct sequence *s)
{
    struct handoff *h = s->handoff;
    if (!h)
        return;
    s->handoff = NULL;
    *(h->to == s ? &h->to : &h->from) = NULL;
    if (!h->to && !h->from)
        free(h);
}

void sequence_free(struct sequence *s)
{
    sequence_untie(s);
    sampling_free(&s->sampling);
    free(s->holding.pages);
    free(s->prompt);
    free(s->output);
    free(s->scores);
    free(s);
}

void sequence_note(struct sequence *s, const uint32_t *ids, size_t n)
{
    if ((!sequence_grows(s) && !sequence_may_share(s)) || s->n_ids != s->n_prompt + s->n_output ||
        !vector_reserve(s->prompt, s->room_ids, s->n_ids + n))
        return;
    memcpy(s->prompt + s->n_ids, ids, n * sizeof *ids);
    s->n_ids += n;
}

bool sequence_scores_keep(struct sequence *s, const uint8_t *bytes, size_t tokens)
{
    size_t n = tokens * s->said_width;
    if (!n)
        return true;
    if (!vector_reserve(s->scores, s->room_scores, s->n_scores + n))
        return false;
    memcpy(s->scores + s->n_scores, bytes, n * sizeof *s->scores);
    s->n_scores += n;
    return true;
}

void sequences_free(struct sequence **list)
{
    for (struct sequence *s = *list, *next; s; s = next) {
        next = s->next;
        sequence_free(s);
    }
    *list = NULL;
}

void sequences_drop(struct coord *c, struct deployment *d)
{
    struct sequence *lists[] = {d->active, d->waiting_first};
    HASH_CLEAR(by_id, d->active_by_id);
    for (int k = 0; k < 2; k++) {
        for (struct sequence *s = lists[k]; s; s = s->next) {
            HASH_DELETE(by_request, c->sequences, s);
            client_row_leave(d, s->of);
        }
        sequences_free(&lists[k]);
    }
    d->active = d->waiting_first = d->waiting_last = NULL;
}

static double time_seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns && from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

struct request_usage sequence_usage(const struct coord *c, const struct sequence *s)
{
    return (struct request_usage){
        .prompt_tokens = s->n_prompt,
        .cached_tokens = s->cached + s->found,
        .output_tokens = s->n_output,
        .waited_s = time_seconds(s->asked_ns, s->opened_ns ? s->opened_ns : coord_now(c)),
        .prefill_s = time_seconds(s->opened_ns, s->first_ns),
        .decode_s = time_seconds(s->first_ns, s->last_ns),
        .planned_s = s->planned_s,
        .end_token = s->end_token,
    };
}
