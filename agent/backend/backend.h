/* A backend is a table of functions over device-resident tensors, streams and events. The engine
 * reaches a device through this table alone, so that a GPU's plugin fits beside the CPU.
 *
 * Values are float32, row-major, [rows, width]. Operators are put on a stream and run in its order;
 * they may return before they are done and report failure when the stream is waited for. Host
 * arrays given to an operator (positions, runs, pages) are read before it returns. A device and
 * what belongs to it is used by one thread at a time, but for event_wait and event_seconds, and
 * what a loader may do (loader_enter).
 *
 * Operators do what `struct graph_op` (model/layers.h) says; agent/backend/cpu/reference.c is their
 * specification in plain loops. */
#ifndef HP_AGENT_BACKEND_BACKEND_H
#define HP_AGENT_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/layers.h"
#include "model/weights.h"

struct stream;        /* an ordered queue of operators */
struct event;         /* a point in a stream */
struct device_weight; /* a weight as the device keeps it */

/* Memory of a device. Only the device looks behind `data`. */
struct tensor {
    void *data;
    uint64_t bytes;
};

/* How operators read a weight decides how it is kept. */
enum weight_use {
    WEIGHT_MATMUL, /* OP_MATMUL's matrix, [outputs, inputs] */
    WEIGHT_ROWS,   /* OP_EMBED's table */
    WEIGHT_VECTOR, /* norms and biases */
};

/* What a stage's KV cache looks like: pages of KV_PAGE_TOKENS tokens, each with all blocks of the
 * stage. The order inside a page is the device's own business; kv_export and kv_import speak
 * [block][k or v][token][kv head][head dim]. */
enum { KV_PAGE_TOKENS = 64 };
struct kv_layout {
    int n_blocks, n_kv_heads, head_dim;
    bool f32; /* else f16 */
};

/* Consecutive new tokens of one sequence: rows [first_row, first_row + n_tokens) of a batch stand
 * at positions first_position and on. `pages` lists the sequence's pages in the pool in order; it
 * covers the new tokens too. */
struct attention_run {
    uint32_t first_row, n_tokens, first_position;
    const uint32_t *pages;
};

struct device_config {
    const char *backend; /* "cpu" */
    int n_threads; /* the caller counts as one; 0: as many as `cores`, or as the process may use */
    const int *cores; /* where the device's own threads run; NULL: wherever the process may. The
                         caller sees to its own place */
    int n_cores;
    uint64_t memory_bytes; /* limit on weights and tensors; 0: none */
    const char *kernels; /* "plain", "avx2", "avx512", "avx512_bf16" (most that may be used); NULL:
                            the best that the CPU has */
};

/* Every device starts with this. */
struct device {
    const struct backend *backend;
};

struct backend {
    const char *name;

    /* HP_EDEVICE when there is none or a feature is missing, HP_EINVAL. */
    int (*device_open)(const struct device_config *c, struct device **out, struct err *e);
    void (*device_close)(struct device **d);
    /* What computes, for people: "cpu avx512_bf16, 2 threads". */
    const char *(*device_describe)(const struct device *d);
    /* Versions of what it computes with, for people: "oneDNN 2.6.0". May be NULL. */
    const char *(*libraries)(void);
    /* Bytes still free below the limit; UINT64_MAX without one. */
    uint64_t (*memory_free)(const struct device *d);

    /* The calling thread will load: beside the device's owner it may call weight_load, weight_free,
     * tensor_alloc, tensor_free and stream_create, and takes from the owner no more of the device
     * than the owner leaves. One thread a device. */
    void (*loader_enter)(struct device *d);

    /* Calls work(ctx, part) once for each part below `n`, side by side on the threads that the
     * device computes with, and returns when all are done: what the host does between two batches.
     * The caller is whoever owns the device. */
    void (*host_spread)(struct device *d, uint32_t n, void (*work)(void *ctx, uint32_t part),
                        void *ctx);

    /* Bytes that a weight will hold on the device, known before it is loaded; `f32` asks for
     * float32 arithmetic on it. */
    uint64_t (*weight_resident_bytes)(const struct device *d, const struct weight *w,
                                      enum weight_use use, bool f32);
    /* Bytes of scratch, shared by all products of a device, that a product of so many rows with
     * this matrix takes beyond what is there already. */
    uint64_t (*matmul_scratch_bytes)(const struct device *d, const struct weight *w, bool f32,
                                     uint32_t rows);
    /* Loads and packs. The file's mapping outlives the weight; pages that are no longer needed are
     * released. HP_ENOMEM, HP_EUNSUPPORTED. */
    int (*weight_load)(struct device *d, const struct weight *w, enum weight_use use, bool f32,
                       struct device_weight **out, struct err *e);
    void (*weight_free)(struct device *d, struct device_weight **w);

