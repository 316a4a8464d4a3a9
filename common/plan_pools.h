/* The pools part of a plan (file format hp-plan/1, kind "pools"): models, their pipelines, and the
 * pool of shares that runs each stage. Plain data; whoever serves reads only batch, layers, kind,
 * share and count. */
#ifndef HP_COMMON_PLAN_POOLS_H
#define HP_COMMON_PLAN_POOLS_H

#include <stddef.h>

#include "common/arena.h"
#include "common/json.h"
#include "common/status.h"

enum { PLAN_POOLS_MAX_STAGES = 16 };

struct plan_pools_stage {
    const char *kind;
    int first_layer, end_layer; /* [first, end) */
    int share;                  /* 1/share of a device */
    int count;                  /* shares in the pool */
    int devices;       /* whole devices it takes; 0: not given, so count / share rounded up */
    double compute_s;  /* of one batch; 0: not given */
    double transfer_s; /* of one sample to the next stage at full NIC rate; 0 for the last */
};

struct plan_pools_pipeline {
    int batch;
    double throughput_per_s; /* 0: not given */
    double latency_s;        /* of one batch through idle pools; 0: not given */
    struct plan_pools_stage *stages;
    int n_stages;
};

struct plan_pools_model {
    const char *name;
    double throughput_per_s; /* 0: not given */
    double slo_margin;       /* that it was planned with; below 0: the workload's */
    struct plan_pools_pipeline *pipelines;
    int n_pipelines;
};

struct plan_pools {
    struct plan_pools_model *models;
    int n_models;
    double normalized_throughput_per_s; /* least throughput / weight; 0: not given */
};

/* Reads the part into the arena. HP_EPARSE names path and value; a pipeline's layers must follow
 * each other from layer 0. */
int plan_pools_from_json(const struct json_at *at, struct arena *arena, struct plan_pools *out,
                         struct err *e);
/* Adds `models` and `predicted` to a plan object. HP_ENOMEM. */
int plan_pools_to_json(const struct plan_pools *p, json_t *plan);

#endif
