/* What layers [a, b) cost on a device, for a slice of tokens after a prefix: seconds and bytes,
 * from the profile and the cluster.
 *
 * All of a planner's questions are answered from here, so that its methods, the exact flow and the
 * judge of a foreign plan agree to the last bit. Tables over pairs of cut positions are filled on
 * first use; everything lives in the arena that was given. */
#ifndef HP_PLANNERS_PIPELINE_COST_H
#define HP_PLANNERS_PIPELINE_COST_H

#include <stddef.h>

#include "planners/pipeline/pipeline.h"

struct cost_device {
    int cluster_index;
    int kind; /* in the profile */
    double memory_bytes, idle_w, busy_w;
};

struct pipeline_cost {
    const struct cluster *cluster;
    const struct profile *profile;
    struct arena *arena;
    int max_slice; /* a longer slice runs in pieces of so many tokens; 0: any runs whole */
    int tokens, cached_tokens,
        unit; /* unit: as asked, or a multiple of it that keeps n_units in bounds */
    double batch;
    double kv_tokens;                  /* context x sequences to keep room for */
    double hands_on_bytes, last_bytes; /* of a stage beside its layers */
    double decode_tokens;              /* of each sequence, after the prompt */

    int n_units;
    int *starts; /* [n_units + 1]: token position of each possible cut, without the cached ones; the
                    last is `tokens` */

    struct cost_device *devices; /* those that the profile knows */
    int n_devices;
    struct cluster_wire *hops; /* [from * n_devices + to] */

    int n_layers, n_classes;
    int *class_count; /* [l * n_classes + class]: layers of the class before layer l */
    double *param_sum, *state_sum, *activation_sum; /* [n_layers + 1] */

    double **tables; /* [kind * n_classes + class]: seconds of one layer for units [i, j), at row[i]
                        + j */
    ptrdiff_t *row;  /* [n_units] */
    size_t table_size; /* cells of one table: of every pair i < j of cut positions */
};

/* Sets up for a request. `order` lists cluster indices (n of them) to consider, in the order in
 * which they become devices 0, 1,
 * ...; NULL takes all. Devices whose kind the profile does not know are left out. HP_EINVAL,
 * HP_EINFEASIBLE, HP_ELIMIT, HP_ENOMEM. */
int cost_init(struct pipeline_cost *c, const struct pipeline_request *rq, const int *order, int n,
              struct arena *arena, struct err *e);

/* Seconds of one layer of a class on a kind, for any slice, prefix and batch (formats:
 * hp-profile/1); of a slice beyond max_slice the sum over its pieces. */
double cost_class_seconds(const struct pipeline_cost *c, int kind, int class_index, double slice,
                          double prefix, double batch);
/* Seconds of layers [first, end) on a kind for any slice of tokens after `prefix`, with any batch.
 */
double cost_layers_seconds(const struct pipeline_cost *c, int kind, int first, int end,
                           double slice, double prefix, double batch);

/* Seconds of layers [first, end) for one decode step: a token of each sequence, half-way through
 * the tokens to make. */
double cost_decode_seconds(const struct pipeline_cost *c, int kind, int first, int end);
/* The same of one layer of a class. */
double cost_decode_class_seconds(const struct pipeline_cost *c, int kind, int class_index);

/* Makes the tables of a kind ready; HP_ENOMEM. cost_units_seconds needs it. */
int cost_kind_prepare(struct pipeline_cost *c, int kind, struct err *e);
/* The same for units [i, j) of the prompt and the request's batch, from the tables. */
double cost_units_seconds(const struct pipeline_cost *c, int kind, int first, int end, int i,
                          int j);

/* Seconds that `tokens` (times the batch) after layer `end` - 1 take on the wire between two
 * devices, without latency; INFINITY where there is no path. */
double cost_wire_seconds(const struct pipeline_cost *c, int from, int to, int end, double tokens,
                         double batch);

/* Bytes of layers [first, end), and those that a stage of them needs on its device. */
double cost_layers_bytes(const struct pipeline_cost *c, int first, int end);
double cost_memory_bytes(const struct pipeline_cost *c, int first, int end);
static inline bool cost_fits(const struct pipeline_cost *c, int device, int first, int end)
{
    return cost_memory_bytes(c, first, end) <= c->devices[device].memory_bytes;
}
/* The furthest end with [first, end) fitting the device; `first` when not even one layer does. To
 * the model's end more may fit than to the layer before, since the last stage hands nothing on: an
 * end below the furthest is to be asked for. */
int cost_furthest_fit(const struct pipeline_cost *c, int device, int first);

#endif
