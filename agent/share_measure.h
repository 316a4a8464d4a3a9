/* What a network's layers take on a device, share by share and batch by batch: the whole network
 * on all of its cores, or on those of each part of the device while all parts compute the same. */
#ifndef HP_AGENT_SHARE_MEASURE_H
#define HP_AGENT_SHARE_MEASURE_H

#include <stdatomic.h>

#include "common/bytes.h"
#include "transport/message.h"

struct paced;

struct share_measuring { /* how it goes */
    int parts;           /* the device is cut into */
    int64_t batch;
    int runs; /* of all batches so far */
    double elapsed_s, budget_s;
    double spread; /* of this batch */
};

struct share_measure_config {
    const struct message_share *share; /* with what is to be measured */
    const char *path, *model, *kind;
    const int *cores;       /* of the device, [n_cores]; 0: any */
    int n_cores, n_threads; /* of the whole device */
    struct device *device;  /* that computes, and outlives it; NULL: threads on these cores */
    uint64_t memory_bytes;
    const struct paced *paced; /* the device that this agent stands for: its profile is the answer;
                                  NULL: itself */
    const atomic_bool *stop;
    void (*goes_on)(void *ctx, const struct share_measuring *how); /* on the caller's thread, now
                                                                    and then */
    void *ctx;
};

/* Appends hp-profile/1 of the network's layers with this kind alone. On the caller's thread, which
 * ends up on the cores of the last part, and threads of its own. Shares for which there is not
 * the memory, or parts of the device, are left out, but for the whole device. HP_EINVAL (batches,
 * shares), HP_ECANCELED, as network_open and network_profile_measure fail. */
int share_measure(const struct share_measure_config *c, struct buffer *json, struct err *e);

#endif
