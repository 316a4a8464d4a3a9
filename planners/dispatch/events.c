#include "planners/dispatch/events.h"

#include <assert.h>
#include <stdlib.h>

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

bool events_add(struct events *q, int64_t at_ns, int kind, int a, int b)
{
    if (q->n == q->room) {
        int more = q->room ? 2 * q->room : 64;
        struct event *bigger = realloc(q->heap, (size_t)more * sizeof *bigger);
        if (!bigger)
            return false;
        q->heap = bigger;
        q->room = more;
    }
    struct event e = {at_ns, q->added++, kind, a, b};
    int i = q->n++;
    for (; i > 0 && before(&e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = e;
    return true;
}

struct event events_take(struct events *q)
{
    assert(q->n > 0);
    struct event first = q->heap[0], last = q->heap[--q->n];
    int i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child >= q->n)
            break;
        if (child + 1 < q->n && before(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!before(&q->heap[child], &last))
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
