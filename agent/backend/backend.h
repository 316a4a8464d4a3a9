/* A backend is a table of functions over device-resident tensors, streams and events. The engine
 * reaches a device through this table alone, so that a GPU's plugin fits beside the CPU.
 *
 * Operators are rows of a graph (model/graph/kinds.h). A backend makes an operator ready once, for
 * the weights that it has (op_prepare; "unsupported" is an answer, and op_supports gives it before
 * anything is placed), and runs it on tensors (op_run). agent/backend/plain/ is the specification:
 * a complete backend whose every operator is a plain loop.
 *
 * Work is put on a stream and done in its order. Functions that take a stream may return before the
 * work is done, and report failure when the stream is waited for; what they point to in host memory
 * stays as it is until an event recorded after them is over, but for runs and pages of a batch,
 * which are read before the function returns. A device and what belongs to it is used by one thread
 * at a time, but for what a loader may do (loader_enter) and whoever computes networks (arrays.h).
 * Two batches of a stage are under way at once where the device's streams have a thread of their
 * own (event_pending says so): while one computes, the host makes use of the one before,
 * host_spread included. */
#ifndef HP_AGENT_BACKEND_BACKEND_H
#define HP_AGENT_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/kv_format.h"
#include "common/kv_range.h"
#include "common/memory_kind.h"
#include "common/status.h"
#include "model/graph/kinds.h"

struct stream;        /* an ordered queue of work */
struct event;         /* a point in a stream */
struct device_weight; /* a weight as the device keeps it */
struct device_op;     /* an operator made ready */

/* A piece of memory: of a device, which alone looks behind `data`, or of the host. */
struct memory {
    void *data;
    uint64_t bytes;
};

/* A view of memory: elements of a number format in rows. Strides count elements; the last is 1. */
enum { TENSOR_DIMS_MAX = 4 };
struct tensor {
    struct memory memory;
    bool on_host;
    uint64_t offset; /* bytes from the memory's beginning to the first element */
    enum dtype dtype;
    int n_dims;
    uint64_t shape[TENSOR_DIMS_MAX], strides[TENSOR_DIMS_MAX];
};

/* The KV cache of layers that look alike, a group of a stage: pages of KV_PAGE_TOKENS tokens, each
 * with all blocks of the group. The order inside a page is the device's own business, but a page is
 * kv_page_bytes long and page i begins at i times that, so that whole pages are copied as bytes;
 * kv_export and kv_import speak [block][part][token][kv head][head dim] in its number format, where
 * the parts are keys and values, or keys alone where values lie in them. */
#define KV_NO_PAGE UINT32_MAX
struct kv_layout {
    int n_blocks, n_kv_heads, head_dim;
    int value_dim; /* values are the first so many elements of their keys; 0: they lie apart */
    enum kv_format format; /* of KV_Q8_0: head_dim is a multiple of KV_Q8_ELEMENTS */
    uint32_t window;       /* a token sees itself and the window - 1 before it; 0: all before it */
};
static inline int kv_layout_parts(const struct kv_layout *l)
{
    return l->value_dim ? 1 : 2;
}
struct kv_group {
    struct kv_layout layout;
    struct memory pool;
};

/* Consecutive new tokens of one sequence: rows [first_row, first_row + n_tokens) of a batch stand
 * at positions first_position and on. pages[group] lists the sequence's pages in that group's pool
 * in order; it covers the new tokens too. Pages that no new token sees may be KV_NO_PAGE. */
struct attention_run {
    uint32_t first_row, n_tokens, first_position;
    const uint32_t *const *pages;
    uint32_t most_tokens; /* that the sequence may reach */
};

/* What a batch is to the operators that know sequences. */
struct op_batch {
    const struct attention_run *runs; /* [n_runs] */
    int n_runs;
    const struct kv_group *kv; /* by group */
    bool experts_by_lot; /* each row takes experts of its own, whatever their scores: costs are
                            measured so, where scores are of no file or of one text */
};

/* An operator with its weights as the device keeps them (NULL where it has none), and where in the
 * stage's KV cache its own keys and values are. */
struct op_request {
    const struct graph_op *op;
    const struct device_weight *weights[OP_WEIGHTS_MAX];
    int kv_group, kv_block; /* the block counts within the group */
};

