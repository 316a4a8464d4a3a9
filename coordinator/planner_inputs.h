/* What the planner is given of a deployment, as it was at one moment: the cluster, the model's
 * costs, bytes by layer and by device. Made on the loop, once for every change of what it is made
 * of; read by any thread, since it never changes; counted, and counted on the loop only. */
#ifndef HP_COORDINATOR_PLANNER_INPUTS_H
#define HP_COORDINATOR_PLANNER_INPUTS_H

#include <stdint.h>

#include "common/cluster.h"
#include "common/profile.h"
#include "transport/frame.h"

struct coord;
struct deployment;

struct planner_inputs {
    uint32_t refs;
    uint64_t version;       /* planner_inputs_version when it was made */
    struct cluster cluster; /* what is free on each device beside its work space */
    struct profile profile; /* with bytes as `wire` has them */
    enum frame_dtype wire;
    struct arena arena;
    int n_layers;
    double *resident_bytes, *state_bytes_per_token; /* [n_layers] */
    double *free_bytes, *workspace_bytes;           /* [cluster.n_devices] */
    double stands_for;                              /* planner_stands_for */
};

/* Changes with everything that planner_inputs of this deployment depend on. */
uint64_t planner_inputs_version(const struct coord *c, const struct deployment *d);
/* The inputs as of now, counted once more. HP_ENOMEM, HP_EPARSE. */
int planner_inputs_get(struct coord *c, struct deployment *d, struct planner_inputs **out,
                       struct err *e);
void planner_inputs_release(struct planner_inputs **p);
/* A device of an agent, in `cluster`; -1: it may not be given stages now, or has no such device. */
int planner_inputs_device(const struct planner_inputs *p, const char *agent, int device);

#endif
