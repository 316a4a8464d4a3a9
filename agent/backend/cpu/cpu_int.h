/* What the files of the CPU backend share. */
#ifndef HP_AGENT_BACKEND_CPU_CPU_INT_H
#define HP_AGENT_BACKEND_CPU_CPU_INT_H

#include <stdatomic.h>

#include "agent/backend/cpu/block_lanes.h"
#include "agent/backend/cpu/cpu.h"
#include "agent/backend/cpu/kernels.h"
#include "agent/backend/cpu/numa.h"
#include "agent/backend/cpu/threads.h"

struct onednn;

/* Scratch memory that grows to what was asked for most; what it held is lost. */
struct scratch {
    void *data;
    size_t bytes;
};

/* What a device's `inputs` hold: products with the same inputs that run one right after the other,
 * as queries, keys and values or gate and up do, make it once. */
enum inputs_form { INPUTS_NONE, INPUTS_FEW, INPUTS_TILES, INPUTS_WORDS, INPUTS_BF16 };
struct inputs_made {
    enum inputs_form form;
    enum dtype format; /* of the weights that tiles are made for */
    const float *x;
    size_t x_row, rows, columns;
};

struct cpu_device {
    struct device base;
    const struct cpu_kernels *kernels;
    struct threads *threads;
    struct numa *numa;     /* NULL: a box of one node */
    struct onednn *onednn; /* NULL without bf16 */
    uint64_t limit_bytes;
    size_t least_values; /* of a matrix that `auto` does not leave in float32 */
    atomic_ullong used_bytes;
    /* Scratch counts against the limit, and stays: that of inputs, and the most that any thread
     * ever wanted, for each of them, since any may come to it. */
    atomic_ullong inputs_bytes, gathered_bytes, private_bytes;
    struct scratch inputs;   /* a matmul's inputs as bf16 or integers */
    struct inputs_made made; /* and what they are of */
    struct scratch gathered; /* rows of one expert, and their order */
    struct scratch *private; /* [threads]: of one thread inside an operator; never a loader's, which
                                works beside operators */
    char description[96];
};

struct stream {
    struct cpu_device *device;
    struct err failure; /* the first since the last wait */
};

enum weight_form { FORM_IN_PLACE, FORM_BLOCKS, FORM_PANELS_BF16, FORM_F32 };

struct device_weight {
    enum weight_form form;
    bool of_rows;                 /* a table, of which a token reads one row */
    enum dtype dtype;             /* of data in place and of blocks */
    const uint8_t *data;          /* in place: rows of the file; else owned */
    size_t rows, columns;         /* [outputs, inputs]; a vector has one row */
    size_t row_bytes;             /* in place, blocks */
    size_t lanes;                 /* rows that lie side by side; 0: none */
    size_t padded_columns;        /* of a panel */
    uint64_t owned_bytes;         /* of `data`, when it is ours */
    struct device_weight **parts; /* [n_parts]: of experts; the rest is empty then */
    int n_parts;
};

/* Zeroed, page-aligned memory on the nodes of the device's cores, that counts against the device's
 * limit; HP_ENOMEM says what is missing. */
int cpu_memory_alloc(struct cpu_device *d, uint64_t bytes, const char *what, void **out,
                     struct err *e);
/* The same for memory that is there already: counts it. */
int cpu_memory_reserve(struct cpu_device *d, uint64_t bytes, const char *what, struct err *e);
void cpu_memory_free(struct cpu_device *d, void *p, uint64_t bytes);

/* At least `bytes`, aligned for vectors; NULL when memory ran out. From any thread, each for its
 * own scratch. */
void *scratch_get(struct cpu_device *d, struct scratch *s, size_t bytes);
/* So much for every thread, before any of them works: which of them comes to a part is chance, and
 * none allocates then. False: no memory. */
bool scratch_get_all(struct cpu_device *d, size_t bytes);