/* An operator made ready, with what it reads and writes. */
struct op_call {
    struct device_op *op; /* NULL: a view, nothing to run */
    struct tensor inputs[OP_INPUTS_MAX], out;
    int last_reader; /* how many calls behind this one the last stands that reads `out`, or a view
                        of it; 0: nobody knows */
};

/* Blocks [first_block, first_block + n_blocks) of a group on this device, and tokens [first, first
 * + count) of a sequence, whose pages are all there. */
struct kv_part {
    int first_block, n_blocks;
    uint32_t first, count;
};

struct backend;
struct backend_arrays;
struct numa_box;

/* Some of a GPU's multiprocessors: `count` of `cut` equal parts, from part `first` on. */
struct device_part {
    int cut, first, count; /* cut 0: all of it */
};

struct device_config {
    const char *backend;      /* "cpu", "plain", "cuda" */
    const struct backend *of; /* the backend itself: of a plugin, or of a test; NULL: by name */
    int ordinal;              /* of "cuda": which of the box's GPUs */
    struct device_part part;  /* of "cuda": of that */
    int n_threads; /* the caller counts as one; 0: as many as `cores`, or as the process may use */
    const int *cores; /* where the device's own threads run; NULL: wherever the process may. The
                         caller sees to its own place */
    int n_cores;
    uint64_t memory_bytes; /* limit on weights and tensors; 0: none */
    uint64_t host_bytes;   /* of "cuda": of the host's memory, for tables of rows that the GPU reads
                              where they lie, */
    uint64_t small_bytes;  /* and for all other weights of at most so many bytes */
    const char *kernels; /* of "cpu": "avx2", "avx_vnni", "avx512", "avx512_bf16", "amx" (most that
                            may be used); NULL: the best that the CPU has. "plain" is the backend of
                            that name, which also stands in on a CPU that has none of these */
    const struct numa_box *box; /* of "cpu", for tests: NUMA nodes that stand for this box's
                                        (agent/backend/cpu/numa.h); outlives the device */
};

/* How the host would pick a token from a row of logits (agent/engine/sampler.h), for a device that
 * does so where the row is. */
struct sample_change {
    uint32_t token;
    float amount;
};
struct sample_ask {
    bool wanted;                              /* false: the row itself is */
    double temperature, top_p, min_p, chance; /* chance: of the draw, in [0, 1) */
    float repetition;                         /* 1: off */
    uint32_t top_k;                           /* 0: off */
    /* To logits, in this order: those that were seen are divided or multiplied by `repetition`, and
     * lose their amount; amounts that are added; tokens that are ruled out. No token is twice in
     * one of the three. */
    const struct sample_change *changes;
    uint32_t n_seen, n_added, n_ruled_out;
};
#define SAMPLE_IN_DOUBT UINT32_MAX

/* How a device does one kind of work, and why so, for people. */
enum { DEVICE_CHOICE_WORD = 48, DEVICE_CHOICE_TEXT = 192, DEVICE_CHOICES_MAX = 8 };
struct device_choice {
    char what[DEVICE_CHOICE_WORD]; /* "quantised, few rows" */
    char how[DEVICE_CHOICE_WORD];  /* "8-bit integers, VNNI" */
    char why[DEVICE_CHOICE_TEXT];
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
    /* What computes what, the set of instructions first: at most `room` rows; returns how many.
     * May be NULL. */
    int (*choices)(const struct device *d, struct device_choice *out, int room);
    /* Versions of what it computes with, for people: "oneDNN 2.6.0". May be NULL. */
    const char *(*libraries)(void);
    /* Its memory is not the host's: rows that come and go are copied. */
    bool own_memory;
    /* As what a transport that reads and writes it by itself has to know it. Each of its threads
     * calls memory_enter (NULL: it need not) before it does; what is on streams there and meets
     * what the transport does the owner has waited for before. */
    enum memory_kind memory_kind;
    void (*memory_enter)(struct device *d);
    /* Bytes still free below the limit; UINT64_MAX without one. */
    uint64_t (*memory_free)(const struct device *d);

