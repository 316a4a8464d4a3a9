#include "model/grammar/char_set.h"

#include <stdlib.h>

#include "common/vector.h"

void char_set_add(struct char_set *s, uint32_t low, uint32_t high)
{
    struct char_range r = {low, high};
    if (low > high)
        return;
    if (s->count >= CHAR_SET_MAX_RANGES || !vector_push(s->ranges, s->count, s->room, r))
        s->failed = true;
}

void char_set_add_all(struct char_set *s, const struct char_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        char_set_add(s, ranges[i].low, ranges[i].high);
}

static int ranges_compare(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

static void ranges_take(struct char_set *s, struct char_set *made)
{
    s->failed = s->failed || made->failed;
    free(s->ranges);
    s->ranges = made->ranges;
    s->count = made->count;
    s->room = made->room;
}

void char_set_settle(struct char_set *s)
{
    static const struct char_range scalars[] = {{0, 0xD7FF}, {0xE000, CHAR_MAX_POINT}};
    size_t n = 0;
    if (s->count)
        qsort(s->ranges, s->count, sizeof *s->ranges, ranges_compare);
    for (size_t i = 0; i < s->count; i++) {
        struct char_range r = s->ranges[i];
        if (n && r.low <= s->ranges[n - 1].high + 1) {
            if (r.high > s->ranges[n - 1].high)
                s->ranges[n - 1].high = r.high;
        } else {
            s->ranges[n++] = r;
        }
    }
    s->count = n;
    char_set_intersect(s, scalars, 2);
}

void char_set_negate(struct char_set *s)
{
    struct char_set made = {0};
    uint32_t from = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->ranges[i].low > from)
            char_set_add(&made, from, s->ranges[i].low - 1);
        from = s->ranges[i].high + 1;
    }
    if (from <= CHAR_MAX_POINT)
        char_set_add(&made, from, CHAR_MAX_POINT);
    ranges_take(s, &made);
    char_set_settle(s);
}

void char_set_intersect(struct char_set *s, const struct char_range *with, size_t n)
{
    struct char_set made = {0};
    for (size_t i = 0, k = 0; i < s->count && k < n;) {
        struct char_range a = s->ranges[i], b = with[k];
        char_set_add(&made, a.low > b.low ? a.low : b.low, a.high < b.high ? a.high : b.high);
        if (a.high < b.high)
            i++;
        else
            k++;
    }
    ranges_take(s, &made);
}

void char_set_free(struct char_set *s)
{
    free(s->ranges);
    *s = (struct char_set){0};
}
