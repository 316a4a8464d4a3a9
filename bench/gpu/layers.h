/* Layers of LLaMA's shape with random weights on a device, as a stage runs them: for measuring a
 * backend through its table alone. A few layers have weights of their own and are run by turns, so
 * that no cache holds them. The process ends where something fails. */
#ifndef HP_BENCH_GPU_LAYERS_H
#define HP_BENCH_GPU_LAYERS_H

#include "agent/backend/backend.h"

struct llama_shape {
    uint32_t width, hidden, heads, head_dim;
    uint32_t layers, distinct; /* that are run, and that have weights of their own */
    uint32_t rows, tokens;     /* most of a batch, and those that the KV cache has room for */
};

struct llama_layers;
struct llama_layers *layers_create(struct device *d, const struct llama_shape *shape,
                                   enum dtype dtype);
void layers_destroy(struct llama_layers **l);
/* Weights of all layers that are run, as one pass reads them. */
double layers_weight_bytes(const struct llama_layers *l);
/* Bytes a second that came to the device while they were loaded. */
double layers_load_rate(const struct llama_layers *l);
/* Of `sequences` runs of `tokens` after `prefix`: products, and attention as it is causal. */
double layers_flops(const struct llama_shape *s, uint32_t sequences, uint32_t tokens,
                    uint32_t prefix);
/* One pass of such a batch; waits for its end and gives seconds. */
double layers_run(struct llama_layers *l, uint32_t sequences, uint32_t tokens, uint32_t prefix);

/* Whether a step's operators are started one by one where the device would keep them and start them
 * as one. */
void layers_one_by_one(struct llama_layers *l, bool one_by_one);

/* ---- what others of bench/gpu use too ---- */

double seconds_now(void);
/* Ends the process with what `e` says where rc is negative. */
void must(int rc, const struct err *e);
/* Random elements with sound scales. */
struct weight matrix_make(enum dtype dtype, uint64_t outputs, uint64_t inputs);

#endif
