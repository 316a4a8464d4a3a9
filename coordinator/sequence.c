#include "coordinator/sequence.h"

#include <stdlib.h>

#include "coordinator/deployment.h"

const struct machine_state sequence_states[SEQUENCE_STATE_COUNT] = {
    [SEQUENCE_WAITING] = {"waiting", MACHINE_TO(SEQUENCE_ACTIVE) | MACHINE_TO(SEQUENCE_CLOSED)},
    [SEQUENCE_ACTIVE] = {"active", MACHINE_TO(SEQUENCE_CLOSED)},
    [SEQUENCE_CLOSED] = {"closed", 0},
};

/* ---- lists ---- */

void sequence_wait(struct deployment *d, struct sequence *s)
{
    *(d->waiting_last ? &d->waiting_last->next : &d->waiting_first) = s;
    d->waiting_last = s;
    d->n_waiting++;
}

void sequence_unlink(struct deployment *d, struct sequence *s)
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
}

void sequence_activate(struct deployment *d, struct sequence *s)
{
    sequence_unlink(d, s);
    sequence_move(s, SEQUENCE_ACTIVE);
    s->id = d->next_sequence++;
    s->next = d->active;
    d->active = s;
    d->n_active++;
    d->kv_reserved += s->kv_tokens;
}

void sequence_deactivate(struct deployment *d, struct sequence *s)
{
    struct sequence **p = &d->active;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    d->n_active--;
    d->kv_reserved -= s->kv_tokens;
}

struct sequence *sequence_active(const struct deployment *d, uint64_t id)
{
    struct sequence *s = d->active;
    while (s && s->id != id)
        s = s->next;
    return s;
}

void sequence_move(struct sequence *s, int to)
{
    machine_move(sequence_states, &s->state, to);
}

struct sequence *sequence_of_request(struct coord *c, uint64_t request)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct sequence *lists[] = {c->deployments[i]->active, c->deployments[i]->waiting_first};
        for (int k = 0; k < 2; k++)
            for (struct sequence *s = lists[k]; s; s = s->next)
                if (s->request == request)
                    return s;
    }
    return NULL;
}

void sequence_free(struct sequence *s)
{
    sampling_free(&s->sampling);
    free(s->prompt);
    free(s->output);
    free(s);
}

void sequences_free(struct sequence **list)
{
    for (struct sequence *s = *list, *next; s; s = next) {
        next = s->next;
        sequence_free(s);
    }
    *list = NULL;
}

static double time_seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns && from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

struct request_usage sequence_usage(const struct coord *c, const struct sequence *s)
{
    return (struct request_usage){
        .prompt_tokens = s->n_prompt,
        .output_tokens = s->n_output,
        .waited_s = time_seconds(s->asked_ns, s->opened_ns ? s->opened_ns : coord_now(c)),
        .prefill_s = time_seconds(s->opened_ns, s->first_ns),
        .decode_s = time_seconds(s->first_ns, s->last_ns),
    };
}
