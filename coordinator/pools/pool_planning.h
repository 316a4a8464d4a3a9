/* Plans of pools, made on a worker: the agents as they are, the workload as it was applied, in; a
 * plan, laid out on their devices, out. */
#ifndef HP_COORDINATOR_POOLS_POOL_PLANNING_H
#define HP_COORDINATOR_POOLS_POOL_PLANNING_H

#include "coordinator/pools/pool_state.h"

struct pool_planning;

/* What became of it, on the loop. `plan` is the callee's (NULL: there is none, and why). */
typedef void (*pool_planned_fn)(struct coord *c, struct pool_plan *plan, uint64_t peer,
                                uint64_t ask, const struct err *why);

/* Whether an agent is one of those that the workload may use, and is ready. */
bool pool_member_is_wanted(const struct pool_spec *s, const struct member *m);
/* Which agents a workload may be planned on now, as a number that differs when they do; 0: none.
 */
uint64_t pool_members_hash(const struct coord *c, const struct pool_spec *s);
/* Begins; `done` comes once, unless the coordinator ends. `peer` and `ask` are handed on. HP_EBUSY,
 * HP_ENOMEM. *out (may be NULL) is NULL again before `done` is called. */
int pool_planning_begin(struct coord *c, struct pool_spec *s, uint64_t peer, uint64_t ask,
                        pool_planned_fn done, struct pool_planning **out, struct err *e);
/* Nobody wants its plan any more: `done` is not called. */
void pool_planning_drop(struct pool_planning **p);

#endif
