/* bfloat16 matrix products by oneDNN on weights that are packed in panels, called from our own
 * threads.
 *
 * oneDNN's layout BA16a64b2a is what kernels.h calls panels: so one packed copy serves its kernels
 * and our own matrix-vector kernel. Debian's build uses OpenMP, whose threads would spin: every
 * calling thread is set to one. Version 2.6; version 3 has another interface. */
#ifndef HP_AGENT_BACKEND_CPU_ONEDNN_H
#define HP_AGENT_BACKEND_CPU_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct onednn;

/* For up to n_threads threads, each of which uses its own number. */
int onednn_create(int n_threads, struct onednn **out, struct err *e);
void onednn_destroy(struct onednn **o);
/* "oneDNN 2.6.0". */
const char *onednn_version(void);

/* out[rows, outputs] (+)= x[rows, inputs] * panelsᵀ; x bf16, out f32. Both are dense: with gaps
 * between rows oneDNN falls back to plain loops. Negative on failure. */
int onednn_matmul(struct onednn *o, int thread, const uint16_t *x, size_t rows,
                  const uint16_t *panels, size_t inputs, size_t outputs, bool accumulate,
                  float *out);

#endif
