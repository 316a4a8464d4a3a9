/* Parts of the daemons that hpctl runs in its own process: the only place where it reaches into
 * their rooms. */
#ifndef HP_HPCTL_EMBEDDED_H
#define HP_HPCTL_EMBEDDED_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct model;

/* A model on this machine's CPU, cut into stages that are joined as agents would be. */
struct embedded_chain_config {
    struct model *model; /* outlives the chain */
    int n_stages;
    uint32_t slice; /* tokens of a slice; 0: all at once */
    bool f32;       /* float32 throughout; else the fastest path */
    int n_threads;  /* 0: as many as the process may use */
    uint32_t max_tokens;
};

struct embedded_chain;
int embedded_chain_open(const struct embedded_chain_config *c, struct embedded_chain **out,
                        struct err *e);
void embedded_chain_close(struct embedded_chain **c);

/* Runs n tokens after those before; writes their logits, f32 [n, vocabulary]. */
int embedded_chain_logits(struct embedded_chain *c, const uint32_t *ids, uint32_t n, float *logits,
                          struct err *e);
/* Exactly n_new greedy tokens after the prompt, on a chain that has run nothing yet. */
int embedded_chain_greedy(struct embedded_chain *c, const uint32_t *prompt, uint32_t n_prompt,
                          uint32_t *out, uint32_t n_new, struct err *e);

/* Measures every operator of a model on a device of this machine: a graph to plan cold starts from
 * (hp-graph/1). */
struct embedded_graph_config {
    const char *path;      /* of the model */
    const char *backend;   /* "cpu" */
    int n_threads;         /* 0: as many as the process may use */
    uint64_t memory_bytes; /* what the graph says that the device holds */
    uint32_t tokens;
    bool f32;
    uint64_t budget_ms;
    void (*progress)(void *ctx, double done, double total);
    void *progress_ctx;
};
/* *graph is the caller's to json_decref. */
int embedded_graph_profile(const struct embedded_graph_config *c, json_t **graph, struct err *e);

#endif
