/* The cluster that a deployment is planned on: members that may be given stages, with all their
 * devices, and what is free on each beside other deployments. */
#ifndef HP_COORDINATOR_PLANNER_CLUSTER_H
#define HP_COORDINATOR_PLANNER_CLUSTER_H

#include "common/cluster.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/model_facts.h"

/* Its texts are copies. HP_ENOMEM. */
int planner_cluster_make(const struct coord *c, const struct deployment *d, struct cluster *out,
                         struct err *e);
/* The same for whatever is no deployment: of all members that are wanted all of each device. */
struct planner_wish {
    bool (*wants)(const void *ctx, const struct member *m);
    const void *ctx;
};
int planner_cluster_of(const struct coord *c, const struct planner_wish *wish, struct cluster *out,
                       struct err *e);
/* Of a token, at the widest border between layers. */
struct frame_row planner_border_row(const struct model_facts *f);
/* Divides the width of every value that crosses a border in the hop's format. */
uint64_t planner_border_elements(const struct model_facts *f);
/* What each stage holds beside weights and KV cache, on this device of a member: work space, and
 * frames on their way to it where the member's pool has no room for them. */
double planner_workspace_bytes(const struct coord *c, const struct deployment *d,
                               const struct member *m, int device);
/* Free for this deployment on a device of a member, beside its own stages where it is planned so
 * (deployment.h, `beside`); 0 where there is no such device. */
double planner_free_bytes(const struct coord *c, const struct deployment *d, const struct member *m,
                          int device);

#endif
