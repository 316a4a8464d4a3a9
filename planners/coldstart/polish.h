/* The last step of a search: tries every single change of a plan in turn and keeps what helps,
 * until nothing does. */
#ifndef HP_PLANNERS_COLDSTART_POLISH_H
#define HP_PLANNERS_COLDSTART_POLISH_H

#include "planners/coldstart/search.h"

/* From the best plan, until the budget's progress reaches `until` or no change of one operator's
 * device, mode or place, of one copy's bus or place, or of two copies' places helps any more. */
void search_polish(struct coldstart_search *s, double until);

#endif
