#include "coordinator/shares.h"

#include "coordinator/clients.h"
#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

uint32_t shares_waiting_of(const struct deployment *d, const char *client)
{
    const struct client_row *r = client_row_find(d, client);
    return r ? r->n_waiting : 0;
}

/* The sequence waits for another's prompt, and has not done so for long; a fork does as long as
 * that takes. */
static bool sequence_awaits(const struct sequence *s, uint64_t now_ns)
{
    return s->awaits && (s->fork || now_ns - s->queued_ns <= SHARES_PATIENCE_MS * 1000000ull);
}

/* Others go before it. */
static bool sequence_stands_back(const struct deployment *d, const struct sequence *s,
                                 uint64_t now_ns)
{
    return s->passed == d->passes || sequence_awaits(s, now_ns);
}

/* Whether a has less of its share running than b. */
static bool client_lacks(const struct client_row *a, const struct client_row *b)
{
    return (uint64_t)a->n_active * b->weight < (uint64_t)b->n_active * a->weight;
}

struct sequence *shares_next(const struct deployment *d, uint64_t now_ns)
{
    struct sequence *next = NULL;
    for (struct sequence *s = d->waiting_first; s; s = s->next)
        if (!sequence_stands_back(d, s, now_ns) && (!next || s->priority < next->priority))
            next = s;
    if (!next || next->again || now_ns - next->queued_ns > SHARES_PATIENCE_MS * 1000000ull)
        return next;
    for (struct sequence *s = next->next; s && next->of->n_active > 0; s = s->next)
        if (s->priority == next->priority && !sequence_stands_back(d, s, now_ns) &&
            client_lacks(s->of, next->of))
            next = s;
    return next;
}

void shares_note(struct deployment *d, uint64_t ran_ns)
{
    double ran_s = (double)ran_ns * 1e-9;
    d->ran_s = d->ran_s > 0 ? d->ran_s * 0.9 + ran_s * 0.1 : ran_s;
}

/* Seconds from one that is let in to the next (Little's law); 0: nobody knows yet. */
static double interval_s(const struct deployment *d)
{
    return d->n_active ? d->ran_s / d->n_active : 0;
}

/* How many that wait are not overtaken by one of this priority. */
static uint64_t waiting_before(const struct deployment *d, int32_t priority)
{
    uint64_t n = 0;
    for (const struct sequence *s = d->waiting_first; s; s = s->next)
        n += s->priority <= priority;
    return n;
}

double shares_wait_s(const struct deployment *d, const char *client, int32_t priority)
{
    const struct client_row *own = client_row_find(d, client);
    uint32_t before = own ? own->n_waiting : 0, weight = own ? own->weight : 1;
    uint64_t turns = before;
    for (const struct client_row *r = d->clients; r; r = r->hh.next) {
        /* as many of another's go before as its weight gives it while this client's come to it */
        uint64_t theirs = ((uint64_t)before + 1) * r->weight / weight;
        if (r != own)
            turns += theirs < r->n_waiting ? theirs : r->n_waiting;
    }
    uint64_t most = waiting_before(d, priority);
    return (double)(turns < most ? turns : most) * interval_s(d);
}

uint32_t shares_retry_after_s(const struct deployment *d)
{
    uint32_t n = 0;
    for (const struct client_row *r = d->clients; r; r = r->hh.next)
        n += r->n_waiting > 0;
    double turn = (n ? n : 1) * interval_s(d),
           over = d->n_waiting * interval_s(d) - SHARES_WAIT_MOST_S, s = over > turn ? over : turn;
    return s < 1 ? 1 : s > SHARES_RETRY_MAX_S ? SHARES_RETRY_MAX_S : (uint32_t)(s + 0.999);
}
