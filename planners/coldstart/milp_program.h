/* One sub-model of SortingHat as a programme: what planners/coldstart/milp.c rolls along the graph.
 */
#ifndef HP_PLANNERS_COLDSTART_MILP_PROGRAM_H
#define HP_PLANNERS_COLDSTART_MILP_PROGRAM_H

#include "planners/coldstart/problem.h"
#include "planners/lp.h"

/* A node of a sub-model. Placeholders stand for what earlier sub-models left: they cost nothing
 * here and stay where they are. */
struct milp_node {
    int node;
    bool is_op;
    int fixed_device; /* COLDSTART_NOWHERE: free */
    int slot;         /* of the solution: 0 host memory, else 1 + device * slots + k */
};

/* What the sub-models before left behind, in seconds and bytes. */
struct milp_state {
    double bus_free_s[OPGRAPH_MAX_BUSES];      /* PrevDTFin */
    double device_free_s[OPGRAPH_MAX_DEVICES]; /* PrevSGFin */
    double used_bytes[OPGRAPH_MAX_DEVICES];    /* PrevM */
};

struct milp_sub_model {
    const struct coldstart_problem *p;
    int slots; /* q: of each device, even */
    struct milp_node *nodes;
    int n_nodes;
    int (*edges)[2]; /* between local indices */
    int n_edges;
};

struct milp_solution {
    enum lp_outcome outcome;
    double latency_s, bound_s;
    int *rank;               /* [slots in all + 1] slots in an order in which they can run */
    struct milp_state state; /* after this sub-model */
};

/* Writes the programme of a sub-model. HP_ENOMEM. */
int milp_program_build(const struct milp_sub_model *m, const struct milp_state *before,
                       struct lp_program **out, struct err *e);
/* Reads slots (into m->nodes) and the state after it from the values of a solution. */
void milp_program_read(struct milp_sub_model *m, const struct milp_state *before,
                       const double *values, struct milp_solution *out);

/* The k-th slot of a bus, 0, 1, ...: devices of the bus take turns, slot by slot. -1 past the last.
 */
int milp_bus_slot(const struct coldstart_problem *p, int slots, int bus, int k);
static inline int milp_slot_device(int slots, int slot)
{
    return (slot - 1) / slots;
}
static inline bool milp_slot_is_host(int slot)
{
    return slot % 2 == 1;
}

#endif
