/* Requests that wait for the scheduler, model by model, the earliest deadline first. */
#include <string.h>

#include "common/vector.h"
#include "planners/dispatch/dispatch_int.h"

enum { GAPS = 16 };

/* A mean over the last GAPS arrivals or so. */
static void gap_note(struct request_queue *q, int64_t arrival_ns)
{
    int64_t gap = arrival_ns - q->latest_ns;
    if (q->latest_ns)
        q->gap_ns = q->gap_ns ? q->gap_ns + (gap - q->gap_ns) / GAPS : gap;
    q->latest_ns = arrival_ns;
}

/* Room for one more at the end. */
static bool queue_reserve(struct request_queue *q)
{
    if (q->first + q->n < q->room)
        return true;
    if (q->room >= 2 * (q->n + 1)) {
        memmove(q->items, q->items + q->first, (size_t)q->n * sizeof *q->items);
        q->first = 0;
        return true;
    }
    return vector_reserve(q->items, q->room, q->first + q->n + 1);
}

/* By deadline, behind those of the same. Before one that is waited for it is looked at anew. */
static int queue_put(struct request_queue *q, const struct dispatch_request *r)
{
    if (!queue_reserve(q))
        return HP_EBUSY;
    struct dispatch_request *items = q->items + q->first;
    int at = q->n++;
    for (; at > 0 && items[at - 1].deadline_ns > r->deadline_ns; at--)
        items[at] = items[at - 1];
    items[at] = *r;
    if (at == 0)
        q->want = 0;
    return 0;
}

int dispatch_arrive_by(struct dispatch *d, int model, uint64_t tag, int64_t arrival_ns,
                       int64_t deadline_ns)
{
    struct request_queue *q = &d->queues[model];
    if (q->n >= d->queue_limit ||
        queue_put(q, &(struct dispatch_request){tag, arrival_ns, deadline_ns}) < 0)
        return HP_EBUSY;
    gap_note(q, arrival_ns);
    q->arrived++;
    return 0;
}

int dispatch_arrive(struct dispatch *d, int model, uint64_t tag, int64_t arrival_ns)
{
    return dispatch_arrive_by(d, model, tag, arrival_ns, arrival_ns + d->t->models[model].slo_ns);
}

int dispatch_return(struct dispatch *d, int model, uint64_t tag, int64_t arrival_ns,
                    int64_t deadline_ns)
{
    struct request_queue *q = &d->queues[model];
    q->want = 0;
    return queue_put(q, &(struct dispatch_request){tag, arrival_ns, deadline_ns});
}

/* The first with this deadline or a later one. */
static int queue_place(const struct request_queue *q, int64_t deadline_ns)
{
    int lo = 0, hi = q->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (q->items[q->first + mid].deadline_ns < deadline_ns)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool dispatch_forget(struct dispatch *d, int model, uint64_t tag, int64_t deadline_ns)
{
    struct request_queue *q = &d->queues[model];
    if (q->n == 0)
        return false;
    struct dispatch_request *items = q->items + q->first;
    for (int i = queue_place(q, deadline_ns); i < q->n && items[i].deadline_ns == deadline_ns; i++)
        if (items[i].tag == tag) {
            memmove(items + i, items + i + 1, (size_t)(q->n - i - 1) * sizeof *items);
            q->n--;
            return true;
        }
    return false;
}

int dispatch_waiting(const struct dispatch *d, int model)
{
    return d->queues[model].n;
}
