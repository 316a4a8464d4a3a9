#include "planners/dispatch/reservations.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

/* Number of leading intervals that end at or before `t`: searched from the back, where new work
 * mostly lies. */
static int passed_by(const struct reservation_line *l, int64_t t)
{
    int i = l->n;
    while (i > 0 && l->v[l->first + i - 1].end_ns > t)
        i--;
    return i;
}

int64_t line_earliest(const struct reservation_line *l, int64_t from_ns, int64_t length_ns)
{
    for (int i = passed_by(l, from_ns); i < l->n; i++) {
        const struct line_interval *v = &l->v[l->first + i];
        if (v->start_ns >= from_ns + length_ns)
            break;
        from_ns = v->end_ns;
    }
    return from_ns;
}

int64_t line_earliest_both(const struct reservation_line *a, const struct reservation_line *b,
                           int64_t from_ns, int64_t length_ns)
{
    for (;;) {
        int64_t t = line_earliest(a, from_ns, length_ns);
        int64_t u = line_earliest(b, t, length_ns);
        if (u == t)
            return t;
        from_ns = u;
    }
}

static bool is_past(const struct reservation_line *l, const struct line_interval *v, int64_t now_ns)
{
    return v->end_ns <= now_ns && (v->happened || !l->stay);
}

/* Drops what is past, and makes room for one more at the end of the array. */
static bool make_room(struct reservation_line *l, int64_t now_ns)
{
    while (l->n > 0 && is_past(l, &l->v[l->first], now_ns)) {
        l->first++;
        l->n--;
    }
    if (l->n >= LINE_MAX_INTERVALS) {
        l->v[l->first + 1].start_ns = l->v[l->first].start_ns;
        l->first++;
        l->n--;
    }
    if (l->first + l->n < l->room)
        return true;
    /* Keep the array at least twice as long as what lives in it, so that moving down is rare. */
    int wanted = l->room + 1;
    if (l->room < 2 * (l->n + 1) && !vector_reserve(l->v, l->room, wanted))
        return false;
    memmove(l->v, l->v + l->first, (size_t)l->n * sizeof *l->v);
    l->first = 0;
    return true;
}

bool line_reserve(struct reservation_line *l, int64_t now_ns, int64_t start_ns, int64_t end_ns,
                  uint32_t tag)
{
    assert(end_ns >= start_ns);
    if (!make_room(l, now_ns))
        return false;
    int i = l->first + l->n;
    for (; i > l->first && l->v[i - 1].start_ns > start_ns; i--)
        l->v[i] = l->v[i - 1];
    l->v[i] = (struct line_interval){start_ns, end_ns, tag, false};
    l->n++;
    return true;
}

bool line_correct(struct reservation_line *l, uint32_t tag, int64_t planned_start_ns,
                  int64_t start_ns, int64_t end_ns)
{
    int at = -1;
    for (int i = 0; i < l->n; i++) {
        const struct line_interval *v = &l->v[l->first + i];
        if (v->tag == tag && (at < 0 || llabs(v->start_ns - planned_start_ns) <
                                            llabs(l->v[l->first + at].start_ns - planned_start_ns)))
            at = i;
    }
    if (at < 0)
        return false;
    if (l->stay) { /* each began after those before it, whether these have been heard of or not */
        l->first += at;
        l->n -= at;
        at = 0;
    }
    struct line_interval *v = &l->v[l->first];
    v[at].happened = true;
    v[at].start_ns = at > 0 && v[at - 1].end_ns > start_ns ? v[at - 1].end_ns : start_ns;
    v[at].end_ns = end_ns > v[at].start_ns ? end_ns : v[at].start_ns;
    for (int i = at + 1; i < l->n && v[i].start_ns < v[i - 1].end_ns; i++) {
        v[i].end_ns += v[i - 1].end_ns - v[i].start_ns;
        v[i].start_ns = v[i - 1].end_ns;
    }
    return true;
}

void line_free(struct reservation_line *l)
{
    free(l->v);
    *l = (struct reservation_line){0};
}
