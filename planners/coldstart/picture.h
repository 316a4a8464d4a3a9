/* The time line of a cold-start plan: buses, devices and the links that are used. */
#ifndef HP_PLANNERS_COLDSTART_PICTURE_H
#define HP_PLANNERS_COLDSTART_PICTURE_H

#include "planners/coldstart/timing.h"
#include "planners/timeline.h"

/* Runs the plan once more with transfers recorded and fills an empty timeline. Equal colours are
 * equal kinds of work: the device that a bus loads for, and the mode in which an operator runs.
 * HP_ENOMEM. */
int coldstart_picture(struct timing *t, const struct coldstart_plan *plan, struct timeline *out);

#endif
