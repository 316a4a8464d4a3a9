#include "planners/pools/grid.h"

struct grid grid_over(const struct pools_problem *p, const int *available)
{
    struct grid g = {.n = p->n_kinds, .cells = 1};
    for (int k = g.n - 1; k >= 0; k--) {
        g.size[k] = available[k] + 1;
        g.stride[k] = g.cells;
        if (g.cells > POOLS_MAX_CELLS / g.size[k])
            return (struct grid){0};
        g.cells *= g.size[k];
    }
    return g;
}

void grid_coordinates(const struct grid *g, int cell, int *at)
{
    for (int k = 0; k < g->n; k++)
        at[k] = cell / g->stride[k] % g->size[k];
}

bool grid_next_row(const struct grid *g, const int *from, const int *end, int *at)
{
    for (int k = g->n - 2; k >= 0; k--) {
        if (++at[k] < end[k])
            return true;
        at[k] = from[k];
    }
    return false;
}

int grid_cell(const struct grid *g, const int *at)
{
    int c = 0;
    for (int k = 0; k < g->n; k++)
        c += at[k] * g->stride[k];
    return c;
}
