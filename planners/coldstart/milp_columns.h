/* Where each variable of a sub-model's programme stands. Columns stand in one fixed order, so that
 * building and reading agree without a table. */
#ifndef HP_PLANNERS_COLDSTART_MILP_COLUMNS_H
#define HP_PLANNERS_COLDSTART_MILP_COLUMNS_H

#include "planners/coldstart/milp_program.h"

/* J: slots in all; K: devices. */
struct milp_columns {
    int n, slots, devices, first_x, first_z, first_edge_in, first_copy_in, first_node_fin,
        first_place, first_dt_fin, first_sg_start, first_sg_fin, first_rank, total;
};

/* Where each family of variables begins among the columns. */
struct milp_columns milp_columns_of(const struct milp_sub_model *m);

/* Slots count from 1, as in the paper; x also has slot 0, host memory. */
static inline int milp_x_of(const struct milp_columns *c, int v, int slot)
{
    return c->first_x + v * (c->slots + 1) + slot;
}
static inline int milp_z_of(const struct milp_columns *c, int v, int slot)
{
    return c->first_z + v * c->slots + slot - 1;
}
static inline int milp_edge_in_of(const struct milp_columns *c, int v, int slot)
{
    return c->first_edge_in + v * c->slots + slot - 1;
}
static inline int milp_copy_in_of(const struct milp_columns *c, int v, int from, int slot)
{
    return c->first_copy_in + (v * c->devices + from) * c->slots + slot - 1;
}
static inline int milp_slot_column(int first, int slot)
{
    return first + slot - 1;
}

#endif
