/* Where a graph narrows to one operator, and which nodes of different layers are equal (SortingHat,
 * ICS 2025, section 3.1). */
#ifndef HP_PLANNERS_COLDSTART_DOMINATORS_H
#define HP_PLANNERS_COLDSTART_DOMINATORS_H

#include "planners/coldstart/problem.h"

/* The operators that lie on every path from an input (an operator without operator inputs) to an
 * output (one that nobody reads), as positions in the topological order, ascending. `positions` has
 * room for n_ops; gives their number, or HP_ENOMEM. */
int dominators_find(const struct coldstart_problem *p, int *positions);

/* Equal nodes of all layers: nodes of one class have equal times and bytes and equal
 * neighbourhoods, and stand at the same place within the stretch between two dominators. */
struct node_classes {
    int *class_of; /* [node] */
    int n;
    int *members_at,
        *members;    /* nodes of class c: members[members_at[c] .. members_at[c + 1]), ascending */
    int *op_classes; /* the classes of operators */
    int n_op_classes;
    int *param_classes;
    int n_param_classes;
};

/* HP_ENOMEM. */
int node_classes_find(const struct coldstart_problem *p, struct arena *arena,
                      struct node_classes *out);

#endif
