/* A cluster and a workload as the numbers that pool planning works with (PPipe, USENIX ATC 2025,
 * section 3 and tables 3 and 5).
 *
 * Plain data, made once and then only read, except for the models' budgets, which follow the
 * margin. Kinds, shares, batches and layers are small integers here; their names are the cluster's
 * and the workload's, which must outlive the problem. */
#ifndef HP_PLANNERS_POOLS_PROBLEM_H
#define HP_PLANNERS_POOLS_PROBLEM_H

#include <stdbool.h>

#include "common/arena.h"
#include "common/cluster.h"
#include "common/status.h"
#include "common/workload.h"

enum {
    POOLS_MAX_KINDS = 8,
    POOLS_MAX_STAGES = WORKLOAD_MAX_STAGES,
    POOLS_MAX_LAYERS = 64,
    POOLS_MAX_BATCHES = 64
};

/* Seconds that the model's own ends count as, in and out, so that a rate is never divided by 0. */
#define POOLS_END_S 1e-6

struct pools_kind {
    const char *name;
    int count;          /* whole devices */
    int per_node;       /* that share a NIC */
    double bytes_per_s; /* of that NIC, each way */
    double latency_s;
    double memory_bytes; /* of the device that has most; INFINITY where memory does not count */
    int shares[WORKLOAD_MAX_SHARES]; /* a device may be cut into so many parts */
    int n_shares;
};

struct pools_model {
    const char *name;
    double weight;
    double slo_s;
    double
        budget_s; /* slo_s * (1 - margin): what computing, transfers and filling a batch may take */
    double margin, workload_margin;
    double batching_s; /* per sample beyond the first of a batch */
    int n_layers;
    int batches[POOLS_MAX_BATCHES]; /* profiled sizes, rising */
    int n_batches;
    double *output_bytes; /* [layers], of one sample */
    /* Seconds of layers [i, j) of one batch on one share: [kind][share][batch][i][j], NaN where not
     * profiled, and where such a part of a device has no memory for them. */
    double *compute_s;
};

struct pools_problem {
    struct arena arena;
    struct pools_kind kinds[POOLS_MAX_KINDS];
    int n_kinds;
    struct pools_model *models;
    int n_models;
    int max_stages;
    int pipelines_per_assignment; /* 0: any number */
    bool share_devices; /* fractions of a device may serve several pipelines of a model at one stage
                           position */
};

/* Zero-initialise before; on failure nothing is left to free. HP_EINVAL: a kind without a profile;
 * HP_ELIMIT: too many kinds or layers. */
int pools_problem_make(const struct cluster *c, const struct workload *w, struct pools_problem *out,
                       struct err *e);
void pools_problem_free(struct pools_problem *p);

/* Plans model m with this margin from now on. */
void pools_problem_set_margin(struct pools_problem *p, int model, double margin);

static inline double pools_compute_s(const struct pools_model *m, int kind, int share, int batch,
                                     int first, int end)
{
    int n = m->n_layers + 1;
    return m->compute_s
        [((((kind * WORKLOAD_MAX_SHARES) + share) * m->n_batches + batch) * n + first) * n + end];
}

/* Seconds of one sample from layer end-1 to the stage after, at the slower of the two NICs; 0 after
 * the last layer. */
double pools_transfer_s(const struct pools_problem *p, const struct pools_model *m, int end,
                        int from_kind, int to_kind);
/* Requests per second of one share that runs layers [first, end) at this batch; the neighbours'
 * NICs are not looked at (formats: X = min(b / compute, 1 / (in v g), 1 / (out v g))). NaN where
 * not profiled. */
double pools_share_rate(const struct pools_problem *p, const struct pools_model *m, int kind,
                        int share, int batch, int first, int end);
/* Charge for filling a batch. */
static inline double pools_batching_s(const struct pools_model *m, int batch)
{
    return m->batching_s * (m->batches[batch] - 1);
}

/* What a share that runs layers [first, end) of a profile in batches of so many holds: weights, the
 * values of one layer as they come in and go out, and, where the profile says it, what lies in
 * memory while the largest of its layers runs. */
double pools_resident_bytes(const struct profile *f, int first, int end, int batch);

int pools_problem_find_kind(const struct pools_problem *p, const char *name);

#endif
