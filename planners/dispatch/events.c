#include "planners/dispatch/events.h"

#include <assert.h>
#include <stdlib.h>

#include "common/vector.h"

static bool event_before(const struct dispatch_event *a, const struct dispatch_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

bool events_add(struct events *q, int64_t at_ns, int kind, int a, int b)
{
    if (!vector_reserve(q->heap, q->room, q->n + 1))
        return false;
    struct dispatch_event e = {at_ns, q->added++, kind, a, b};
    int i = q->n++;
    for (; i > 0 && event_before(&e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = e;
    return true;
}

struct dispatch_event events_take(struct events *q)
{
    assert(q->n > 0);
    struct dispatch_event first = q->heap[0], last = q->heap[--q->n];
    int i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child >= q->n)
            break;
        if (child + 1 < q->n && event_before(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!event_before(&q->heap[child], &last))
            break;
        q->heap[i] = q->heap[child];
        i = child;
    }
    if (q->n > 0)
        q->heap[i] = last;
    return first;
}

void events_free(struct events *q)
{
    free(q->heap);
    *q = (struct events){0};
}
