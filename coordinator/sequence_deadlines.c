#include "coordinator/sequence_deadlines.h"

#include <math.h>

#include "coordinator/deployment.h"
#include "coordinator/lost_hop.h"
#include "coordinator/member.h"
#include "coordinator/sequence.h"

static uint64_t scaled_ns(const struct coord *c, double seconds)
{
    double scale = c->config.time_scale > 0 ? c->config.time_scale : 1;
    return (uint64_t)(seconds * scale * 1e9);
}

double sequence_reading_s(const struct deployment *d, size_t n)
{
    uint64_t tokens = deployment_plan_tokens(d);
    double sum = 0, ratio = tokens ? (double)n / (double)tokens : 1;
    for (int i = 0; i < d->n_stages; i++)
        sum += d->stages[i].compute_s;
    return sum * (ratio > 1 ? pow(ratio, 1.5) : ratio);
}

/* One wait: other deployments' prompts count too, they may have the same agents. */
static uint64_t wait_ns(const struct coord *c)
{
    double reading = 0;
    for (size_t i = 0; i < c->n_deployments; i++)
        for (const struct sequence *s = c->deployments[i]->active; s; s = s->next)
            reading += s->reads ? s->predicted_s : 0;
    return scaled_ns(c, SEQUENCE_STALL_MS * 1e-3 + SEQUENCE_SLOWER * reading);
}

void sequence_deadline_start(const struct coord *c, struct deployment *d, struct sequence *s)
{
    s->predicted_s = sequence_reading_s(d, sequence_given(s) - s->shared);
    s->sign_ns = s->wait_ns = coord_now(c);
    uint64_t up = s->wait_ns + scaled_ns(c, SEQUENCE_STALL_MS * 1e-3);
    d->overdue_ns = d->overdue_ns && d->overdue_ns < up ? d->overdue_ns : up;
}

void sequence_deadline_sign(const struct coord *c, struct deployment *d, struct sequence *s,
                            bool read)
{
    s->sign_ns = s->wait_ns = coord_now(c);
    for (struct sequence *o = d->active; read && o; o = o->next)
        o->wait_ns = coord_now(c);
}

void sequence_deadline_stage(const struct coord *c, struct deployment_stage *s,
                             const struct message_held_stage *h)
{
    if (s->batches_done != h->batches_done || s->batches_ns == 0)
        s->batches_ns = coord_now(c);
    s->batches_done = h->batches_done;
    s->running = h->running;
}

/* The stage that misses weights; NULL: none does. */
static const struct deployment_stage *stage_unfilled(const struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].arrivals.missing_bytes)
            return &d->stages[i];
    return NULL;
}

/* The stage that has been at one batch for most of the wait; NULL: none has. */
static const struct deployment_stage *stage_stuck(const struct coord *c, const struct deployment *d,
                                                  uint64_t wait)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].running && coord_now(c) - d->stages[i].batches_ns > wait / 2)
            return &d->stages[i];
    return NULL;
}

static void overdue_explain(const struct coord *c, const struct deployment *d,
                            const struct sequence *s, uint64_t wait, struct err *why)
{
    double silent_s = (double)(coord_now(c) - s->sign_ns) * 1e-9;
    const struct deployment_stage *g = stage_stuck(c, d, wait), *u = stage_unfilled(d);
    char lost[LOST_HOP_TEXT] = "something of it was lost between them";
    lost_hop_tell(c, d, lost);
    if (u)
        err_set(why, HP_ETIMEOUT,
                "no sign of this request for %.0f s: stage %d of %d (layers %d-%d on agent \"%s\") "
                "waits for %.3g MB of its weights, none of which came for %.0f s",
                silent_s, (int)(u - d->stages) + 1, d->n_stages, u->first_layer, u->end_layer - 1,
                u->agent->name, (double)u->arrivals.missing_bytes * 1e-6,
                (double)(coord_now(c) - u->arrivals.heard_ns) * 1e-9);
    else if (g)
        err_set(why, HP_ETIMEOUT,
                "no sign of this request for %.0f s: stage %d of %d (layers %d-%d on agent \"%s\") "
                "has been at one batch for %.0f s",
                silent_s, (int)(g - d->stages) + 1, d->n_stages, g->first_layer, g->end_layer - 1,
                g->agent->name, (double)(coord_now(c) - g->batches_ns) * 1e-9);
    else
        err_set(why, HP_ETIMEOUT,
                "no sign of this request for %.0f s and no stage of \"%s\" is stuck: %s", silent_s,
                d->name, lost);
}

struct sequence *sequence_overdue(const struct coord *c, struct deployment *d, struct err *why)
{
    uint64_t now = coord_now(c);
    if (!d->active || now < d->overdue_ns)
        return NULL;
    uint64_t wait = wait_ns(c), next = UINT64_MAX;
    for (struct sequence *s = d->active; s; s = s->next) {
        if (s->starved) /* it waits for others, who have deadlines */
            s->sign_ns = s->wait_ns = now;
        uint64_t up = s->wait_ns + wait, end = s->sign_ns + SEQUENCE_WAITS * wait;
        up = up < end ? up : end;
        if (now >= up) {
            overdue_explain(c, d, s, wait, why);
            return s;
        }
        next = up < next ? up : next;
    }
    /* Waits may become shorter: it is looked again before the shortest there is could be up. */
    uint64_t soon = now + scaled_ns(c, SEQUENCE_STALL_MS * 1e-3 / 10);
    d->overdue_ns = next < soon ? next : soon;
    return NULL;
}
