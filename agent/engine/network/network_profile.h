/* What a network's layers take on cores of this machine, batch by batch: hp-profile/1's figures.
 *
 * A layer is what stands between two places at which the planned network can be cut. Runs with a
 * look at the clock after each step take turns with runs without, so that the layers' sum can be
 * held against the whole. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_PROFILE_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_PROFILE_H

#include "agent/engine/network/network_device.h"
#include "agent/engine/network/network_sizes.h"
#include "common/env.h"
#include "model/onnx/network.h"

enum { NETWORK_PROFILE_BATCHES = 32 };

struct network_profile_runs {
    double whole_s, sum_s; /* a run without and with looks at the clock */
    double spread;         /* twice the standard error of the worse known, as a part of it */
    int n_runs;            /* of each kind */
};

/* Who looks on, on the same thread; any of these may be NULL. */
struct network_profile_watch {
    int (*begins)(void *ctx, int64_t batch, struct err *e); /* below 0 ends it with that */
    void (*goes_on)(void *ctx, int64_t batch, const struct network_profile_runs *so_far);
    void (*ended)(void *ctx, int64_t batch); /* after each that began, whatever came of it */
    void *ctx;
};

struct network_profile_ask {
    const struct env *env; /* whose clock counts */
    int64_t batches[NETWORK_PROFILE_BATCHES];
    int n_batches; /* rising */
    const struct network_dim *dims;
    int n_dims;
    double budget_s; /* all batches together */
    double spread;   /* stop when a run's time is known to this part of it, such as 0.02 */
    const struct network_profile_watch *watch; /* NULL: nobody */
    struct threads *threads;                   /* that help; NULL: the caller computes alone */
    struct network_device *device;             /* on which it runs; NULL: this CPU */
};

struct network_profile_layer {
    const char *name; /* of its first node, which the network owns; may be "" */
    const char *op;
    /* Of weights as they are kept; of the smallest batch, all its samples, what the layer hands on
     * and what lies in memory at once while it runs. */
    uint64_t param_bytes, output_bytes, activation_bytes;
};

struct network_profile {
    struct network_profile_layer *layers;
    double *seconds; /* [n_layers * n_batches], layer by layer */
    struct network_profile_runs runs[NETWORK_PROFILE_BATCHES]; /* of sections: their sums */
    int n_layers, n_batches;
    int n_sections; /* that were measured one after the other; 1: the network was held whole */
};

/* Where none are asked for: the model's own where it is fixed, else 1, 2, 4 and 8. */
void network_profile_batches(const struct onnx *o, struct network_profile_ask *ask);

/* Where the network is not held whole in the memory that it may take, sections of its layers are,
 * one after the other, each with what the one before has made.
 *
 * The first dimension of every input is the batch; where one is fixed, `batches` is that size
 * alone. HP_EINVAL: a batch that the model does not take, a free dimension without a size (named);
 * HP_EUNSUPPORTED: sizes depend on what inputs hold, so nothing can be planned; HP_ECANCELED
 * (network_stop_on); HP_ENOMEM, and what runs fail with. On failure nothing is left to free. Blocks
 * for the budget and longer where eleven pairs of runs take longer. */
int network_profile_measure(const struct onnx_network *n, const struct network_profile_ask *ask,
                            struct network_profile *out, struct err *e);
void network_profile_free(struct network_profile *p);

/* Runs one batch again and again until the network is to stop (network_stop_on), as a neighbour on
 * the same device would; `warm` is told once, when the first run is through. 0: it was stopped;
 * errors as above. */
int network_profile_press(const struct onnx_network *n, const struct network_profile_ask *ask,
                          int64_t batch, void (*warm)(void *ctx), void *ctx, struct err *e);

#endif
