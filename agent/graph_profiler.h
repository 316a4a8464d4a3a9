/* What each operator of a model costs on one device of this box, as a graph that cold starts are
 * planned from (hp-graph/1): its time with parameters resident, the time of loading each parameter,
 * and its time from host memory.
 *
 * Operators of one kind, shape and number format are measured once. Weights are loaded one at a
 * time and freed again, so the model need not fit. A device whose backend cannot read a weight in
 * place pays for loading it each time; the embedding, which needs a few rows only, is measured in
 * place. */
#ifndef HP_AGENT_GRAPH_PROFILER_H
#define HP_AGENT_GRAPH_PROFILER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct device;

struct graph_profiler_config {
    const char *path;        /* what model_open takes */
    const char *device_name; /* of the host's one device in the graph */
    struct device *device;
    uint64_t memory_bytes; /* of the device, for the graph */
    uint32_t tokens;       /* of the prompt that starts; at least 1 */
    bool f32;
    uint64_t budget_ms; /* for all measurements; 0: 3000. Each is made at least three times whatever
                           it says */
    void (*progress)(void *ctx, double done, double total); /* may be NULL */
    void *progress_ctx;
};

/* *graph is the caller's to json_decref. Uses the device: on its thread. Errors of model_open and
 * of the backend; HP_EINVAL for more tokens than the model's context. */
int graph_profiler_measure(const struct graph_profiler_config *c, json_t **graph, struct err *e);

#endif
