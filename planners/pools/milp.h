/* The published programme (PPipe, appendix A.2: pipelines of one batch size over parts of devices),
 * for comparison. One pipeline for every sequence of kinds of up to max_stages stages (as many as
 * pipelines_per_assignment says); its stages' layers, share and batch are binary choices, its
 * shares whole numbers. Against the paper: the objective is the least throughput / weight; a
 * pipeline may stay unused; devices are whole, as the workload's sharing says. */
#ifndef HP_PLANNERS_POOLS_MILP_H
#define HP_PLANNERS_POOLS_MILP_H

#include "planners/pools/pools.h"

/* Writes the programme through rq->lp_put, then solves it within rq->time_limit_s (60 s when 0).
 * HP_ETIMEOUT: nothing found; HP_EINFEASIBLE. */
int pools_milp(const struct pools_problem *p, const struct pools_request *rq,
               struct pools_solution *s, struct err *e);

#endif
