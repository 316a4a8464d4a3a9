/* A cold start as the planners see it: the graph with its times and bytes in flat tables, and a
 * plan in a form that a search can change quickly.
 *
 * Nodes are indices of the graph. Times are seconds. A problem is read-only once made and may be
 * shared by threads. */
#ifndef HP_PLANNERS_COLDSTART_PROBLEM_H
#define HP_PLANNERS_COLDSTART_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/opgraph.h"
#include "common/status.h"

struct coldstart_problem {
    struct arena arena;
    const struct opgraph *graph; /* borrowed */
    bool contention;             /* reads from host memory take their time on the bus */
    int n_nodes, n_ops, n_params, n_devices, n_buses;
    const int *topological;              /* [n_ops] */
    int *op_inputs_at, *op_inputs;       /* operators that operator v waits for */
    int *param_inputs_at, *param_inputs; /* parameters that operator v reads */
    const int *readers_at, *readers;     /* operators that read node v */
    bool *is_op;
    double *bytes;
    double *exec_s, *host_exec_s; /* [node * n_devices + device] */
    double *load_s;               /* [parameter * n_buses + bus]: a copy, overhead included */
    double *read_s; /* [operator * n_buses + bus]: the bus time of running in place; 0 with
                       contention off */
    bool *reads; /* operator v puts a read on the bus when it runs in place: it has bytes to read */
    double *memory_bytes;     /* [device] */
    double *peer_bytes_per_s; /* [from * n_devices + to] */
    int *bus_of;              /* [device] */
};

/* HP_EINFEASIBLE where the parameters of one operator exceed every device's memory, HP_ENOMEM. */
int coldstart_problem_init(struct coldstart_problem *p, const struct opgraph *g, bool contention,
                           struct err *e);
void coldstart_problem_fini(struct coldstart_problem *p);

enum { COLDSTART_NOWHERE = -1 };

/* One turn of a bus: that of `device` (a copy), or that of the device which runs operator `node` (a
 * read). */
struct coldstart_copy {
    int32_t node;
    int8_t device;
    int8_t to; /* also forwarded to this device, or COLDSTART_NOWHERE */
    bool read;
};

/* What to do. A device runs its own operators in the order in which they stand in `order`; a bus
 * its own copies likewise. */
struct coldstart_plan {
    int32_t *order; /* [n_ops], every operator once */
    int8_t *device; /* [node] of an operator */
    bool *host;     /* [node] an operator that reads its parameters in place */
    struct coldstart_copy *copies;
    int n_copies, capacity;
};

/* Room for a plan in which every parameter is copied to up to two devices, or `capacity` copies
 * where that is more. All operators in topological order on device 0, resident, no copies.
 * NULL-filled and HP_ENOMEM on failure. */
int coldstart_plan_init(const struct coldstart_problem *p, int capacity, struct arena *arena,
                        struct coldstart_plan *out);
/* Copies all of `from` over `to`, whose capacity must suffice (plans of one problem made with one
 * capacity do). */
void coldstart_plan_copy(const struct coldstart_problem *p, struct coldstart_plan *to,
                         const struct coldstart_plan *from);

static inline void coldstart_plan_add(struct coldstart_plan *plan, int node, int device, bool read)
{
    plan->copies[plan->n_copies++] =
        (struct coldstart_copy){node, (int8_t)device, COLDSTART_NOWHERE, read};
}

/* Whether an operator gains anything by reading in place, so that a planner may consider it. */
static inline bool coldstart_has_params(const struct coldstart_problem *p, int v)
{
    return p->param_inputs_at[v] < p->param_inputs_at[v + 1];
}

#endif
