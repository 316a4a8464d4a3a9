/* Changes of a cold-start plan that leave it complete: every parameter that a resident operator
 * reads is copied somewhere, every operator in host mode that must read has its read. Whether it
 * can be carried out is for the judge to say. */
#ifndef HP_PLANNERS_COLDSTART_MOVES_H
#define HP_PLANNERS_COLDSTART_MOVES_H

#include "planners/coldstart/problem.h"

/* How a parameter's bus is chosen when all copies are laid out anew. */
enum moves_rule {
    MOVES_FIRST_FREE,    /* one after the other, over the bus that frees first */
    MOVES_FIRST_ARRIVAL, /* one after the other, over the bus that has it soonest on the device that
                            needs it */
    MOVES_FROM_THE_END,  /* from the last one backwards, over the bus with the least so far: buses
                            end together */
    MOVES_OWN_BUS,       /* the bus of the device that needs it */
    MOVES_RULES
};

struct moves {
    struct arena arena;
    const struct coldstart_problem *p;
    int *gates; /* [bus * n_devices + device]: where a copy over the bus lands that is for the
                   device */
    int *stamp; /* [node] */
    int now;    /* what a stamp must equal to count */
    int *reader_device; /* [node] of a parameter: the device of its first resident reader in the
                           order; -1: none */
    struct coldstart_copy *scratch;
    double *bus_s, *link_s;
};

/* Room for plans of up to `copy_capacity` copies. HP_ENOMEM. */
int moves_init(struct moves *m, const struct coldstart_problem *p, int copy_capacity);
void moves_fini(struct moves *m);

/* The device where a copy over `bus` lands that is meant for `device`: itself on its own bus, else
 * the one of that bus that reaches it fastest; COLDSTART_NOWHERE when none does. */
static inline int moves_gate(const struct moves *m, int bus, int device)
{
    return m->gates[bus * m->p->n_devices + device];
}

/* Chooses all copies' buses anew: in the order of use, or in the order in which they stand. */
void moves_lay_copies(struct moves *m, struct coldstart_plan *plan, enum moves_rule rule,
                      bool in_order_of_use);

/* Puts operators on a device. Copies of parameters for them follow, on their bus (`keep_bus`) or on
 * that of the device. */
void moves_set_device(struct moves *m, struct coldstart_plan *plan, const int *ops, int n,
                      int device, bool keep_bus);
/* Runs operators from host memory, or resident; what they had on the bus is replaced in its place,
 * copies over `bus` (-1: the device's own). */
void moves_set_host(struct moves *m, struct coldstart_plan *plan, const int *ops, int n, bool host,
                    int bus);
/* Moves the copies of parameters to a bus where it can serve their reader. */
void moves_set_bus(struct moves *m, struct coldstart_plan *plan, const int *params, int n, int bus);
/* Moves an operator past `places` others of its own device, earlier or later, as far as its inputs
 * and readers allow. `index` is its place in the order; false when it stays. */
bool moves_shift_op(const struct moves *m, struct coldstart_plan *plan, int index, int places,
                    bool earlier);
/* Moves the copy at `from` to `to`. */
void moves_shift_copy(struct coldstart_plan *plan, int from, int to);

#endif