/* Records the stream's first failure. */
void cpu_stream_fail(struct stream *s, int code, const char *text);

/* Rows of one expert, side by side, what comes of them, and the order of all rows. */
static inline uint64_t cpu_gather_bytes(uint64_t n_experts, uint64_t used, uint64_t rows,
                                        uint64_t inputs, uint64_t outputs)
{
    return rows * (inputs + outputs) * sizeof(float) +
           (n_experts + 1 + rows * used) * sizeof(uint32_t);
}

/* An operator made ready. */
struct device_op {
    const struct graph_op *op;
    const struct device_weight *weights[OP_WEIGHTS_MAX];
    int kv_group, kv_block;
};

/* stream.c */
int cpu_stream_create(struct device *d, struct stream **out, struct err *e);
void cpu_stream_destroy(struct stream **s);
int cpu_stream_wait(struct stream *s, struct err *e);
int cpu_event_create(struct device *d, struct event **out, struct err *e);
void cpu_event_destroy(struct event **v);
void cpu_event_record(struct event *v, struct stream *s);
int cpu_event_wait(struct event *v, struct err *e);
bool cpu_event_pending(struct event *v, void (*over)(void *ctx), void *ctx);

/* choices.c */
int cpu_choices(const struct device *d, struct device_choice *out, int room);

/* memory.c */
uint64_t cpu_memory_left(const struct device *device);
int cpu_device_memory_alloc(struct device *device, uint64_t bytes, struct memory *out,
                            struct err *e);
void cpu_device_memory_release(struct device *device, struct memory *m);
int cpu_device_memory_reserve(struct device *device, uint64_t bytes, const char *what,
                              struct err *e);
void cpu_device_memory_unreserve(struct device *device, uint64_t bytes);

/* weights.c */
uint64_t cpu_weight_resident_bytes(const struct device *d, const struct weight *w,
                                   enum weight_use use, bool f32);
uint64_t cpu_matmul_scratch_bytes(const struct device *d, const struct weight *w,
                                  enum weight_use use, bool f32, uint32_t rows);
uint32_t cpu_matmul_row_step(const struct device *d, const struct weight *w, enum weight_use use,
                             bool f32);
int cpu_weight_load(struct device *d, const struct weight *w, enum weight_use use, bool f32,
                    struct device_weight **out, struct err *e);
void cpu_weight_free(struct device *d, struct device_weight **w);

/* From so many rows on, weights in blocks are made panels of bytes: with fewer, making them takes
 * longer than they save. By instructions and format, as measured (bench/results/notes.md). */
size_t matmul_panel_rows(const struct cpu_device *d, enum dtype t); /* matmul_tiles.c */
enum { BLOCKS_PANEL_ROWS_MOST = 20 };
/* Whether so many rows are multiplied by 16-bit integers with plain weights of which so many lie
 * side by side. */
bool matmul_by_words(const struct cpu_device *d, size_t lanes, size_t columns,
                     size_t rows); /* matmul_words.c */
/* Of so few rows, quantised. */
static inline size_t matmul_few_bytes(size_t rows, size_t columns)
{
    return (rows + BLOCK_MAX_ROWS - 1) / BLOCK_MAX_ROWS * block_rows_bytes(BLOCK_MAX_ROWS, columns);
}
/* Of one tile for such panels: its runs, and behind them what is apart. */
static inline size_t matmul_tile_bytes(size_t columns)
{
    return columns / BLOCK_RUN * sizeof(struct block_tile_run) +
           block_most_apart_of(BLOCK_TILE, columns, BLOCK_APART) * sizeof(struct block_apart);
}
/* Of rows as such tiles: how much each has apart, and they themselves. */
static inline size_t matmul_tiles_bytes(size_t rows, size_t columns)
{
    return (rows + BLOCK_TILE - 1) / BLOCK_TILE * (sizeof(size_t) + matmul_tile_bytes(columns));
}
/* Inputs as a panel has them. */
static inline size_t weight_padded(size_t columns)
{
    return (columns + PANEL_INPUTS - 1) / PANEL_INPUTS * PANEL_INPUTS;
}

