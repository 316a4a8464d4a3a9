/* SortingHat's mixed-integer programme (ICS 2025, section 3.3, equations 1 to 23), sub-model by
 * sub-model between dominators (section 3.1), each starting from the state that the one before left
 * behind.
 *
 * A sub-model's nodes are put into slots: slot 0 is host memory, device i has `slots` slots in the
 * order in which it runs them, odd ones from host memory and even ones resident. The published
 * constraints leave a cycle between slots possible where operators cost nothing; here the slots are
 * numbered along a topological order, so that a plan always runs. */
#ifndef HP_PLANNERS_COLDSTART_MILP_H
#define HP_PLANNERS_COLDSTART_MILP_H

#include "common/env.h"
#include "planners/coldstart/coldstart.h"
#include "planners/coldstart/problem.h"

struct milp_options {
    double time_limit_s; /* for all sub-models together */
    int dominators;      /* of each sub-model */
    int slots;           /* q: per device, even */
    const struct env *env;
    coldstart_program_fn program; /* receives each programme's text; may be NULL */
    void *program_ctx;
    void (*tell)(void *ctx, double progress,
                 double latency_s); /* before each sub-model; may be NULL */
    void *tell_ctx;
};

/* How it went. */
struct milp_outcome {
    int sub_models, proven; /* solved to the end */
    int without;      /* lp_solve had no solution in its time: the sub-model stays on one device */
    double latency_s; /* by the programme's own reckoning, where a slot takes in what it needs
                         before it runs */
};

/* Fills a plan made with coldstart_plan_init. HP_EINFEASIBLE where a sub-model has no solution,
 * HP_ELIMIT where one is too large, HP_EIO where `program` says false, HP_ENOMEM. */
int milp_schedule(const struct coldstart_problem *p, const struct milp_options *options,
                  struct coldstart_plan *out, struct milp_outcome *outcome, struct err *e);

#endif
