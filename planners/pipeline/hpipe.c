#include "planners/pipeline/hpipe.h"

#include <math.h>
#include <stdlib.h>

#include "common/doubles.h"

/* ---- Algorithm 1 ---- */

/* Seconds of layers [0, l) for the whole prompt as one slice, on a kind. */
static double *whole_prompt_sums(struct pipeline_cost *c, int kind)
{
    double *sum = arena_alloc(c->arena, (size_t)c->n_layers + 1, sizeof *sum);
    for (int l = 0; sum && l < c->n_layers; l++)
        sum[l + 1] =
            sum[l] + cost_layers_seconds(c, kind, l, l + 1, c->tokens, c->cached_tokens, c->batch);
    return sum;
}

/* The programme's table: for stages 0..j with layers [0, end) the least that the slowest of them
 * can take, and where the last one begins then. */
struct partition {
    struct pipeline_cost *c;
    const int *devices;
    int n;
    size_t width;
    double *slowest; /* [stage * width + end] */
    int *begin;
};

/* The row of stage j, by that of the stage before; `sum`: seconds of layers on its device. */
static void partition_extend(const struct partition *p, int j, const double *sum)
{
    struct pipeline_cost *c = p->c;
    const double *earlier = j > 0 ? p->slowest + (size_t)(j - 1) * p->width : NULL;
    double *slowest = p->slowest + (size_t)j * p->width;
    for (int end = 0; end <= c->n_layers; end++) {
        double hop =
            j + 1 < p->n && end > 0
                ? cost_wire_seconds(c, p->devices[j], p->devices[j + 1], end, c->tokens, c->batch)
                : 0;
        slowest[end] = INFINITY;
        for (int first = j; first < end; first++) {
            double before = earlier ? earlier[first] : first == 0 ? 0 : INFINITY;
            double stage = sum[end] - sum[first] + hop, worst = before > stage ? before : stage;
            if (worst < slowest[end] && cost_fits(c, p->devices[j], first, end)) {
                slowest[end] = worst;
                p->begin[(size_t)j * p->width + (size_t)end] = first;
            }
        }
    }
}

int hpipe_partition(struct pipeline_cost *c, const int *devices, int n, int *ends, struct err *e)
{
    struct partition p = {.c = c, .devices = devices, .n = n, .width = (size_t)c->n_layers + 1};
    if (n > c->n_layers)
        return err_set(e, HP_EINFEASIBLE,
                       "%d devices for %d layers: HPipe gives each device at least one layer", n,
                       c->n_layers);
    p.slowest = arena_alloc(c->arena, (size_t)n * p.width, sizeof *p.slowest);
    p.begin = arena_alloc(c->arena, (size_t)n * p.width, sizeof *p.begin);
    if (!p.slowest || !p.begin)
        return err_no_memory(e, "planning a pipeline");
    for (int j = 0; j < n; j++) {
        const double *sum = whole_prompt_sums(c, c->devices[devices[j]].kind);
        if (!sum)
            return err_no_memory(e, "planning a pipeline");
        partition_extend(&p, j, sum);
    }
    int end = c->n_layers;
    if (!isfinite(p.slowest[(size_t)(n - 1) * p.width + (size_t)end]))
        return err_set(e, HP_EINFEASIBLE,
                       "the model does not fit over these %d devices in the given order: memory is "
                       "too small or two neighbours "
                       "are not connected",
                       n);
    for (int j = n - 1; j >= 0; j--) {
        ends[j] = end;
        end = p.begin[(size_t)j * p.width + (size_t)end];
    }
    return 0;
}

/* ---- Algorithm 2 ---- */

struct slicer {
    int n_units;
    const ptrdiff_t *row;
    const double *seconds;
    double bubble; /* n_stages - 1 */
    double *sum;   /* [n_units + 1] least sum of slice times up to a position */
    int *from;     /* [n_units + 1] where the last slice of it begins */
    double best_s, best_t_max;
};

