/* Memory of devices: what a plan of pools takes of it, beside what deployments of language models
 * hold there, and the other way round. What shares of one model on one device have alike counts
 * once in a plan, as the agent has it. While one plan takes over from another both are there. */
#ifndef HP_COORDINATOR_POOLS_POOL_MEMORY_H
#define HP_COORDINATOR_POOLS_POOL_MEMORY_H

#include "common/cluster.h"
#include "coordinator/pools/pool_state.h"

/* A device of the cluster that has less than the plan's shares there need, by the profiles of the
 * workload, and how much is missing; -1: none. Any thread. */
int pool_memory_lacking(const struct pool_plan *p, const struct workload *w,
                        const struct cluster *c, struct err *e);
/* The plan is made without it. */
void pool_memory_leave_out(struct cluster *c, int device);
/* Writes what shares hold where planners of deployments see it; whenever plans come and go. */
void pool_memory_note(const struct coord *c);

#endif
