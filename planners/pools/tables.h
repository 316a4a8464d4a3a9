/* What the devices at each point of the grid can serve of one model, by one pipeline, by a pair
 * that shares devices, and by any set of them: dynamic programming over the grid. */
#ifndef HP_PLANNERS_POOLS_TABLES_H
#define HP_PLANNERS_POOLS_TABLES_H

#include "planners/pools/allocate.h"
#include "planners/pools/grid.h"

/* What serves best at one point of the grid: one pipeline, or two that share devices (b is -1, or
 * the second one's structure). */
struct table_origin {
    int a, b;
    double rate_a, rate_b;
};

struct table_item {
    int cell;
    int at[POOLS_MAX_KINDS];
    struct table_origin from;
    double rate;
};

struct rate_table {
    double
        *single; /* [cells]: best rate of one pipeline or pair that takes exactly these devices */
    struct table_origin *who; /* [cells]: which; a is -1 where there is none */
    struct table_item *items;
    int n_items;
    double *best; /* [cells]: best rate of any set of pipelines within these devices */
    int *last;    /* [levels][cells]: item taken last to reach it; -1: none */
    int n_levels; /* 1, or one for every sequence of kinds and pipeline that may use it */
};

struct sharing {
    const struct pools_problem *p;
    const struct pools_structures *by_model;
    enum pools_rule rule;
    struct grid g;
    struct rate_table *tables; /* by model */
    double **least;            /* [model][cells]: best max-min of models 0..m */
    const struct pools_allocation *base;
    const struct pools_chosen *pairs; /* by model: structures to pair; NULL: none */
};

/* Fills w->tables[m] for any number of pipelines of any structure. HP_ENOMEM. */
int table_unlimited(const struct sharing *w, int m, struct err *e);
/* The same for at most `limit` pipelines of one sequence of kinds. HP_ENOMEM. */
int table_limited(const struct sharing *w, int m, int limit, struct err *e);

#endif