    /* Counts bytes that others hold for the device as if they had been allocated; any thread. NULL,
     * both: nobody can, and all who hold some allocate it. HP_ENOMEM says how many are missing. */
    int (*memory_reserve)(struct device *d, uint64_t bytes, const char *what, struct err *e);
    void (*memory_unreserve)(struct device *d, uint64_t bytes);

    /* The calling thread will load: beside the device's owner it may call weight_load, weight_free,
     * memory_alloc, memory_release, op_prepare and stream_create, and takes from the owner no more
     * of the device than the owner leaves. One thread a device. */
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
    uint64_t (*matmul_scratch_bytes)(const struct device *d, const struct weight *w,
                                     enum weight_use use, bool f32, uint32_t rows);
    /* Rows that a product of many with this matrix is quickest with multiples of, since its kernels
     * take so many together; 0: it does not matter, or nobody knows. NULL: of no matrix. */
    uint32_t (*matmul_row_step)(const struct device *d, const struct weight *w, enum weight_use use,
                                bool f32);
    /* Takes so much scratch of matmul_scratch_bytes for the stream at once: were it taken when it
     * is wanted, others would have come between. NULL: nothing is to be taken. HP_ENOMEM. */
    int (*stream_reserve)(struct stream *s, uint64_t scratch_bytes, struct err *e);
    /* Bytes of the device that op_prepare takes for the operator. NULL: none for any. */
    uint64_t (*op_bytes)(const struct graph_op *op);
    /* Loads and packs. The file's mapping outlives the weight; pages that are no longer needed are
     * released. HP_ENOMEM, HP_EUNSUPPORTED. */
    int (*weight_load)(struct device *d, const struct weight *w, enum weight_use use, bool f32,
                       struct device_weight **out, struct err *e);
    void (*weight_free)(struct device *d, struct device_weight **w);

    /* memory_alloc takes whole multiples of so many bytes; 0: of one. */
    uint64_t memory_step;
    /* Zeroed memory. HP_ENOMEM says how many bytes are missing. What is released, weights too, no
     * work that is under way touches. */
    int (*memory_alloc)(struct device *d, uint64_t bytes, struct memory *out, struct err *e);
    void (*memory_release)(struct device *d, struct memory *m);

    int (*stream_create)(struct device *d, struct stream **out, struct err *e);
    void (*stream_destroy)(struct stream **s);
    /* Until all is done: the first failure since the last wait: HP_EDEVICE (lost), HP_ENOMEM. */
    int (*stream_wait)(struct stream *s, struct err *e);
    int (*event_create)(struct device *d, struct event **out, struct err *e);
    void (*event_destroy)(struct event **v);
    /* The event stands for the work that is on the stream now. */
    void (*event_record)(struct event *v, struct stream *s);
    /* Until that work is done: the first failure (as above) of work between the event before
     * on this stream (or the last wait) and this one. */
    int (*event_wait)(struct event *v, struct err *e);
    /* Whether that work is still under way: then over(ctx) is called once when it is done, on a
     * thread of the device's own, which it does not hold up; device_close returns after all such
     * calls have. False: it is done, and nobody is called. Asked once of a recording, before more
     * work is put on the stream. */
    bool (*event_pending)(struct event *v, void (*over)(void *ctx), void *ctx);

    /* Copies between device and host and within the device, from one number format (F32, F16, BF16,
     * Q8_WIRE, U32 to itself) to another; shapes are the same, rows and their strides whole blocks.
     * To fewer bits: to the nearest, ties to even, as agent/backend/plain/narrow.h has it; what is
     * beyond the largest f16 becomes that, so that one large value ends no sequence in infinities.
     */
    void (*copy)(struct stream *s, const struct tensor *to, const struct tensor *from);

    /* Picks a token from each of n rows of logits, as `asks` say and the host's sampler does, to
     * the token; a row from which it was not, or for which a sum could have gone either way, is
     * copied to `rows` [n, width] of the host, at its place, and its token is SAMPLE_IN_DOUBT. Both
     * are there as copies to the host are; `asks` are read before the function returns. False: it
     * cannot, and nothing was put on the stream. NULL: the host alone picks. */
    bool (*sample)(struct stream *s, const struct tensor *logits, const struct sample_ask *asks,
                   uint32_t *picked, float *rows);

