/* Some blocks of a network, ready to run for every batch up to a largest one: what a share of a
 * plan of pools holds (PPipe, USENIX ATC 2025, section 4). Parts of one network that lie on several
 * machines give together what the whole gives, to the bit, where their CPUs are of one kind; where
 * they are not, that is said. Used by one thread. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_PART_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_PART_H

#include "agent/engine/network/network_device.h"
#include "agent/engine/network/network_sizes.h"
#include "model/onnx/network.h"

enum { NETWORK_PART_BATCH = 1024, NETWORK_PART_SIZES = 16, NETWORK_PART_ARRAYS = 1000 };

struct network_part;

struct network_part_ask {
    const struct network_dim *dims; /* [n_sizes * n_dims], of free dimensions, the batch apart */
    int n_dims;
    int n_blocks;           /* of the network */
    const uint32_t *bounds; /* [n_blocks + 1]: layers (network_layers.h) at which blocks begin, and
                               where the last ends; NULL: its layers are dealt out evenly */
    int first_block, end_block;
    int batch;   /* the largest, at most NETWORK_PART_BATCH */
    int n_sizes; /* so many sets of dims, the largest first: it runs batches of each; 0: one */
    struct threads *threads; /* that help; NULL: the caller computes alone. They outlive the part,
                                and results have the same bits whatever they are */
    struct network_device *device; /* on which it runs, and which outlives it; NULL: this CPU */
    const struct network_account *account; /* of the memory that it holds; NULL: nobody counts */
};

/* A batch of one of several sizes: wherever a batch is asked for, this is. With size 0 it is the
 * number of samples. */
static inline int network_part_sized(int size, int batch)
{
    return size * 2 * NETWORK_PART_BATCH + batch;
}

/* Takes the network over, which it closes also on failure: *n is NULL afterwards. A network of one
 * batch alone is made ready for that. HP_EINVAL: blocks, bounds, batch or sizes that are none of
 * this network (named); HP_EUNSUPPORTED: it cannot be planned, or not be cut there; HP_ECANCELED
 * (network_stop_on); HP_ELIMIT, HP_EDEVICE, HP_ENOMEM. */
int network_part_open(struct onnx_network **n, const struct network_part_ask *ask,
                      struct network_part **out, struct err *e);
void network_part_close(struct network_part **p);

/* What comes in of a batch of that many samples, and what it gives: arrays without an owner. Of the
 * first blocks the inputs in the network's order, of the last ones its outputs. NULL: no such
 * batch. */
const struct ndarray *network_part_enters(const struct network_part *p, int batch, int *n);
/* Data is what the last run of this batch made, until the next run of any. */
const struct ndarray *network_part_leaves(const struct network_part *p, int batch, int *n);

/* HP_EINVAL: no such batch, or in[n] are others than those that enter; HP_ESTALE: another kind of
 * plan made them, or a size depends on what inputs hold; else as nodes fail. */
int network_part_run(struct network_part *p, int batch, const struct ndarray *in, int n,
                     struct err *e);
/* A run of zeros, for times to come. */
int network_part_warm(struct network_part *p, int batch, struct err *e);
/* The batch that follows among those that are ready: 0 begins, 0 ends. */
int network_part_next(const struct network_part *p, int batch);
/* Bytes of values and weights, which all batches share. */
uint64_t network_part_bytes(const struct network_part *p);

#endif
