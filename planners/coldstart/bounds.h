/* What no plan can beat. */
#ifndef HP_PLANNERS_COLDSTART_BOUNDS_H
#define HP_PLANNERS_COLDSTART_BOUNDS_H

#include "planners/coldstart/problem.h"

struct coldstart_bounds {
    double load_s; /* every byte crosses some bus, and what follows the last of them still runs */
    double critical_path_s; /* the longest chain of operators, each at its fastest, with its own
                               loads */
    double work_s;          /* all operators at their fastest, spread evenly over all devices */
    double best_s;          /* the largest of these */
};

/* `known_s` is the latency of some plan: an operator that cannot run from host memory within it is
 * taken to be resident. The bounds hold for every plan that is no slower than that one. HP_ENOMEM.
 */
int coldstart_bounds_find(const struct coldstart_problem *p, double known_s,
                          struct coldstart_bounds *out);

#endif