/* ops.c: one row a kind */
bool cpu_op_supports(enum op_kind kind, enum dtype weight);
int cpu_op_prepare(struct device *d, const struct op_request *r, struct device_op **out,
                   struct err *e);
void cpu_op_release(struct device_op **op);
void cpu_op_run(struct stream *s, const struct device_op *op, const struct tensor *inputs,
                const struct tensor *outputs, const struct op_batch *batch);
/* fuse.c: operators that follow each other */
void cpu_ops_run(struct stream *s, const struct op_call *calls, int n,
                 const struct op_batch *batch);
/* Their functions. */
typedef void (*cpu_op_fn)(struct stream *s, const struct device_op *op, const struct tensor *in,
                          const struct tensor *out, const struct op_batch *batch);
void cpu_matmul(struct stream *s, const struct device_op *op, const struct tensor *in,
                const struct tensor *out, const struct op_batch *batch); /* matmul.c */
/* At most so many products of the same rows, none of which reads or writes what another writes, and
 * which want these rows in the same form (of tiles: and have weights of the same format): what is
 * made of the rows is made once, and threads share out all outputs. `maker` makes the rows; NULL:
 * they are there. `next`: weights of a product of tiles that comes behind these; NULL: nobody
 * knows. */
enum { MATMULS_TOGETHER = 4 };
struct matmul_maker;
void cpu_matmuls(struct stream *s, const struct op_call *const *products, int n,
                 const struct matmul_maker *maker, const struct device_weight *next);
/* As what a product of so many rows reads its inputs; INPUTS_NONE: as they are. */
enum inputs_form cpu_matmul_form(const struct cpu_device *d, const struct device_weight *w,
                                 size_t rows);
void cpu_attention(struct stream *s, const struct device_op *op, const struct tensor *in,
                   const struct tensor *out, const struct op_batch *batch); /* attention.c */
/* Rotation of keys while they are written to the cache. */
struct cpu_turn {
    const struct op_rope *rope;
    const struct tensor *in, *angles;
    const struct tensor *out; /* where rotated keys go besides; NULL: nobody reads them */
};
/* Attention of keys that `turn` rotates (NULL: in[1], as they are). */
void cpu_attention_turned(struct stream *s, const struct device_op *op, const struct tensor *in,
                          const struct tensor *out, const struct op_batch *batch,
                          const struct cpu_turn *turn);

/* experts.c: what runs on matrices of experts */
void cpu_route(struct stream *s, const struct device_op *op, const struct tensor *in,
               const struct tensor *out, const struct op_batch *batch);
void cpu_expert_matmul(struct stream *s, const struct device_op *op, const struct tensor *in,
                       const struct tensor *out, const struct op_batch *batch);
void cpu_head_matmul(struct stream *s, const struct device_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch);
void cpu_join_heads(struct stream *s, const struct device_op *op, const struct tensor *in,
                    const struct tensor *out, const struct op_batch *batch);
void cpu_expert_sum(struct stream *s, const struct device_op *op, const struct tensor *in,
                    const struct tensor *out, const struct op_batch *batch);
void cpu_gate_rows(struct stream *s, const struct device_op *op, const struct tensor *in,
                   const struct tensor *out, const struct op_batch *batch);
void cpu_clamped_swiglu(struct stream *s, const struct device_op *op, const struct tensor *in,
                        const struct tensor *out, const struct op_batch *batch);

/* copy.c */
void cpu_copy(struct stream *s, const struct tensor *to, const struct tensor *from);

/* attention.c */
uint64_t cpu_kv_page_bytes(const struct device *d, const struct kv_layout *l);
void cpu_kv_export(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                   const struct kv_part *part, void *out);
void cpu_kv_import(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                   const struct kv_part *part, const void *data);

#endif
