#include "hpctl/embedded.h"

#include <stdlib.h>

#include "agent/backend/backend.h"
#include "agent/engine/local.h"
#include "agent/graph_profiler.h"

struct embedded_chain {
    struct device *device;
    struct local_chain *chain;
};

int embedded_chain_open(const struct embedded_chain_config *c, struct embedded_chain **out,
                        struct err *e)
{
    struct embedded_chain *made = calloc(1, sizeof *made);
    if (!made)
        return err_set(e, HP_ENOMEM, "no memory for a chain of stages");
    struct device_config device = {.backend = "cpu", .n_threads = c->n_threads};
    int rc = device_open(&device, &made->device, e);
    if (rc == 0) {
        struct local_config local = {.model = c->model,
                                     .device = made->device,
                                     .n_stages = c->n_stages,
                                     .slice = c->slice,
                                     .compute = c->f32 ? COMPUTE_F32 : COMPUTE_AUTO,
                                     .max_tokens = c->max_tokens};
        rc = local_chain_open(&local, &made->chain, e);
    }
    if (rc < 0)
        embedded_chain_close(&made);
    else
        *out = made;
    return rc;
}

void embedded_chain_close(struct embedded_chain **c)
{
    if (!*c)
        return;
    local_chain_close(&(*c)->chain);
    device_close(&(*c)->device);
    free(*c);
    *c = NULL;
}

int embedded_chain_logits(struct embedded_chain *c, const uint32_t *ids, uint32_t n, float *logits,
                          struct err *e)
{
    return local_chain_run(c->chain, ids, n, n, logits, e);
}

int embedded_chain_greedy(struct embedded_chain *c, const uint32_t *prompt, uint32_t n_prompt,
                          uint32_t *out, uint32_t n_new, struct err *e)
{
    return local_chain_greedy(c->chain, prompt, n_prompt, out, n_new, e);
}

int embedded_graph_profile(const struct embedded_graph_config *c, json_t **graph, struct err *e)
{
    struct device_config device = {.backend = c->backend, .n_threads = c->n_threads};
    struct graph_profiler_config profile = {.path = c->path,
                                            .device_name = c->backend,
                                            .memory_bytes = c->memory_bytes,
                                            .tokens = c->tokens,
                                            .f32 = c->f32,
                                            .budget_ms = c->budget_ms,
                                            .progress = c->progress,
                                            .progress_ctx = c->progress_ctx};
    int rc = device_open(&device, &profile.device, e);
    if (rc < 0)
        return rc;
    rc = graph_profiler_measure(&profile, graph, e);
    device_close(&profile.device);
    return rc;
}
