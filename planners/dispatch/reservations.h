/* Reserved intervals of one resource (a share of a device, one direction of a NIC), with holes that
 * later work may fill (PPipe, USENIX ATC 2025, section 5.4 and appendix A.3: earliestSlot,
 * markReserved).
 *
 * Intervals are half-open, in nanoseconds, sorted and disjoint. The past is forgotten as new
 * reservations come; where intervals stay, once theirs or a later one has been corrected, since
 * what is late takes its time still. At most LINE_MAX_INTERVALS are kept: beyond that the two
 * oldest become one, and the hole between them is lost, never double-booked. Not thread-safe. */
#ifndef HP_PLANNERS_DISPATCH_RESERVATIONS_H
#define HP_PLANNERS_DISPATCH_RESERVATIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { LINE_MAX_INTERVALS = 256 };

struct line_interval {
    int64_t start_ns, end_ns;
    uint32_t tag; /* whose it is */
    bool happened;
};

struct reservation_line {
    struct line_interval *v;
    int first, n, room; /* v[first .. first + n) */
    bool stay;          /* until they have happened */
};

/* The earliest time from `from_ns` on at which the line is free for `length_ns`. */
int64_t line_earliest(const struct reservation_line *l, int64_t from_ns, int64_t length_ns);
/* The same for two lines at once. */
int64_t line_earliest_both(const struct reservation_line *a, const struct reservation_line *b,
                           int64_t from_ns, int64_t length_ns);
/* Reserves an interval that line_earliest found free. What ended by `now_ns` is forgotten. False
 * when memory ran out (nothing changed). */
bool line_reserve(struct reservation_line *l, int64_t now_ns, int64_t start_ns, int64_t end_ns,
                  uint32_t tag);
/* Replaces the interval of `tag` that starts nearest to `planned_start_ns` by what really happened.
 * Later intervals that it now overlaps move back, keeping their lengths; where intervals stay,
 * those before it are forgotten. False when it is forgotten already. */
bool line_correct(struct reservation_line *l, uint32_t tag, int64_t planned_start_ns,
                  int64_t start_ns, int64_t end_ns);
/* End of the last reservation; INT64_MIN when there is none. */
static inline int64_t line_end(const struct reservation_line *l)
{
    return l->n ? l->v[l->first + l->n - 1].end_ns : INT64_MIN;
}
void line_free(struct reservation_line *l);

#endif
