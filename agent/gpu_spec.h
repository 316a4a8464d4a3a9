/* GPUs as `hp-agent --device` says them, whole and in shares. */
#ifndef HP_AGENT_GPU_SPEC_H
#define HP_AGENT_GPU_SPEC_H

#include <stdbool.h>

#include "agent/discover.h"

struct gpu_spec {
    bool is; /* false: it is no GPU */
    int ordinal;
    int of; /* 1/of of its multiprocessors */
};

/* Reads "cuda:N" or "cuda:N/share=1/V", V from 2 to 4, at the beginning of a device's text; *after:
 * what follows. Anything else is no GPU. HP_EUSAGE: a share that there is not. */
int gpu_spec_read(const char *text, struct gpu_spec *out, const char **after, struct err *e);

/* Which part of its GPU each is: specs[n] of texts[n], to devices[n].part and .name. A GPU is cut
 * into as many equal parts as its shares can be made of. HP_EUSAGE names the device for which
 * nothing is left. */
int gpu_specs_divide(const struct gpu_spec *specs, const char *const *texts, int n,
                     struct discover_device *devices, struct err *e);

/* Finds the GPUs, by the plugin: backend, model, multiprocessors and memory of devices[i], whose
 * memory_bytes is what was asked for it, or 0: its share of nine tenths of what is free. HP_EUSAGE
 * says how many bytes are missing, HP_EDEVICE: no plugin, no driver, no such GPU or part. */
int gpu_specs_find(const struct gpu_spec *specs, const char *const *texts, int n,
                   struct discover_device *devices, struct err *e);

#endif
