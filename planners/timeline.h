/* Draws any plan: lanes (a device, a bus, a link, a stage) and intervals on them, as text for a
 * terminal, as SVG and as a Chrome trace (chrome://tracing, Perfetto). Knows nothing of what the
 * lanes mean, and writes into buffers only.
 *
 *     struct timeline t = {0};
 *     int gpu = timeline_add_lane(&t, "devices", "gpu0");
 *     timeline_add(&t, gpu, 0.0, 0.25, 3, "layer %d", 7);
 *     timeline_write_svg(&t, &out);
 *     timeline_free(&t);
 *
 * Times are seconds. An interval's `colour` is any number of at least 0: equal numbers have equal
 * colours; TIMELINE_STALL is grey. Not thread-safe; a timeline belongs to one owner. A failed
 * allocation leaves it `failed`, and writing it then gives HP_ENOMEM. */
#ifndef HP_PLANNERS_TIMELINE_H
#define HP_PLANNERS_TIMELINE_H

#include <stdbool.h>

#include "common/arena.h"
#include "common/bytes.h"

enum { TIMELINE_STALL = -1, TIMELINE_MAX_INTERVALS = 2000000, TIMELINE_MAX_LANES = 4096 };

struct timeline_lane {
    const char *group;       /* lanes of one group stand together: a process in the trace */
    const char *name, *note; /* `note` stands beside the name in pictures; "" none */
};

struct timeline_interval {
    int lane;
    double start_s, end_s;
    int colour;
    const char *label;
};

struct timeline {
    struct arena arena;         /* names and labels */
    const char *title, *legend; /* may be NULL; borrowed. The legend says what colours mean */
    struct timeline_lane *lanes;
    int n_lanes, lane_capacity;
    struct timeline_interval *intervals;
    int n_intervals, interval_capacity;
    double end_s; /* the latest end so far */
    bool failed;
};

/* The new lane's index, in drawing order from the top. Group and name are copied. */
int timeline_add_lane(struct timeline *t, const char *group, const char *name);
/* What is said beside its name; copied. */
void timeline_note_lane(struct timeline *t, int lane, const char *note_fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* An interval of a lane; one that ends before it starts is our bug. The label is copied, and may be
 * NULL for none. */
void timeline_add(struct timeline *t, int lane, double start_s, double end_s, int colour,
                  const char *label_fmt, ...) __attribute__((format(printf, 6, 7)));
void timeline_free(struct timeline *t);

/* One row a lane of at most `columns` characters in all, with the share of time it is busy, and an
 * axis below. `ansi` colours the blocks; without it a lane shows how full each column is with
 * "░▒▓█". 0 or HP_ENOMEM. */
int timeline_write_text(const struct timeline *t, int columns, bool ansi, struct buffer *out);
/* A page of SVG, readable without scripts; lanes stand under their group's name where there are
 * several groups, and hovering over an interval shows its label and times. 0 or HP_ENOMEM. */
int timeline_write_svg(const struct timeline *t, struct buffer *out);
/* {"traceEvents": [...]}: complete events in microseconds, a process a group, a thread a lane. 0 or
 * HP_ENOMEM. */
int timeline_write_trace(const struct timeline *t, struct buffer *out);

#endif
