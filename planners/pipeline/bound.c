#include "planners/pipeline/bound.h"

#include <math.h>

#include "planners/lp.h"

struct bound_kind {
    int kind, devices;
    double memory_bytes; /* of all of them */
    double busy_w;       /* the least of them */
};

/* Slicings are told apart by their number of slices, up to this many; the last stands for as many
 * and more. */
enum { COUNTS = 16 };

/* Least total seconds of one layer of a class over all slicings with 1, 2, ... COUNTS or more
 * slices: shortest paths over cut positions. reach has 2 * (n_units + 1). */
static void least_totals(const struct pipeline_cost *c, const double *table, double *reach,
                         double totals[COUNTS])
{
    int n = c->n_units;
    double *before = reach, *now = reach + n + 1;
    for (int j = 0; j <= n; j++)
        before[j] = j == 0 ? 0 : INFINITY;
    for (int m = 0; m < COUNTS; m++) {
        bool more = m == COUNTS - 1;
        for (int j = 0; j <= n; j++) {
            now[j] = INFINITY;
            for (int i = 0; i < j; i++) {
                double from = more && now[i] < before[i] ? now[i] : before[i],
                       t = from + table[c->row[i] + j];
                now[j] = t < now[j] ? t : now[j];
            }
        }
        totals[m] = now[n];
        double *swap = before;
        before = now;
        now = swap;
    }
}

static double least_slice(const struct pipeline_cost *c, const double *table)
{
    double least = INFINITY;
    for (size_t i = 0; i < c->table_size; i++)
        least = table[i] < least ? table[i] : least;
    return least;
}

/* Of each kind and class: totals by number of slices, and the shortest slice. */
struct bound_times {
    double totals[COUNTS], slice;
};

static int group_kinds(const struct pipeline_cost *c, struct bound_kind *kinds)
{
    int n = 0;
    for (int d = 0; d < c->n_devices; d++) {
        const struct cost_device *device = &c->devices[d];
        int k = 0;
        while (k < n && kinds[k].kind != device->kind)
            k++;
        if (k == n)
            kinds[n++] = (struct bound_kind){.kind = device->kind, .busy_w = INFINITY};
        kinds[k].devices++;
        kinds[k].memory_bytes += device->memory_bytes;
        kinds[k].busy_w = device->busy_w < kinds[k].busy_w ? device->busy_w : kinds[k].busy_w;
    }
    return n;
}

/* The columns are layers of class q on kind k, in fractions, and at last the makespan. */
struct bound_rows {
    int *load, *memory; /* [kinds] */
    int *classes;       /* [classes] */
    int fill;           /* column: the sum of u over all layers */
    int fill_row;
    int work; /* all stages together, at most one for each slice at any time */
};

static int add_rows(const struct pipeline_cost *c, const struct bound_kind *kinds, int n,
                    struct lp_program *p, enum pipeline_objective objective, int slices,
                    struct bound_rows *r, struct err *e)
{
    int makespan = lp_column_add(p, NULL, objective != PIPELINE_ENERGY, 0, INFINITY, false, e);
    r->fill = lp_column_add(p, NULL, 0, 0, INFINITY, false, e);
    r->fill_row = lp_row_add(p, NULL, LP_EQUAL, 0, e);
    r->work = lp_row_add(p, NULL, LP_AT_MOST, 0, e);
    if (makespan < 0 || r->fill < 0 || r->fill_row < 0 || r->work < 0 ||
        lp_term_add(p, r->fill_row, r->fill, -1, e) < 0 ||
        lp_term_add(p, r->work, makespan, -slices, e) < 0)
        return HP_ENOMEM;
    for (int k = 0; k < n; k++) {
        r->load[k] = lp_row_add(p, NULL, LP_AT_MOST, 0, e);
        r->memory[k] = lp_row_add(p, NULL, LP_AT_MOST, 1, e);
        if (r->load[k] < 0 || r->memory[k] < 0 ||
            lp_term_add(p, r->load[k], makespan, -kinds[k].devices, e) < 0 ||
            lp_term_add(p, r->load[k], r->fill, kinds[k].devices, e) < 0)
            return HP_ENOMEM;
    }
    for (int q = 0; q < c->n_classes; q++)
        if ((r->classes[q] = lp_row_add(p, NULL, LP_EQUAL,
                                        c->class_count[c->n_layers * c->n_classes + q], e)) < 0)
            return HP_ENOMEM;
    return 0;
}

/* The least memory of one layer of a class: profiles may give layers of one class different sizes.
 */
