/* Which points of a table slice x prefix to measure: a coarse grid first, from short slices and
 * prefixes to long ones, a row and a column in turn, then a whole new row or column wherever the
 * straight line between two of them errs most. Decides alone; whoever measures asks for the next
 * point and tells its time. */
#ifndef HP_AGENT_MEASURE_GRID_H
#define HP_AGENT_MEASURE_GRID_H

#include <stdbool.h>
#include <stdint.h>

enum { MEASURE_GRID_MOST = 24, MEASURE_GRID_AXES = 2 }; /* points of an axis; slices and prefixes */
#define GRID_DISTURBED 1.25 /* kernels change between slices: a little longer may be true */

struct grid_axis {
    uint32_t at[MEASURE_GRID_MOST];
    double doubt[MEASURE_GRID_MOST]; /* [i]: how far interpolation between i and i + 1 may be off,
                                as a share of the time */
    int n;
};

struct grid_point {
    uint32_t slice, prefix;
};

struct measure_grid {
    struct grid_axis axes[MEASURE_GRID_AXES];             /* 0: slices, 1: prefixes */
    double seconds[MEASURE_GRID_MOST][MEASURE_GRID_MOST]; /* [slice][prefix] */
    double tolerance;
    int stand[MEASURE_GRID_AXES]; /* of each axis so many lines are measured: the points where they
                                     cross */
    int line_points; /* points so far of the coarse grid's line that is being measured */
    int points;      /* of everything measured */
    /* the row or column that is tried: between `interval` and the next of `axis` */
    bool trying;
    int axis, interval, tried;
    uint32_t at;
    double line[MEASURE_GRID_MOST], worst;
};

/* Both axes rise and have 1 to MEASURE_GRID_MOST points; an axis of one point stays so.
 * `tolerance`: errors of interpolation up to it are let be; 1 or more: the coarse grid alone. */
void grid_begin(struct measure_grid *g, const uint32_t *slices, int n_slices,
                const uint32_t *prefixes, int n_prefixes, double tolerance);
/* The point to measure now; false when nothing more is worth it. Asking again without telling gives
 * the same. */
bool grid_next(struct measure_grid *g, struct grid_point *out);
void grid_tell(struct measure_grid *g, double seconds);
/* The coarse grid is done: the table is whole, and stays so whenever one stops. */
static inline bool grid_is_whole(const struct measure_grid *g)
{
    return g->stand[0] == g->axes[0].n && g->stand[1] == g->axes[1].n;
}
/* Before a line of the coarse grid: about what one run of each of its points takes, judged by the
 * last line. 0: there is no such choice now, be it that the least table (two slices where the axis
 * has two) does not stand yet, that a line is being measured, or that the grid is whole. */
double grid_line_seconds(const struct measure_grid *g);
/* Leaves out the lines of the coarse grid that do not stand yet; the least table has to. */
void grid_cut(struct measure_grid *g);
/* The grid is whole: a point that took much longer (GRID_DISTURBED) than one of a longer slice
 * behind no shorter a prefix, or the other way round, was disturbed, and takes its time: less work
 * cannot take longer. */
void grid_settle(struct measure_grid *g);
/* The largest doubt left. */
double grid_error(const struct measure_grid *g);
/* Time at any slice and prefix 0 .. largest, as a reader of the table would have it. */
double grid_at(const struct measure_grid *g, double slice, double prefix);

#endif
