/* What must be served: models with weights, deadlines and profiles (file format hp-workload/1). */
#ifndef HP_COMMON_WORKLOAD_H
#define HP_COMMON_WORKLOAD_H

#include <stdbool.h>

#include "common/arena.h"
#include "common/json.h"
#include "common/profile.h"
#include "common/status.h"

enum {
    WORKLOAD_MAX_MODELS = 256,
    WORKLOAD_MAX_STAGES = 4,
    WORKLOAD_MAX_SHARES = 8,
    WORKLOAD_MAX_SHARE = 64
};

struct workload_model {
    const char *name;
    const char *profile_file; /* as a path that can be opened from where the process stands; where
                                 the document has none, what people are told instead */
    bool has_profile_file;
    bool spares_kinds; /* devices of a kind that the profile does not know serve nothing of it; else
                          that they are there is an error. The file says nothing of it */
    struct profile profile; /* fixed shape; empty (n_layers 0) unless they were read */
    double weight;          /* > 0; its part of the load is weight / sum of weights */
    double slo_s;           /* a request that takes longer is worthless */
    double slo_margin;      /* part of the SLO that planning leaves to queueing */
    bool has_batching; /* planning charges factor * (batch - 1) / throughput for filling a batch */
    double batching_factor, batching_throughput_per_s;
};

/* Into how many equal parts a device of this kind may be cut. */
struct workload_shares {
    const char *kind;
    int shares[WORKLOAD_MAX_SHARES]; /* strictly rising */
    int n_shares;
};

struct workload {
    struct arena arena; /* owns all below except the profiles, which own themselves */
    struct workload_model *models;
    int n_models;
    double slo_margin;    /* default of the models' */
    double replan_margin; /* who serves it corrects profiles and replans where batches take so much
                             more, or less, than planned (0.2: a fifth); 0: never */
    int max_stages;       /* 1 to WORKLOAD_MAX_STAGES */
    int pipelines_per_assignment; /* of one sequence of kinds; 0: any number */
    struct workload_shares *shares;
    int n_shares;
    bool share_devices_across_pipelines;
    bool memory_counts; /* not of the file: a device holds no more than its memory */
};

/* Reads a document. `folder` is what relative profile paths are relative to ("" for the current
 * one). No profile is opened. Zero-initialise before. On failure nothing is left to free. HP_EPARSE
 * names the path and the value. */
int workload_from_json(const struct json_at *at, const char *folder, struct workload *out,
                       struct err *e);
/* Reads a file and opens the profile of every model. HP_EINVAL when one is not of fixed shape;
 * HP_EPARSE (also where a model names none), HP_ENOENT. */
int workload_load(const char *file, struct workload *out, struct err *e);
void workload_free(struct workload *w);

/* Shares allowed for a kind; {1} where the workload does not say. */
struct workload_shares workload_shares_of(const struct workload *w, const char *kind);
/* Index of a model; -1 when there is none of that name. */
int workload_find_model(const struct workload *w, const char *name);

#endif
