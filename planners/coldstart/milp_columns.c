#include "planners/coldstart/milp_columns.h"

struct milp_columns milp_columns_of(const struct milp_sub_model *m)
{
    int j = m->p->n_devices * m->slots, n = m->n_nodes, at = 0;
    struct milp_columns c = {.n = n, .slots = j, .devices = m->p->n_devices};
    c.first_x = at, at += n * (j + 1);
    c.first_z = at, at += n * j;
    c.first_edge_in = at, at += n * j;
    c.first_copy_in = at, at += n * c.devices * j;
    c.first_node_fin = at, at += n;
    c.first_place = at, at += n;
    c.first_dt_fin = at, at += j;
    c.first_sg_start = at, at += j;
    c.first_sg_fin = at, at += j;
    c.first_rank = at, at += j;
    c.total = at;
    return c;
}
