/* A sub-model's solution, read from the values of its columns. */
#include <math.h>

#include "planners/coldstart/milp_columns.h"

/* Times in the programme are milliseconds, so that coefficients lie near 1. */
static const double MS = 1e3;

void milp_program_read(struct milp_sub_model *m, const struct milp_state *before,
                       const double *values, struct milp_solution *out)
{
    struct milp_columns c = milp_columns_of(m);
    const struct coldstart_problem *p = m->p;
    out->state = *before;
    out->latency_s = values[c.total] / MS;
    for (int v = 0; v < m->n_nodes; v++)
        for (int j = 0; j <= c.slots; j++)
            if (values[milp_x_of(&c, v, j)] > 0.5)
                m->nodes[v].slot = j;
    for (int j = 1; j <= c.slots; j++)
        out->rank[j] = (int)lround(values[milp_slot_column(c.first_rank, j)] * 1000);
    for (int bus = 0; bus < p->n_buses; bus++)
        for (int k = 0, j; (j = milp_bus_slot(p, m->slots, bus, k)) > 0; k++)
            out->state.bus_free_s[bus] = values[milp_slot_column(c.first_dt_fin, j)] / MS;
    for (int i = 0; i < c.devices; i++)
        out->state.device_free_s[i] =
            values[milp_slot_column(c.first_sg_fin, (i + 1) * m->slots)] / MS;
    for (int v = 0; v < m->n_nodes; v++) {
        const struct milp_node *node = &m->nodes[v];
        if (node->is_op || node->slot == 0)
            continue;
        int home = milp_slot_device(m->slots, node->slot);
        uint64_t there = 1ull << home;
        if (node->fixed_device == COLDSTART_NOWHERE)
            out->state.used_bytes[home] += p->bytes[node->node];
        for (int k = 0; k < m->n_edges; k++) {
            int reader = m->nodes[m->edges[k][1]].slot, device = milp_slot_device(m->slots, reader);
            if (m->edges[k][0] != v || milp_slot_is_host(reader) || there & 1ull << device)
                continue;
            there |= 1ull << device;
            out->state.used_bytes[device] += p->bytes[node->node];
        }
    }
}
