/* The integer programme that remains when fractions of a device may be shared across pipelines,
 * solved by lp_solve over a few promising structures, starting from a plan that is known:
 *
 *   maximise T   with, for every model m:  sum over its pipelines of x >= weight T,
 *   x <= X count for every stage,  sum of count / v over the stages on kind k at position d <=
 * D[m][k][d],  sum of D <= devices of kind k, count and D whole. */
#ifndef HP_PLANNERS_POOLS_POLISH_H
#define HP_PLANNERS_POOLS_POLISH_H

#include "common/env.h"
#include "planners/pools/allocate.h"

struct pools_polish {
    double seconds; /* spent in lp_solve */
    bool improved;
    bool proven; /* lp_solve searched everything: with these structures nothing better exists */
};

/* Replaces `a` by a plan with a higher objective if lp_solve finds one within `seconds`. HP_ENOMEM.
 */
int pools_polish(const struct pools_problem *p, const struct pools_structures *by_model,
                 const struct pools_chosen *chosen, double bound, double seconds,
                 const struct env *env, struct pools_allocation *a, struct pools_polish *out,
                 struct err *e);

#endif
