#include "agent/measure_grid.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Attention over a longer prefix at most; products beside it do not grow. */
#define PREFIX_GROWTH 4.0

void grid_begin(struct measure_grid *g, const uint32_t *slices, int n_slices,
                const uint32_t *prefixes, int n_prefixes, double tolerance)
{
    assert(n_slices >= 1 && n_slices <= MEASURE_GRID_MOST && n_prefixes >= 1 &&
           n_prefixes <= MEASURE_GRID_MOST);
    memset(g, 0, sizeof *g);
    memcpy(g->axes[0].at, slices, (size_t)n_slices * sizeof *slices);
    memcpy(g->axes[1].at, prefixes, (size_t)n_prefixes * sizeof *prefixes);
    g->axes[0].n = n_slices;
    g->axes[1].n = n_prefixes;
    g->tolerance = tolerance;
    g->stand[1] = 1; /* the first line has one point */
}

/* The cell of line `i` of an axis at `other` of the other one. */
static double *grid_cell(struct measure_grid *g, int axis, int i, int other)
{
    return axis == 0 ? &g->seconds[i][other] : &g->seconds[other][i];
}

static double time_between(double a, double b, uint32_t from, uint32_t to, uint32_t at)
{
    return a + (b - a) * ((double)(at - from) / (double)(to - from));
}

static double share_off(double guess, double truth)
{
    return truth > 0 ? fabs(guess - truth) / truth : 0;
}

/* How badly each line of the coarse grid would be guessed from its neighbours is what both
 * intervals beside it are doubted by. */
static void doubts_begin(struct measure_grid *g)
{
    for (int axis = 0; axis < MEASURE_GRID_AXES; axis++) {
        struct grid_axis *a = &g->axes[axis];
        int others = g->axes[1 - axis].n;
        if (a->n == 2)
            a->doubt[0] = 1;
        for (int i = 1; i + 1 < a->n; i++) {
            double worst = 0;
            for (int k = 0; k < others; k++)
                worst = fmax(worst, share_off(time_between(*grid_cell(g, axis, i - 1, k),
                                                           *grid_cell(g, axis, i + 1, k),
                                                           a->at[i - 1], a->at[i + 1], a->at[i]),
                                              *grid_cell(g, axis, i, k)));
            a->doubt[i - 1] = fmax(a->doubt[i - 1], worst);
            a->doubt[i] = fmax(a->doubt[i], worst);
        }
    }
}

/* Halfway, where kernels like it: multiples of 16 and 8 when there is room. */
static uint32_t axis_middle(uint32_t from, uint32_t to)
{
    uint32_t step = to - from >= 64 ? 16 : to - from >= 16 ? 4 : 1, at = from + (to - from) / 2;
    at = (at + step / 2) / step * step;
    return at > from && at < to ? at : from + (to - from) / 2;
}

/* Points closer than that tell of noise. */
static bool gap_is_wide(const struct grid_axis *a, int i)
{
    uint32_t gap = a->at[i + 1] - a->at[i];
    return gap >= 2 && gap > a->at[i] / 8;
}

static bool point_choose(struct measure_grid *g)
{
    double most = g->tolerance;
    for (int axis = 0; axis < MEASURE_GRID_AXES; axis++)
        for (int i = 0; i + 1 < g->axes[axis].n && g->axes[axis].n < MEASURE_GRID_MOST; i++)
            if (g->axes[axis].doubt[i] > most && gap_is_wide(&g->axes[axis], i)) {
                most = g->axes[axis].doubt[i];
                g->axis = axis;
                g->interval = i;
                g->trying = true;
            }
    g->tried = 0;
    g->worst = 0;
    if (g->trying)
        g->at = axis_middle(g->axes[g->axis].at[g->interval], g->axes[g->axis].at[g->interval + 1]);
    return g->trying;
}

/* A new slice is tried at prefix 0 first, a new prefix at the longest slice: there they matter
 * most. */
static int point_order(const struct measure_grid *g, int k)
{
    return g->axis == 0 ? k : g->axes[0].n - 1 - k;
}

/* Which axis gets the coarse grid's next line. */
static int line_axis(const struct measure_grid *g)
{
    bool slices = g->stand[0] < g->axes[0].n, prefixes = g->stand[1] < g->axes[1].n;
    return slices && (g->stand[0] <= g->stand[1] || !prefixes) ? 0 : 1;
}

double grid_line_seconds(const struct measure_grid *g)
{
    int axis = line_axis(g), last = g->stand[axis] - 1;
    const struct grid_axis *a = &g->axes[axis];
    if (grid_is_whole(g) || g->line_points > 0 || g->stand[0] < (g->axes[0].n > 1 ? 2 : 1))
        return 0;
    double seconds = 0, growth = (double)a->at[last + 1] / fmax(a->at[last], 1);
    for (int k = 0; k < g->stand[1 - axis]; k++)
        seconds += axis == 0 ? g->seconds[last][k] : g->seconds[k][last];
    return seconds * (axis == 0 ? growth : fmin(growth, PREFIX_GROWTH));
}

