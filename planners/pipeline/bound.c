#include "planners/pipeline/bound.h"

#include <math.h>

#include "planners/lp.h"

struct bound_kind {
    int kind, devices;
    double memory_bytes; /* of all of them */
    double busy_w;       /* the least of them */
};

/* Least total seconds of one layer of a class over all slicings: a shortest path over cut positions. */
static double least_total(const struct cost *c, const double *table, double *reach)
{
    reach[0] = 0;
    for (int j = 1; j <= c->n_units; j++) {
        reach[j] = INFINITY;
        for (int i = 0; i < j; i++) {
            double t = reach[i] + table[c->row[i] + j];
            reach[j] = t < reach[j] ? t : reach[j];
        }
    }
    return reach[c->n_units];
}

static double least_slice(const struct cost *c, const double *table)
{
    double least = INFINITY;
    for (size_t i = 0; i < c->table_size; i++)
        least = table[i] < least ? table[i] : least;
    return least;
}

static int group_kinds(const struct cost *c, struct bound_kind *kinds)
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
};

static int add_rows(const struct cost *c, const struct bound_kind *kinds, int n, struct lp_program *p, enum pipeline_objective objective,
                    struct bound_rows *r, struct err *e)
{
    int makespan = lp_column_add(p, NULL, objective != PIPELINE_ENERGY, 0, INFINITY, false, e);
    r->fill = lp_column_add(p, NULL, 0, 0, INFINITY, false, e);
    r->fill_row = lp_row_add(p, NULL, LP_EQUAL, 0, e);
    if (makespan < 0 || r->fill < 0 || r->fill_row < 0 || lp_term_add(p, r->fill_row, r->fill, -1, e) < 0)
        return HP_ENOMEM;
    for (int k = 0; k < n; k++) {
        r->load[k] = lp_row_add(p, NULL, LP_AT_MOST, 0, e);
        r->memory[k] = lp_row_add(p, NULL, LP_AT_MOST, 1, e);
        if (r->load[k] < 0 || r->memory[k] < 0 || lp_term_add(p, r->load[k], makespan, -kinds[k].devices, e) < 0 ||
            lp_term_add(p, r->load[k], r->fill, kinds[k].devices, e) < 0)
            return HP_ENOMEM;
    }
    for (int q = 0; q < c->n_classes; q++)
        if ((r->classes[q] = lp_row_add(p, NULL, LP_EQUAL, c->class_count[c->n_layers * c->n_classes + q], e)) < 0)
            return HP_ENOMEM;
    return 0;
}

/* The least memory of one layer of a class: profiles may give layers of one class different sizes. */
static double least_memory(const struct cost *c, int class_index)
{
    double least = INFINITY;
    for (int l = 0; l < c->n_layers; l++)
        if (c->profile->layers[l].class_index == class_index && cost_memory_bytes(c, l, l + 1) < least)
            least = cost_memory_bytes(c, l, l + 1);
    return least;
}

static int add_layers(struct cost *c, const struct bound_kind *k, int index, const struct exact_options *options, struct lp_program *p,
                      const struct bound_rows *r, double *reach, struct err *e)
{
    bool fills = options->objective == PIPELINE_LATENCY;
    for (int q = 0; q < c->n_classes; q++) {
        const double *table = c->tables[k->kind * c->n_classes + q];
        double total = least_total(c, table, reach), slice = fills ? least_slice(c, table) : 0;
        int column = lp_column_add(p, NULL, options->objective == PIPELINE_ENERGY ? total * k->busy_w : 0, 0, INFINITY, false, e);
        if (column < 0 || lp_term_add(p, r->load[index], column, total - slice, e) < 0 || lp_term_add(p, r->fill_row, column, slice, e) < 0 ||
            lp_term_add(p, r->memory[index], column, k->memory_bytes > 0 ? least_memory(c, q) / k->memory_bytes : 1e30, e) < 0 ||
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

double bound_of(struct cost *c, const struct exact_options *options)
{
    struct lp_program *p;
    struct err e = {0};
    struct bound_rows r;
    struct lp_result result = {.outcome = LP_NOTHING};
    size_t n_devices = (size_t)c->n_devices;
    struct bound_kind *kinds = arena_alloc(c->arena, n_devices, sizeof *kinds);
    double *reach = arena_alloc(c->arena, (size_t)c->n_units + 1, sizeof *reach);
    r.load = arena_alloc(c->arena, n_devices, sizeof(int));
    r.memory = arena_alloc(c->arena, n_devices, sizeof(int));
    r.classes = arena_alloc(c->arena, (size_t)c->n_classes, sizeof(int));
    if (!kinds || !reach || !r.load || !r.memory || !r.classes || lp_program_create("pipeline", false, &p, &e) < 0)
        return 0;
    int n = group_kinds(c, kinds), rc = add_rows(c, kinds, n, p, options->objective, &r, &e);
    for (int k = 0; rc == 0 && k < n; k++)
        rc = add_layers(c, &kinds[k], k, options, p, &r, reach, &e);
    /* A programme of a few dozen columns needs no time limit, hence no clock. */
    const struct env timeless = {NULL, no_time, NULL};
    const struct lp_limits none = {0};
    if (rc == 0)
        rc = lp_program_solve(p, &none, &timeless, &result, &e);
    double bound = rc == 0 && result.outcome == LP_OPTIMAL ? result.objective * (1 - 1e-7) : 0;
    lp_program_destroy(&p);
    return bound > 0 ? bound : 0;
}
