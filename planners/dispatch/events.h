/* A queue of things that happen at a time, earliest first; equal times in the order of adding. */
#ifndef HP_PLANNERS_DISPATCH_EVENTS_H
#define HP_PLANNERS_DISPATCH_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

struct dispatch_event {
    int64_t at_ns;
    uint64_t order;
    int kind, a, b; /* the owner's */
};

struct events {
    struct dispatch_event *heap;
    int n, room;
    uint64_t added;
};

/* False when memory ran out. */
bool events_add(struct events *q, int64_t at_ns, int kind, int a, int b);
/* The earliest, taken out. The queue must not be empty. */
struct dispatch_event events_take(struct events *q);
static inline int64_t events_next_ns(const struct events *q)
{
    return q->n ? q->heap[0].at_ns : INT64_MAX;
}
void events_free(struct events *q);

#endif
