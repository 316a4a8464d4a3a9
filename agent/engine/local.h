/* A whole model in this process: a chain of stages on one device, each handing its activations to
 * the next as agents would. What `hpctl model logits|greedy` runs, and what a cluster's answers are
 * compared with. Used by one thread. */
#ifndef HP_AGENT_ENGINE_LOCAL_H
#define HP_AGENT_ENGINE_LOCAL_H

#include "agent/engine/stage.h"

struct local_config {
    struct model *model;   /* outlives the chain */
    struct device *device; /* outlives the chain */
    int n_stages;          /* the layers are cut evenly; at most as many as there are layers */
    uint32_t slice;        /* tokens of a slice; 0: all at once */
    enum stage_compute compute;
    bool kv_given; /* as a stage has it */
    enum kv_format kv;
    uint32_t max_tokens; /* of the one sequence */
};

struct local_chain;
int local_chain_open(const struct local_config *c, struct local_chain **out, struct err *e);
void local_chain_close(struct local_chain **c);

/* Runs n tokens after those that the chain has. Writes the logits of the last n_logits of them, f32
 * [n_logits, vocabulary]; an encoder gives rows of its last layer, [n_logits, width]. */
int local_chain_run(struct local_chain *c, const uint32_t *ids, uint32_t n, uint32_t n_logits,
                    float *logits, struct err *e);

/* The row of an encoder's text, f32 [width], pooled and normalised as the model says. A chain that
 * has run nothing yet, with one slice for all tokens. */
int local_chain_embed(struct local_chain *c, const uint32_t *ids, uint32_t n, float *row,
                      struct err *e);

/* Prompt to exactly n_new greedy tokens; end tokens are not heeded. A chain that has run nothing
 * yet. */
int local_chain_greedy(struct local_chain *c, const uint32_t *prompt, uint32_t n_prompt,
                       uint32_t *out, uint32_t n_new, struct err *e);

#endif