void grid_cut(struct measure_grid *g)
{
    assert(g->stand[0] >= 1);
    for (int axis = 0; axis < MEASURE_GRID_AXES; axis++)
        g->axes[axis].n = g->stand[axis];
    g->line_points = 0;
    doubts_begin(g);
}

static void line_tell(struct measure_grid *g, double seconds)
{
    int axis = line_axis(g);
    *grid_cell(g, axis, g->stand[axis], g->line_points) = seconds;
    if (++g->line_points < g->stand[1 - axis])
        return;
    g->stand[axis]++;
    g->line_points = 0;
    if (grid_is_whole(g))
        doubts_begin(g);
}

bool grid_next(struct measure_grid *g, struct grid_point *out)
{
    if (!grid_is_whole(g)) {
        int axis = line_axis(g);
        uint32_t at = g->axes[axis].at[g->stand[axis]],
                 other = g->axes[1 - axis].at[g->line_points];
        *out = axis == 0 ? (struct grid_point){at, other} : (struct grid_point){other, at};
        return true;
    }
    if (g->tolerance >= 1 || (!g->trying && !point_choose(g)))
        return false;
    uint32_t other = g->axes[1 - g->axis].at[point_order(g, g->tried)];
    *out = g->axis == 0 ? (struct grid_point){g->at, other} : (struct grid_point){other, g->at};
    return true;
}

static void line_insert(struct measure_grid *g)
{
    struct grid_axis *a = &g->axes[g->axis];
    int others = g->axes[1 - g->axis].n;
    for (int i = a->n; i > g->interval + 1; i--) {
        a->at[i] = a->at[i - 1];
        a->doubt[i] = a->doubt[i - 1];
        for (int k = 0; k < others; k++)
            *grid_cell(g, g->axis, i, k) = *grid_cell(g, g->axis, i - 1, k);
    }
    a->n++;
    a->at[g->interval + 1] = g->at;
    for (int k = 0; k < others; k++)
        *grid_cell(g, g->axis, g->interval + 1, k) = g->line[k];
    /* A bend leaves half of its error on one side, a smooth curve a quarter on both. */
    a->doubt[g->interval] = a->doubt[g->interval + 1] = g->worst / 2;
    g->stand[g->axis]++;
}

void grid_tell(struct measure_grid *g, double seconds)
{
    g->points++;
    if (!grid_is_whole(g)) {
        line_tell(g, seconds);
        return;
    }
    assert(g->trying);
    struct grid_axis *a = &g->axes[g->axis];
    int k = point_order(g, g->tried++);
    g->line[k] = seconds;
    double guess = time_between(*grid_cell(g, g->axis, g->interval, k),
                                *grid_cell(g, g->axis, g->interval + 1, k), a->at[g->interval],
                                a->at[g->interval + 1], g->at);
    g->worst = fmax(g->worst, share_off(guess, seconds));
    if (g->tried == 1 && g->worst <= g->tolerance) {
        a->doubt[g->interval] = g->worst;
        g->trying = false;
    } else if (g->tried == g->axes[1 - g->axis].n) {
        line_insert(g);
        g->trying = false;
    }
}

void grid_settle(struct measure_grid *g)
{
    assert(grid_is_whole(g));
    for (int i = g->axes[0].n; i-- > 0;)
        for (int k = g->axes[1].n; k-- > 0;) {
            double more = INFINITY;
            if (i + 1 < g->axes[0].n)
                more = g->seconds[i + 1][k];
            if (k + 1 < g->axes[1].n)
                more = fmin(more, g->seconds[i][k + 1]);
            if (g->seconds[i][k] > GRID_DISTURBED * more)
                g->seconds[i][k] = more;
        }
}

double grid_error(const struct measure_grid *g)
{
    double most = 0;
    for (int axis = 0; axis < MEASURE_GRID_AXES; axis++)
        for (int i = 0; i + 1 < g->axes[axis].n; i++)
            most = fmax(most, g->axes[axis].doubt[i]);
    return most;
}

static int interval_of(const struct grid_axis *a, double v, double *weight)
{
    int i = 0;
    *weight = 0;
    if (a->n == 1)
        return 0;
    while (i + 2 < a->n && a->at[i + 1] <= v)
        i++;
    *weight = (v - a->at[i]) / (double)(a->at[i + 1] - a->at[i]);
    return i;
}

double grid_at(const struct measure_grid *g, double slice, double prefix)
{
    double x, y;
    int i = interval_of(&g->axes[0], slice, &x), k = interval_of(&g->axes[1], prefix, &y);
    int next_i = i + (g->axes[0].n > 1), next_k = k + (g->axes[1].n > 1);
    double low = g->seconds[i][k] * (1 - y) + g->seconds[i][next_k] * y,
           high = g->seconds[next_i][k] * (1 - y) + g->seconds[next_i][next_k] * y;
    return low * (1 - x) + high * x;
}
