/* The simulated cluster: what happens when, in order of time. */
#include <assert.h>
#include <stdlib.h>

#include "common/log.h"
#include "coordinator/store/store.h"
#include "tests/sim/cluster_int.h"

uint64_t sim_random(struct sim *s, uint64_t n)
{
    return n ? random_next(&s->chance) % n : 0;
}

uint64_t sim_delay_ns(struct sim *s, uint64_t least_ns, uint64_t most_ns)
{
    return least_ns + sim_random(s, most_ns - least_ns + 1);
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

void sim_event_push(struct sim *s, struct sim_event *ev)
{
    if (s->n_events == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 256;
        s->events = realloc(s->events, s->capacity * sizeof(struct sim_event *));
        assert(s->events);
    }
    size_t i = s->n_events++;
    for (; i > 0 && before(ev, s->events[(i - 1) / 2]); i = (i - 1) / 2)
        s->events[i] = s->events[(i - 1) / 2];
    s->events[i] = ev;
}

struct sim_event *sim_event_pop(struct sim *s)
{
    struct sim_event *first = s->events[0], *last = s->events[--s->n_events];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < s->n_events && before(s->events[child + 1], s->events[child]))
            child++;
        if (child >= s->n_events || !before(s->events[child], last))
            break;
        s->events[i] = s->events[child];
        i = child;
    }
    s->events[i] = last;
    return first;
}

struct sim_event *sim_event_add(struct sim *s, enum sim_event_kind kind, uint64_t after_ns)
{
    struct sim_event *ev = calloc(1, sizeof *ev);
    assert(ev);
    ev->kind = kind;
    ev->at_ns = s->clock.now_ns + after_ns;
    ev->order = s->event_order++;
    sim_event_push(s, ev);
    return ev;
}

void sim_event_free(struct sim_event *ev)
{
    free(ev->bytes);
    free(ev->runs);
    free(ev->tokens);
    free(ev->buffer);
    for (size_t i = 0; i < ev->n_changes; i++)
        free(ev->changes[i].bytes);
    free(ev->changes);
    free(ev);
}
