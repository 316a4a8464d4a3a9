/* A place for copies of keys and values that needs no second deployment (`deploy --replicate-to`):
 * a part of its own, NAME/copy, of one stage on one agent, which keeps what stages computed and has
 * no weights. It is made once the deployment serves, ends with it, and takes no memory that others
 * need: half of what is free on its device, and it goes when a stage or a share of a pool is to lie
 * there that finds no room beside it. Which of the copies goes when that is full is decided as for
 * all that is kept (prefixes.h). */
#ifndef HP_COORDINATOR_KEEPER_PLANS_H
#define HP_COORDINATOR_KEEPER_PLANS_H

#include "coordinator/deployment.h"

enum { KEEPER_PLAN_ENDING = sizeof "/copy" - 1 }; /* of its name */

/* Makes it where a deployment that serves wants one. */
void keeper_plan_step(struct coord *c, struct deployment *d);
/* Whether the one that it keeps for is there and still asks for it as it is, and it lies where it
 * should: not on an agent that has come to run stages of the deployment while there is another
 * one with room, and never on one that runs them all. */
bool keeper_plan_wanted(struct coord *c, const struct deployment *k);
/* Where it goes: the agent that was named, or the available one with most room for copies, of those
 * that have room at all one that has no stage of the deployment before one that has, where none
 * could be made lately only if there is no other, and none where a stage is on its way.
 * HP_EINFEASIBLE: there is none; HP_ENOMEM. */
int keeper_plan_place(struct coord *c, struct deployment *k, struct stage_layout **out,
                      struct err *e);
/* The keeper could not be made where it was to be. */
void keeper_plan_failed(const struct coord *c, struct deployment *k);
/* Whether there is no room for it beside what is to lie on its device. */
bool keeper_plan_yields(const struct coord *c, const struct deployment *k);
/* Whether it lies on an agent of one of these stages. */
bool keeper_plan_is_beside(const struct deployment *k, const struct deployment *to);

#endif
