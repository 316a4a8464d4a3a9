/* Numbers of devices by kind, as points of a grid. Plain arithmetic; nothing is owned. */
#ifndef HP_PLANNERS_POOLS_GRID_H
#define HP_PLANNERS_POOLS_GRID_H

#include <stdbool.h>

#include "planners/pools/problem.h"

/* Of one grid, and over the grids of all models. */
enum { POOLS_MAX_CELLS = 40000, POOLS_MAX_ALL_CELLS = 400000 };

/* Numbers of devices by kind, the last kind running fastest. */
struct grid {
    int n;
    int size[POOLS_MAX_KINDS], stride[POOLS_MAX_KINDS];
    int cells;
};

/* The grid of all numbers up to `available` by kind; no cells where they are too many to try. */
struct grid grid_over(const struct pools_problem *p, const int *available);
/* at[kind] of a point, and the point of at[kind]. */
void grid_coordinates(const struct grid *g, int cell, int *at);
int grid_cell(const struct grid *g, const int *at);
/* Steps through the grid's points in all dimensions but the last, between `from` and the end of the
 * grid; at[last] stays. False after the last. */
bool grid_next_row(const struct grid *g, const int *from, const int *end, int *at);

#endif