static double least_memory(const struct pipeline_cost *c, int class_index)
{
    double least = INFINITY;
    for (int l = 0; l < c->n_layers; l++)
        if (c->profile->layers[l].class_index == class_index &&
            cost_layers_bytes(c, l, l + 1) < least)
            least = cost_layers_bytes(c, l, l + 1);
    return least;
}

static int add_layers(struct pipeline_cost *c, const struct bound_kind *k, int index,
                      const struct exact_options *options, const struct bound_times *times, int m,
                      struct lp_program *p, const struct bound_rows *r, struct err *e)
{
    bool latency = options->objective == PIPELINE_LATENCY;
    for (int q = 0; q < c->n_classes; q++) {
        const struct bound_times *t = &times[index * c->n_classes + q];
        double total = t->totals[m];
        if (options->objective == PIPELINE_THROUGHPUT)
            total += c->decode_tokens * cost_decode_class_seconds(c, k->kind, q);
        double slice = latency ? (m == 0 ? total : t->slice) : 0;
        int column =
            lp_column_add(p, NULL, options->objective == PIPELINE_ENERGY ? total * k->busy_w : 0, 0,
                          INFINITY, false, e);
        if (column < 0 || lp_term_add(p, r->load[index], column, total - slice, e) < 0 ||
            lp_term_add(p, r->fill_row, column, slice, e) < 0 ||
            (latency && m < COUNTS - 1 && lp_term_add(p, r->work, column, total, e) < 0) ||
            lp_term_add(p, r->memory[index], column,
                        k->memory_bytes > 0 ? least_memory(c, q) / k->memory_bytes : 1e30, e) < 0 ||
            lp_term_add(p, r->classes[q], column, 1, e) < 0)
            return HP_ENOMEM;
    }
    return 0;
}

static uint64_t no_time(void *ctx)
{
    (void)ctx;
    return 0;
}

/* The bound over slicings with m + 1 slices (the last m: or more); INFINITY where there is no such
 * plan, 0 where it could not be computed. */
static double bound_of_count(struct pipeline_cost *c, const struct bound_kind *kinds, int n,
                             const struct exact_options *options, const struct bound_times *times,
                             int m, struct bound_rows *r)
{
    struct lp_program *p;
    struct err e = {0};
    struct lp_result result = {.outcome = LP_NOTHING};
    if (lp_program_create("pipeline", false, &p, &e) < 0)
        return 0;
    int rc = add_rows(c, kinds, n, p, options->objective, m + 1, r, &e);
    for (int k = 0; rc == 0 && k < n; k++)
        rc = add_layers(c, &kinds[k], k, options, times, m, p, r, &e);
    /* A programme of a few dozen columns needs no time limit, hence no clock. */
    const struct env timeless = {NULL, no_time, NULL};
    const struct lp_limits none = {0};
    if (rc == 0)
        rc = lp_program_solve(p, &none, &timeless, &result, &e);
    double bound = rc == 0 && result.outcome == LP_OPTIMAL ? result.objective * (1 - 1e-7) : 0;
    if (rc == 0 && result.outcome == LP_INFEASIBLE)
        bound = INFINITY;
    lp_program_destroy(&p);
    return bound;
}

double bound_of(struct pipeline_cost *c, const struct exact_options *options)
{
    struct bound_rows r;
    size_t n_devices = (size_t)c->n_devices, n_classes = (size_t)c->n_classes;
    struct bound_kind *kinds = arena_alloc(c->arena, n_devices, sizeof *kinds);
    struct bound_times *times = arena_alloc(c->arena, n_devices * n_classes, sizeof *times);
    double *reach = arena_alloc(c->arena, 2 * ((size_t)c->n_units + 1), sizeof *reach),
           least = INFINITY;
    r.load = arena_alloc(c->arena, n_devices, sizeof(int));
    r.memory = arena_alloc(c->arena, n_devices, sizeof(int));
    r.classes = arena_alloc(c->arena, n_classes, sizeof(int));
    if (!kinds || !times || !reach || !r.load || !r.memory || !r.classes)
        return 0;
    int n = group_kinds(c, kinds);
    for (int k = 0; k < n; k++)
        for (int q = 0; q < c->n_classes; q++) {
            const double *table = c->tables[kinds[k].kind * c->n_classes + q];
            struct bound_times *t = &times[k * c->n_classes + q];
            least_totals(c, table, reach, t->totals);
            t->slice = least_slice(c, table);
        }
    for (int m = 0; m < COUNTS && m < c->n_units; m++) {
        double bound = bound_of_count(c, kinds, n, options, times, m, &r);
        least = bound < least ? bound : least;
    }
    return isfinite(least) && least > 0 ? least : 0;
}