    /* Whether this backend runs operators of a kind with a weight in that format. */
    bool (*op_supports)(enum op_kind kind, enum dtype weight);
    /* The graph's row outlives the operator. HP_EUNSUPPORTED names the kind, HP_ENOMEM. */
    int (*op_prepare)(struct device *d, const struct op_request *r, struct device_op **out,
                      struct err *e);
    void (*op_release)(struct device_op **op);
    /* inputs and outputs as the operator's row counts them; the result may lie in the memory of the
     * input that its kind names. `batch` may be NULL for kinds that know no sequences. */
    void (*op_run)(struct stream *s, const struct device_op *op, const struct tensor *inputs,
                   const struct tensor *outputs, const struct op_batch *batch);
    /* Operators one after the other, with the results of op_run: what follows may be done along
     * with what comes before it, and what is read twice be made ready once. A result whose last
     * reader is among them need not be there when all are done. NULL: op_run runs each. */
    void (*ops_run)(struct stream *s, const struct op_call *calls, int n,
                    const struct op_batch *batch);
    /* Operators that are run between the two come again: those of the same key, a number that
     * nobody else gives on this stream, have the same tensors each time, in the same order, and
     * batches alone differ. Both NULL, or steps_begin true: the device has kept them and put all of
     * them on the stream, so that neither op_run, ops_run nor steps_end is called. steps_end false:
     * nothing was put on it, and the operators are run once more, without the two. */
    bool (*steps_begin)(struct stream *s, uint64_t key, const struct op_batch *batch);
    bool (*steps_end)(struct stream *s, const struct op_batch *batch);

    uint64_t (*kv_page_bytes)(const struct device *d, const struct kv_layout *l);
    /* A part of a sequence's KV to and from host memory, in wire order. */
    void (*kv_export)(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                      const struct kv_part *part, void *out);
    void (*kv_import)(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                      const struct kv_part *part, const void *data);

    /* Operators of networks (arrays.h); NULL: none. */
    const struct backend_arrays *arrays;
};

/* ---- tensors ---- */

/* All of a memory as rows of `width` elements, one after the other. */
struct tensor tensor_rows(struct memory m, enum dtype dtype, uint64_t rows, uint64_t width);
/* The same of host memory. */
struct tensor tensor_on_host(const void *data, enum dtype dtype, uint64_t rows, uint64_t width);
/* First byte of row `r`. */
static inline void *tensor_row(const struct tensor *t, uint64_t r)
{
    return (uint8_t *)t->memory.data + t->offset + dtype_bytes(t->dtype, r * t->strides[0]);
}
/* Elements of a row. */
static inline uint64_t tensor_width(const struct tensor *t)
{
    uint64_t n = 1;
    for (int i = 1; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

/* ---- what a backend can do ---- */

/* HP_EUNSUPPORTED, naming operator and number format, where the backend cannot run it. */
int backend_require(const struct backend *b, const struct graph_op *op, struct err *e);
/* What holds for weights on any device: vectors and matrices whose rows are whole blocks; a turned
 * matrix has elements of its own. HP_EUNSUPPORTED. HP_EPARSE, naming tensor and block, where a
 * block's scale is no finite number: reads all blocks. */
int backend_weight_check(const struct weight *w, enum weight_use use, struct err *e);

/* Asks the system to read a weight's bytes of its file before they are needed. Returns at once. */
void backend_weight_want(const struct weight *w);

/* What memory_alloc takes for so many bytes. */
static inline uint64_t backend_memory_bytes(const struct backend *b, uint64_t bytes)
{
    uint64_t step = b->memory_step ? b->memory_step : 1, rest = bytes % step;
    return rest && bytes <= UINT64_MAX - step ? bytes + step - rest : bytes;
}

/* ---- devices ---- */

/* Names of what the backend of such a device runs: kinds of operators, then number formats of
 * matrices. At most `room`; returns how many. */
int backend_runs(const struct device_config *c, const char **names, int room);
/* Opens a device of the backend that the config names. HP_ENOENT for an unknown one. Close with
 * device_close. */
int device_open(const struct device_config *c, struct device **out, struct err *e);
void device_close(struct device **d);

#endif
