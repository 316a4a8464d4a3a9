#include "coordinator/shares.h"

#include <stddef.h>
#include <string.h>

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

static uint32_t count_of(const struct sequence *list, const char *client)
{
    uint32_t n = 0;
    for (; list; list = list->next)
        n += strcmp(list->client, client) == 0;
    return n;
}

uint32_t shares_waiting_of(const struct deployment *d, const char *client)
{
    return count_of(d->waiting_first, client);
}

/* The sequence waits for another's prompt, and has not done so for long; a fork does as long as
 * that takes. */
static bool sequence_awaits(const struct sequence *s, uint64_t now_ns)
{
    return s->awaits && (s->fork || now_ns - s->queued_ns <= SHARES_PATIENCE_MS * 1000000ull);
}

struct sequence *shares_next(const struct deployment *d, uint64_t now_ns)
{
    struct sequence *next = d->waiting_first;
    if (next && next->again)
        return next;
    while (next && sequence_awaits(next, now_ns))
        next = next->next;
    if (!next || now_ns - next->queued_ns > SHARES_PATIENCE_MS * 1000000ull)
        return next;
    uint32_t fewest = count_of(d->active, next->client);
    for (struct sequence *s = next->next; s && fewest > 0; s = s->next) {
        uint32_t running = sequence_awaits(s, now_ns) ? fewest : count_of(d->active, s->client);
        if (running < fewest) {
            fewest = running;
            next = s;
        }
    }
    return next;
}

void shares_note(struct deployment *d, uint64_t ran_ns)
{
    double ran_s = (double)ran_ns * 1e-9;
    d->ran_s = d->ran_s > 0 ? d->ran_s * 0.9 + ran_s * 0.1 : ran_s;
}

uint32_t shares_retry_after_s(const struct deployment *d)
{
    double s = d->ran_s / (d->n_active ? d->n_active : 1);
    return s < 1 ? 1 : s > SHARES_RETRY_MAX_S ? SHARES_RETRY_MAX_S : (uint32_t)(s + 0.999);
}