    /* Zeroed memory. HP_ENOMEM says how many bytes are missing. */
    int (*tensor_alloc)(struct device *d, uint64_t bytes, struct tensor *out, struct err *e);
    void (*tensor_free)(struct device *d, struct tensor *t);

    int (*stream_create)(struct device *d, struct stream **out, struct err *e);
    void (*stream_destroy)(struct stream **s);
    /* Until all is done: HP_EDEVICE with the first failure since the last wait. */
    int (*stream_wait)(struct stream *s, struct err *e);
    int (*event_create)(struct device *d, struct event **out, struct err *e);
    void (*event_destroy)(struct event **v);
    void (*event_record)(struct event *v, struct stream *s);
    void (*event_wait)(struct event *v);
    double (*event_seconds)(const struct event *from, const struct event *to);

    /* Host to device and back, in stream order; `tensor_read` returns when the bytes are there. */
    void (*tensor_write)(struct stream *s, struct tensor t, uint64_t offset, const void *src,
                         uint64_t bytes);
    void (*tensor_read)(struct stream *s, struct tensor t, uint64_t offset, void *dst,
                        uint64_t bytes);

    /* out[rows, width] = rows of the table by ids, u32 [rows]. */
    void (*embed)(struct stream *s, const struct device_weight *table, struct tensor ids,
                  uint32_t rows, struct tensor out);
    /* out[rows, width] = in / sqrt(mean(in²) + epsilon) * weight */
    void (*rms_norm)(struct stream *s, struct tensor in, const struct device_weight *weight,
                     float epsilon, uint32_t rows, struct tensor out);
    /* out[rows, outputs] (+)= in[rows, inputs] * weightᵀ (+ bias) */
    void (*matmul)(struct stream *s, struct tensor in, const struct device_weight *weight,
                   const struct device_weight *bias, uint32_t rows, bool accumulate,
                   struct tensor out);
    /* angles[rows, dims / 2, (cos, sin)] of positions; made once a batch, used by every block. */
    void (*rope_angles)(struct stream *s, const struct rope_config *rope, const uint32_t *positions,
                        uint32_t rows, struct tensor angles);
    /* Rotates x[rows, heads, head_dim] in place. */
    void (*rope)(struct stream *s, const struct rope_config *rope, struct tensor angles,
                 uint32_t rows, int heads, int head_dim, struct tensor x);
    /* out[n] = silu(gate) * up */
    void (*silu_mul)(struct stream *s, struct tensor gate, struct tensor up, uint64_t n,
                     struct tensor out);
    /* out[n_rows, width] = in[rows[i]] */
    void (*gather_rows)(struct stream *s, struct tensor in, const uint32_t *rows, uint32_t n_rows,
                        uint32_t width, struct tensor out);

    uint64_t (*kv_page_bytes)(const struct device *d, const struct kv_layout *l);
    /* Puts k, v [rows, kv_heads, head_dim] into block `block` of the runs' pages. */
    void (*kv_append)(struct stream *s, const struct kv_layout *l, struct tensor pool, int block,
                      const struct attention_run *runs, int n_runs, struct tensor k,
                      struct tensor v);
    /* out[rows, heads, head_dim]: every row attends to its sequence's positions up to its own,
     * scores scaled by 1 / sqrt(head_dim). */
    void (*attention)(struct stream *s, const struct kv_layout *l, struct tensor pool, int block,
                      const struct attention_run *runs, int n_runs, int heads, struct tensor q,
                      struct tensor out);
    /* Tokens [first, first + count) of a sequence, all blocks, to and from host memory in wire
     * order. */
    void (*kv_export)(struct stream *s, const struct kv_layout *l, struct tensor pool,
                      const uint32_t *pages, uint32_t first, uint32_t count, void *out);
    void (*kv_import)(struct stream *s, const struct kv_layout *l, struct tensor pool,
                      const uint32_t *pages, uint32_t first, uint32_t count, const void *block);
};

/* Opens a device of the backend that the config names. HP_ENOENT for an unknown one. Close with
 * device_close. */
int device_open(const struct device_config *c, struct device **out, struct err *e);
void device_close(struct device **d);

#endif
