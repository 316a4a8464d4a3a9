/* Whether a GPU of this box could compute: its plugin, its driver, the card. */
#ifndef HP_HPCTL_GPU_LOOK_H
#define HP_HPCTL_GPU_LOOK_H

#include "agent/backend/plugin.h"

enum gpu_state {
    GPU_NONE,     /* neither a driver that knows a card nor a plugin */
    GPU_UNUSABLE, /* one of them, and `why` not both */
    GPU_USABLE,
};

struct gpu_look {
    enum gpu_state state;
    const struct plugin *plugin; /* GPU_USABLE */
    struct plugin_facts facts;   /* of cuda:0, GPU_USABLE */
    char card[PLUGIN_NAME];      /* by the driver alone, where there is no plugin; or "" */
    struct err why;              /* GPU_UNUSABLE */
};

/* Loads plugin and driver; threads of theirs take the caller's mask of signals. One thread at a
 * time. */
void gpu_look(struct gpu_look *out);

#endif
