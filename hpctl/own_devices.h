/* What a cluster of one process computes with: the devices that were asked for, or a GPU where one
 * is there and the model runs on it. */
#ifndef HP_HPCTL_OWN_DEVICES_H
#define HP_HPCTL_OWN_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/discover.h"
#include "common/status.h"

struct own_devices_ask {
    const char *path;                    /* of the model */
    const char *const *devices;          /* as hp-agent --device says them */
    int n_devices;                       /* 0: chosen here */
    uint64_t max_context, max_sequences; /* of the deployment; 0: what fits */
};

struct own_devices {
    struct discover_share share;
    bool chosen;    /* nobody asked for its GPUs */
    char said[640]; /* what was chosen, and why no GPU; "": there is nothing to say */
};

/* Without `devices`: GPUs, as many from cuda:0 on as the model fits on; all and the CPU where it
 * fits on none, and the planner says what is computed where; the CPU alone where there is no GPU,
 * where it would hold hardly any of the model, or lacks an operator or a number format of it.
 * `said` tells which, if this box has a GPU or a plugin. Errors as of discover_share and, of what
 * was asked for, discover_devices. */
int own_devices_find(const struct own_devices_ask *ask, struct own_devices *out, struct err *e);
/* The CPU alone, since no GPU comes up. */
int own_devices_cpu(const struct err *why, struct own_devices *out, struct err *e);

#endif
