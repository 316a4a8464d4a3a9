/* A cold-start plan as JSON (hp-plan/1, kind "coldstart"), and judging one that anybody wrote. */
#ifndef HP_PLANNERS_COLDSTART_PLAN_FILE_H
#define HP_PLANNERS_COLDSTART_PLAN_FILE_H

#include "common/json.h"
#include "planners/coldstart/problem.h"
#include "planners/coldstart/timing.h"

/* Adds `contention`, `subgraphs`, `copies` and `predicted` to a plan object. `timing` has just run
 * this plan. HP_ENOMEM. */
int coldstart_plan_to_json(const struct coldstart_plan *plan, const struct timing *timing,
                           double bound_s, json_t *out);

/* Reads a plan into the arena. HP_EPARSE names file, path and value: also for a copy to a device
 * that is not on its bus, and for operators that run never or twice. */
int coldstart_plan_from_json(const struct json_at *at, const struct coldstart_problem *p,
                             struct arena *arena, struct coldstart_plan *out, struct err *e);

/* Whether a plan was made with contention on: what its `contention` says, else on. */
int coldstart_plan_contention(const struct json_at *at, bool *on, struct err *e);

#endif
