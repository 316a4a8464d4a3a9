#include "coordinator/arrivals.h"

#include <math.h>

#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/sequence.h"
#include "transport/message.h"

/* Nothing lacks more than its device holds, whatever its agent says. */
static uint64_t missing_believed(const struct deployment_stage *s, uint64_t missing_bytes)
{
    const struct cluster_device *own = member_device(s->agent, s->device);
    double most_bytes = own ? own->memory_bytes : 0;
    return (double)missing_bytes < most_bytes ? missing_bytes : (uint64_t)fmin(most_bytes, 1e15);
}

/* Some came: whoever waits for them waits on. A number that rises is no such sign. */
static void arrival_note(const struct coord *c, struct deployment *d)
{
    for (struct sequence *q = d->active; q; q = q->next)
        q->sign_ns = q->wait_ns = coord_now(c);
}

void arrivals_hear(struct coord *c, struct deployment *d, struct deployment_stage *s,
                   uint64_t missing_bytes)
{
    uint64_t missing = missing_believed(s, missing_bytes), before = s->arrivals.missing_bytes;
    if (missing == before)
        return;
    if (missing > before) { /* a load has begun */
        s->arrivals.first_bytes = missing;
        s->arrivals.first_ns = coord_now(c);
    }
    s->arrivals.missing_bytes = missing;
    s->arrivals.heard_ns = coord_now(c);
    if (missing < before)
        arrival_note(c, d);
}

uint64_t arrivals_missing_bytes(const struct deployment *d)
{
    uint64_t sum = 0;
    for (int i = 0; i < d->n_stages; i++)
        sum += d->stages[i].arrivals.missing_bytes;
    return sum;
}

/* A stage's own weights come one after the other; stages load beside each other. */
static double stage_left_s(const struct deployment_stage *s)
{
    double came = (double)(s->arrivals.first_bytes - s->arrivals.missing_bytes),
           took_s = (double)(s->arrivals.heard_ns - s->arrivals.first_ns) * 1e-9;
    return came > 0 ? (double)s->arrivals.missing_bytes * took_s / came : 0;
}

double arrivals_left_s(const struct deployment *d)
{
    double most_s = 0;
    for (int i = 0; i < d->n_stages; i++)
        most_s = fmax(most_s, stage_left_s(&d->stages[i]));
    return most_s;
}

size_t arrivals_of_member(const struct coord *c, const struct member *m,
                          struct message_loading *rows, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_deployments && n < room; i++) {
        struct deployment *d = c->deployments[i];
        uint64_t missing = arrivals_missing_bytes(d);
        if (missing && deployment_stage_of(d, m))
            rows[n++] = (struct message_loading){d->id, d->generation, missing};
    }
    return n;
}
