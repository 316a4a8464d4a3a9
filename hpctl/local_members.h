/* A local cluster as its coordinator and its processes have it. */
#ifndef HP_HPCTL_LOCAL_MEMBERS_H
#define HP_HPCTL_LOCAL_MEMBERS_H

#include <jansson.h>

#include "hpctl/local_cluster.h"
#include "hpctl/progress.h"

/* {"name", "dir", "http", "coordinator": {"pid", "state"}, "agents": [...]}; the caller's. */
json_t *local_describe(const struct local_cluster *c);

/* Invites and starts every agent. HP_ECANCELED: local_interrupted(). */
int local_start_agents(struct local_cluster *c, struct progress_bar *bar, struct err *e);
/* Starts an agent that was there before. One that the cluster has forgotten (`node rm`), or that
 * has forgotten the cluster's key, is invited anew. */
int local_start_again(struct local_cluster *c, struct local_agent *a, struct err *e);

/* Waits until the coordinator calls `which` (NULL: every agent) ready, or one of them has died.
 * Draining is as good as ready. */
int local_wait_ready(const struct local_cluster *c, const struct local_agent *which,
                     struct progress_bar *bar, struct err *e);

#endif
