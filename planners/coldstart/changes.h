/* Single random steps of the search around a plan. */
#ifndef HP_PLANNERS_COLDSTART_CHANGES_H
#define HP_PLANNERS_COLDSTART_CHANGES_H

#include "planners/coldstart/search.h"

/* Each changes s->candidate; false: nothing changed. */

/* Devices, modes and order change; then all copies' buses are chosen anew by a rule. */
bool change_coarse(struct coldstart_search *s);
/* One operator's or one copy's place changes, and everything else stays. */
bool change_fine(struct coldstart_search *s);

#endif
