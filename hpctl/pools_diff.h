/* What differs between two plans of pools, as text. */
#ifndef HP_HPCTL_POOLS_DIFF_H
#define HP_HPCTL_POOLS_DIFF_H

#include <jansson.h>

/* `next` is hp-plan/1 of kind "pools"; `serves` too, or null: nothing serves. */
void pools_diff_print(const json_t *serves, const json_t *next);
/* Why it is another (`reasons`: sentences), and what else was weighed for `next`. */
void pools_diff_why_print(const json_t *reasons, const json_t *next);

#endif