/* Lines 4-11: the least sum with no slice above t_max; INFINITY where there is none. */
static double least_sum(struct slicer *s, double t_max)
{
    s->sum[0] = 0;
    for (int j = 1; j <= s->n_units; j++) {
        double best = INFINITY;
        int from = -1;
        for (int i = 0; i < j; i++) {
            double t = s->seconds[s->row[i] + j];
            if (t <= t_max && s->sum[i] + t < best) {
                best = s->sum[i] + t;
                from = i;
            }
        }
        s->sum[j] = best;
        s->from[j] = from;
    }
    return s->sum[s->n_units];
}

static double slices_weigh(struct slicer *s, double t_max)
{
    double sum = least_sum(s, t_max), total = sum + s->bubble * t_max;
    if (total < s->best_s) {
        s->best_s = total;
        s->best_t_max = t_max;
    }
    return sum;
}

/* The sweep over t[lo + 1 .. hi - 1]. A larger t_max never makes the sum larger, so what lies
 * between two that are known is at least sum_hi + bubble * t[lo + 1]; whole ranges fall away
 * without being tried, and the minimum stays that of trying every one.
 */
static void slices_sweep(struct slicer *s, const double *t, int lo, int hi, double sum_lo,
                         double sum_hi)
{
    if (hi - lo < 2 || sum_lo <= sum_hi || sum_hi + s->bubble * t[lo + 1] >= s->best_s)
        return;
    int mid = lo + (hi - lo) / 2;
    double sum_mid = slices_weigh(s, t[mid]);
    slices_sweep(s, t, lo, mid, sum_lo, sum_mid);
    slices_sweep(s, t, mid, hi, sum_mid, sum_hi);
}

int hpipe_slices(int n_units, const ptrdiff_t *row, const double *seconds, int n_stages,
                 struct arena *arena, int *cuts, int *n_slices, struct err *e)
{
    size_t cells = (size_t)n_units * ((size_t)n_units + 1) / 2;
    struct slicer s = {n_units, row, seconds, n_stages - 1, NULL, NULL, INFINITY, INFINITY};
    s.sum = arena_alloc(arena, (size_t)n_units + 1, sizeof *s.sum);
    s.from = arena_alloc(arena, (size_t)n_units + 1, sizeof *s.from);
    double *t = arena_memdup(arena, seconds, cells * sizeof *t);
    if (!s.sum || !s.from || !t)
        return err_no_memory(e, "planning a pipeline");
    doubles_sort(t, cells);
    int distinct = 0;
    for (size_t i = 0; i < cells; i++)
        if (distinct == 0 || t[i] > t[distinct - 1])
            t[distinct++] = t[i];
    double sum_hi = slices_weigh(&s, t[distinct - 1]),
           sum_lo = distinct > 1 ? slices_weigh(&s, t[0]) : sum_hi;
    slices_sweep(&s, t, 0, distinct - 1, sum_lo, sum_hi);
    least_sum(&s, s.best_t_max);
    int n = 0;
    for (int j = n_units; j > 0; j = s.from[j])
        n++;
    *n_slices = n;
    for (int j = n_units; n >= 0; j = s.from[j])
        cuts[n--] = j;
    return 0;
}

double *hpipe_slice_seconds(struct pipeline_cost *c, const int *devices, const int *ends, int n,
                            bool hops, struct err *e)
{
    double *out = arena_alloc(c->arena, c->table_size, sizeof *out);
    if (!out) {
        err_no_memory(e, "planning a pipeline");
        return NULL;
    }
    for (int s = 0; s < n; s++) {
        int first = s ? ends[s - 1] : 0, kind = c->devices[devices[s]].kind;
        double wire = hops && s + 1 < n
                          ? cost_wire_seconds(c, devices[s], devices[s + 1], ends[s], 1, c->batch)
                          : 0;
        for (int i = 0; i < c->n_units; i++)
            for (int j = i + 1; j <= c->n_units; j++) {
                double t = cost_units_seconds(c, kind, first, ends[s], i, j) +
                           wire * (c->starts[j] - c->starts[i]);
                double *cell = &out[c->row[i] + j];
                *cell = t > *cell ? t : *cell;
            }
    }
    return out;
}
