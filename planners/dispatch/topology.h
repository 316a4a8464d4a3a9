/* A plan of pools laid out on a cluster: which share of a device stands on which node, and what
 * every batch size costs there. What the scheduler and the simulator work on; made once, then only
 * read.
 *
 * Devices of a kind are handed out in order, pipeline by pipeline and stage by stage; shares of one
 * device stand next to each other. */
#ifndef HP_PLANNERS_DISPATCH_TOPOLOGY_H
#define HP_PLANNERS_DISPATCH_TOPOLOGY_H

#include <stdint.h>

#include "common/arena.h"
#include "common/cluster.h"
#include "common/plan_pools.h"
#include "common/status.h"
#include "common/workload.h"
#include "planners/pools/problem.h"

struct dispatch_share {
    int node, kind;
    int device;         /* of its kind, counted from 0 */
    int cluster_device; /* index into the cluster's devices; -1 where the cluster is hypothetical */
    double part;        /* of the device */
};

struct dispatch_stage {
    int first_share, n_shares; /* its pool: a run of topology.shares */
    int kind;
    int64_t *compute_ns;    /* [batch]: 1 to the pipeline's batch */
    int64_t *transfer_ns;   /* [batch]: to the next stage at full NIC rate; 0 for the last */
    int64_t hop_latency_ns; /* after the transfer, before the next stage has it */
};

struct dispatch_pipeline {
    int model, batch, n_stages;
    int beside; /* 0, or 1 + the pipeline whose shares are its own too, stage by stage: what one
                   reserves there is not free for the other */
    struct dispatch_stage stages[PLAN_POOLS_MAX_STAGES];
    double rate; /* requests per second that its pools can serve, compute and NICs */
};

struct dispatch_model {
    const char *name;
    double weight, rate; /* rate: sum of its pipelines' */
    double planned_rate; /* what the plan promises; rate when it promises nothing */
    int64_t slo_ns;
    int first_pipeline, n_pipelines;
};

struct dispatch_topology {
    struct arena arena; /* owns all below */
    struct dispatch_model *models;
    int n_models;
    struct dispatch_pipeline *pipelines;
    int n_pipelines;
    struct dispatch_share *shares;
    int n_shares;
    int n_nodes;
    const char *kinds[POOLS_MAX_KINDS];
    int devices[POOLS_MAX_KINDS]; /* of the plan, by kind */
    int n_kinds;
};

/* Models of the workload that the plan does not serve get no pipelines. `share_devices` below 0: as
 * the workload says, and shared when the plan fits only so. Zero-initialise `out`; on failure
 * nothing is left to free. HP_EINVAL: the plan names what cluster, workload or profile do not have,
 * a batch that was not profiled; HP_EINFEASIBLE: more devices than there are; HP_ENOMEM. */
int dispatch_topology_make(const struct plan_pools *plan, const struct cluster *c,
                           const struct workload *w, int share_devices,
                           struct dispatch_topology *out, struct err *e);
/* The same models once more behind those of `t`, as they are in `other`, a topology of the same
 * plan with other costs (another size of the same networks): their pipelines run on the same
 * shares. Those whose `also` is false are left out. HP_EINVAL: `other` is of another plan;
 * HP_ENOMEM. */
int dispatch_topology_add(struct dispatch_topology *t, const struct dispatch_topology *other,
                          const bool *also, struct err *e);
void dispatch_topology_free(struct dispatch_topology *t);

#endif
