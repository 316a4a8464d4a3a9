/* Judges a plan of pools, whoever made it, by the conditions of hp-workload/1: layers, kinds,
 * shares, batches that were profiled, deadlines, devices, and that it does not promise more than it
 * can serve. */
#ifndef HP_PLANNERS_POOLS_CHECK_H
#define HP_PLANNERS_POOLS_CHECK_H

#include "common/cluster.h"
#include "common/plan_pools.h"
#include "common/workload.h"
#include "planners/pools/problem.h"

struct pools_check_options {
    int share_devices; /* 1 or 0; below 0: as the workload says */
    double slo_margin; /* below 0: as the plan says of each model, else as the workload does */
};

struct pools_check_result {
    double normalized_throughput_per_s; /* least throughput / weight, recomputed */
    double least_slack_s;               /* of the budget, over all pipelines */
    int devices[POOLS_MAX_KINDS];       /* in use, in the order of the cluster's kinds */
    int n_kinds;
};

/* 0 when every condition holds. HP_EINFEASIBLE: one does not, and the text says which and where.
 * HP_EINVAL: the workload itself does not fit the cluster; HP_ENOMEM. */
int pools_check(const struct plan_pools *plan, const struct cluster *c, const struct workload *w,
                const struct pools_check_options *options, struct pools_check_result *out,
                struct err *e);

/* A plan's stage in the problem's terms. HP_EINVAL names what is unknown: kind, share, batch, or
 * times that were not profiled. */
struct pools_placed {
    int kind, share, batch; /* indices */
    double compute_s, share_rate;
};
int pools_place(const struct pools_problem *p, int model,
                const struct plan_pools_pipeline *pipeline, int stage, struct pools_placed *out,
                struct err *e);

#endif
