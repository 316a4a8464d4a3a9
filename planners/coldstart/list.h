/* A topology-aware list scheduler: operators in the order of what hangs on them, each on the
 * device, in the mode and with its parameters over the buses that let it end first, with links and
 * memory accounted for. */
#ifndef HP_PLANNERS_COLDSTART_LIST_H
#define HP_PLANNERS_COLDSTART_LIST_H

#include "planners/coldstart/problem.h"

/* Fills a plan made with coldstart_plan_init. HP_EINFEASIBLE where some operator found no device
 * with room and a path, HP_ENOMEM.
 */
int list_schedule(const struct coldstart_problem *p, struct coldstart_plan *out);

#endif
