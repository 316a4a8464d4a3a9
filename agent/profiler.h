/* What a layer of each class costs on this agent's device: a few slice and prefix lengths through stage_run, warm, by the median, within a time. Results
 * are kept by the model's shape, the device and the compute, so that a model is measured once. Weights need not be there: a sparse copy whose
 * weights read as zeros takes the same time. */
#ifndef HP_AGENT_PROFILER_H
#define HP_AGENT_PROFILER_H

#include "common/bytes.h"
#include "common/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct device;

struct profiler_config {
    const char *path;       /* what model_open takes */
    const char *cache;      /* folder of results; "" or NULL: none */
    struct device *device;
    bool f32;
    uint64_t budget_ms;     /* 0: 2000; every point is measured at least once whatever it says */
    const atomic_bool *stop; /* ends with HP_ECANCELED when it becomes true; may be NULL */
};

/* Appends {"embed": {"slice": [..], "prefix": [..], "seconds": [[..]]}, "attn": .., "mlp": .., "head": .., "layers": [..]} as in hp-profile/1.
 * Layers carry `resident_bytes` too: what they hold on this device once loaded. Uses the device: on its thread. Errors of model_open and stage_load. */
int profiler_measure(const struct profiler_config *c, struct buffer *out, struct err *e);

#endif
