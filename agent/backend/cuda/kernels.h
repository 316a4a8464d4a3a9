/* The kernels, for C. All pointers are the device's; rows of float32 come as the first one's
 * address and how many elements lie from one to the next. Calls put work on a stream and return;
 * gpu_launched says whether that failed. Number formats are enum dtype's values. What each computes
 * is what the plain backend's loop of that name computes (agent/backend/plain/loops.h). */
#ifndef HP_AGENT_BACKEND_CUDA_KERNELS_H
#define HP_AGENT_BACKEND_CUDA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/backend/arrays.h"
#include "agent/backend/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_rows {
    float *data;
    uint64_t stride;
};
/* Rows of a result. */
struct gpu_shape {
    uint32_t rows, width;
};

/* Decode reads weights so many bytes at a time. */
enum { GPU_LOAD_BYTES = 16 };

/* What a row is multiplied as, beside float32: for decode integers (MXFP4's in the order 0, 16, 1,
 * 17, ... of each 32), as they are or as fragments for tensor cores; for many rows f16 or bf16. */
enum gpu_form {
    GPU_FORM_NONE,
    GPU_FORM_INTEGERS,
    GPU_FORM_INTEGERS_BY_TURNS,
    GPU_FORM_FRAGMENTS,
    GPU_FORM_FRAGMENTS_BY_TURNS,
    GPU_FORM_F16,
    GPU_FORM_BF16
};
/* Rows that are also written as products want them, without gaps: `rows` of them, those past the
 * last are zero. As integers a row is whole blocks of 32. */
struct gpu_formed {
    uint8_t *to;
    enum gpu_form form;
    uint32_t rows;
};

/* One number from one or two, element by element. */
enum gpu_rowwise {
    GPU_ADD,
    GPU_MUL,
    GPU_SILU_MUL,
    GPU_SCALE,    /* by p */
    GPU_SOFT_CAP, /* p */
    GPU_GELU,
    GPU_GELU_EXACT,
    GPU_GATE, /* the second has one column */
    GPU_GELU_MUL,
    GPU_GELU_EXACT_MUL,
};
/* `first`: where the GELU of one of the last two goes besides; data NULL: nowhere. */
struct gpu_rowwise_call {
    enum gpu_rowwise what;
    struct gpu_rows a, b, first, out;
    float p;
    struct gpu_formed formed;
};
void gpu_rowwise_run(struct CUstream_st *s, const struct gpu_rowwise_call *c,
                     struct gpu_shape shape);

/* Each `part` of a row by itself; `bias`: of a layer norm, NULL: an RMS norm. With an addend (data
 * NULL: none) of in + addend, which is written to `sum`; then and where rows are formed a row is
 * one part. */
struct gpu_norm {
    struct gpu_rows in, addend, sum, out;
    const float *weight, *bias;
    float epsilon;
    uint32_t part;
    struct gpu_formed formed;
};
void gpu_norm_run(struct CUstream_st *s, const struct gpu_norm *n, struct gpu_shape shape);

/* Rows of a table by ids (NULL: row `first` for all), and of float32 rows by their numbers. */
void gpu_embed(struct CUstream_st *s, int dtype, const void *table, uint64_t row_bytes,
               const uint32_t *ids, uint32_t first, struct gpu_rows out, struct gpu_shape shape);
void gpu_gather(struct CUstream_st *s, struct gpu_rows in, const uint32_t *index,
                struct gpu_rows out, struct gpu_shape shape);

/* frequencies[2][pairs]: usual ones, then those of positions with GRAPH_POSITION_LONG. */
void gpu_rope_angles(struct CUstream_st *s, const double *frequencies, double magnitude,
                     uint32_t pairs, const uint32_t *positions, struct gpu_rows out, uint32_t rows);
struct gpu_rope {
    uint32_t heads, head_dim, first, pairs;
    uint32_t step, partner; /* of a pair's elements: pair i is at i * step, and `partner` on */
};
void gpu_rope_run(struct CUstream_st *s, const struct gpu_rope *how, struct gpu_rows in,
                  struct gpu_rows angles, struct gpu_rows out, uint32_t rows);

/* Rows that take some of many matrices, which lie `bytes` apart: pair row * used + i is of the
 * matrix that chosen[row][i] says (NULL: i), its input begins first + i * step elements into the
 * row's, its result i * outputs into that of the row. The weight has matrices
 * [first_matrix, first_matrix + matrices) of those that are chosen, and nothing is written for
 * pairs of others; matrices 0: it has all. */
struct gpu_pairs {
    const float *chosen;
    uint64_t stride, bytes;
    uint32_t used, first, step;
    uint32_t first_matrix, matrices;
};
/* A matrix besides, of the same format and as wide, that the same rows meet. */
struct gpu_product_more {
    const uint8_t *weight;
    uint32_t outputs;
    struct gpu_rows addend, out;
    const float *bias;
};
/* out = in * weightᵀ (+ addend) (+ bias) */
enum { GPU_PRODUCT_MORE = 2 };
struct gpu_product {
    int dtype;
    const uint8_t *weight;
    uint64_t row_bytes;
    bool turned; /* the weight lies as [inputs, outputs]; plain formats */
    uint32_t inputs, outputs, rows;
    struct gpu_rows in, addend, out; /* addend.data and bias may be NULL */
    const float *bias;
    bool
        tensor_cores; /* of capability 8.0 and later may multiply, where not float32 is asked for */
    uint8_t *numbers; /* room of gpu_decode_input_bytes, for products of integers; NULL: float32 */
    enum gpu_form form;     /* of these numbers */
    bool numbers_made;      /* the rows are there in this form already */
    struct gpu_pairs pairs; /* used 0: one matrix for all rows */
    uint32_t n_more;        /* of few rows alone: so many in the same launch */
    struct gpu_product_more more[GPU_PRODUCT_MORE];
    uint32_t persistent_blocks; /* so many stay until all is done, of gpu_decode_blocks; 0: each
                                   goes when its own outputs are */
};
bool gpu_product_knows(int dtype);
void gpu_product_run(struct CUstream_st *s, const struct gpu_product *p);

/* Of few rows (decode.cu). */
enum { GPU_DECODE_ROWS = 8 };
bool gpu_decode_by_integers(int dtype);
/* `tensor_cores`: those of capability 8.0 and later. */
enum gpu_form gpu_decode_form(int dtype, uint32_t rows, bool tensor_cores);
/* How many rows are made for so many: those past the last are zero. */
uint32_t gpu_form_rows(enum gpu_form form, uint32_t rows);
uint64_t gpu_decode_input_bytes(uint32_t inputs, uint32_t rows);
bool gpu_decode_fits(const struct gpu_product *p);
/* Pairs by integers; numbers are of each row, or of each pair where these have inputs of their own.
 */
bool gpu_decode_pairs_fit(const struct gpu_product *p);
void gpu_decode_pairs_run(struct CUstream_st *s, const struct gpu_product *p);
void gpu_decode_run(struct CUstream_st *s, const struct gpu_product *p);
/* One row by quantised weights, by blocks that stay, so many for each multiprocessor (with 4 a step
 * took 7 % longer on an H100); the results are to the bit those of blocks that do not
 * (decode_persistent.cu). */
enum { GPU_PERSISTENT_BLOCKS = 6 };
/* Blocks that a product is cut into. 0: it is none that blocks may stay for. */
uint32_t gpu_decode_blocks(const struct gpu_product *p);
void gpu_decode_persistent_run(struct CUstream_st *s, const struct gpu_product *p);
/* Rows that are there as fragments, by tensor cores (decode_tensor.cu). */
void gpu_decode_tensor_run(struct CUstream_st *s, const struct gpu_product *p);
/* Several rows by BF16 weights, by tensor cores (decode_bf16.cu). */
void gpu_decode_bf16_run(struct CUstream_st *s, const struct gpu_product *p);

/* ---- mixtures of experts ---- */

struct gpu_route {
    uint32_t experts, used;
    bool renormalised, by_lot;
    float scale;
};
/* out[rows, 2 * used]: experts' numbers, which rise (but by lot), then their weights. */
void gpu_route_run(struct CUstream_st *s, const struct gpu_route *how, struct gpu_rows in,
                   struct gpu_rows out, uint32_t rows);
/* Pairs in float32. */
void gpu_expert_product_run(struct CUstream_st *s, const struct gpu_product *p);
/* Of experts [first, first + count) alone; count 0: of all. */
struct gpu_expert_sum {
    uint32_t used, first, count;
};
/* out = base (data NULL: 0; may be out) + each of a row's experts' by its weight. */
void gpu_expert_sum_run(struct CUstream_st *s, const struct gpu_expert_sum *how, struct gpu_rows in,
                        struct gpu_rows route, struct gpu_rows base, struct gpu_rows out,
                        struct gpu_shape shape);
void gpu_clamped_swiglu(struct CUstream_st *s, struct gpu_rows gate, struct gpu_rows up,
                        uint32_t step, float alpha, float limit, struct gpu_rows out,
                        struct gpu_shape shape);
/* Parts of heads of two inputs, head by head. */
struct gpu_heads {
    uint32_t first[2], count[2], stride[2];
};
void gpu_heads_join(struct CUstream_st *s, const struct gpu_heads *how, struct gpu_rows a,
                    struct gpu_rows b, struct gpu_rows out, struct gpu_shape shape);

/* Rows of a quantised matrix, or of BF16, as f16 or bf16 without gaps. */
struct gpu_expansion {
    int dtype;
    const uint8_t *weight;
    uint64_t row_bytes;
    uint32_t rows, width;
    bool bf16;
    void *out;              /* [rows, width], at a multiple of 16 */
    const uint32_t *counts; /* of each `rows_each` rows, whether anybody wants them: 0 leaves them
                               out; NULL: all are wanted */
    uint32_t rows_each;
};
void gpu_expand(struct CUstream_st *s, const struct gpu_expansion *e);

/* Products of f16 or bf16 with float32 sums, by cuBLASLt. One thread at a time. */
struct gpu_blas;
struct gpu_half_product {
    bool bf16;
    uint32_t inputs, outputs, rows;
    const void *weight, *in; /* [outputs, inputs] and [rows, inputs] */
    struct gpu_rows addend, out;
    const float *bias;
    void *work; /* room for cuBLASLt */
    uint64_t work_bytes;
};
/* Of the device in use; NULL where there is no cuBLASLt. */
struct gpu_blas *gpu_blas_open(void);
void gpu_blas_close(struct gpu_blas *b);
/* Whether numbers lie as it wants them. */
bool gpu_blas_fits(const struct gpu_half_product *p);
/* 0 or a number of CUDA's errors. */
int gpu_blas_run(struct gpu_blas *b, struct CUstream_st *s, const struct gpu_half_product *p);

/* Products of many rows with matrices that they choose, by tensor cores (groups.cu): capability 7.5
 * and later. `inputs` is a multiple of 8. */
struct gpu_lot {
    uint32_t matrix, first, count; /* pairs order[first] and on; count 0: none */
};
struct gpu_groups {
    const float *chosen; /* of pair row * used + i: chosen[row * stride + i] */
    uint64_t stride;
    uint32_t rows, used, matrices, n_lots;
    uint32_t chosen_from; /* what is chosen for the first of the matrices; others' pairs are left
                             out */
    uint32_t *order, *counts; /* [rows * used], [matrices] */
    struct gpu_lot *lots;     /* [n_lots], of gpu_groups_lots */
    const uint16_t *in;       /* [rows or pairs, inputs] as f16 or bf16 */
    bool apart, bf16;         /* apart: pairs have inputs of their own */
    uint32_t inputs, outputs;
    const uint16_t
        *weight; /* [n_matrices, n_outputs, inputs], of first_matrix and first_output on */
    uint32_t first_matrix, n_matrices, first_output, n_outputs;
    const float *bias; /* [what may be chosen, outputs] or NULL */
    struct gpu_rows out;
};
uint32_t gpu_groups_lots(uint32_t pairs, uint32_t matrices);
/* Writes order, counts and lots. */
void gpu_groups_list(struct CUstream_st *s, const struct gpu_groups *g);
void gpu_groups_run(struct CUstream_st *s, const struct gpu_groups *g);

/* ---- keys and values ---- */

/* A row of a batch: its token's position, what it sees, and where its sequence's pages begin in
 * `pages`. */
struct gpu_attention_row {
    uint32_t row, position, first, last, pages;
};
/* Rows [first, first + count) that follow each other in one sequence, at most GPU_TILE_ROWS. */
struct gpu_attention_tile {
    uint32_t first, count;
};
enum { GPU_TILE_ROWS = 128, GPU_TILE_LEAST = 16 /* tokens of a run that are worth a tile */ };
struct gpu_attention {
    int kv_format; /* enum kv_format */
    uint8_t *pool;
    uint64_t page_bytes, token_bytes, head_bytes; /* of one part */
    uint32_t block, parts, page_tokens;
    uint32_t heads, kv_heads, head_dim, value_dim;
    float scale, cap;
    const float *sinks; /* [heads]; NULL: none */
    struct gpu_rows q, k, v, out;
    const struct gpu_attention_row *rows;
    const uint32_t *pages;
    const struct gpu_attention_tile *tiles; /* of the first `n_tiled` rows */
    uint32_t n_rows, n_tiled, n_tiles;
    bool hopper;              /* tiles are flash_hopper.cu's */
    bool wide_turns;          /* tiles go by more tokens at a time, see GPU_FLASH_ROOMY */
    bool alone;               /* each row is the only one of its sequence */
    uint32_t splits;          /* of what each other row sees, at most; 0: none */
    float *parts_found;       /* room of gpu_split_bytes */
    struct gpu_formed formed; /* of rows that are split, each head of whole blocks of 32, or all in
                                 tiles, as f16 or bf16 */
};
/* Shared memory of a multiprocessor with which two blocks of any tile fit at 64 tokens at a time,
 * for which nvcc finds registers up to Hopper; elsewhere it is half as many. */
enum { GPU_HEAD_DIM_MAX = 576, GPU_FLASH_ROOMY = 128 << 10 };
/* Rotation of queries and keys on their way to attention: what lies in a.q and a.k is made of `in`.
 */
struct gpu_turn {
    struct gpu_rope how[2];
    struct gpu_rows in[2], angles[2], out[2];
};
/* Writes keys and values of the rows, then attends; `turn`: queries and keys are rotated before, by
 * the same kernel that writes (NULL: they are already). */
void gpu_attend(struct CUstream_st *s, const struct gpu_attention *a, const struct gpu_turn *turn);
/* Tiles, with tensor cores (flash.cu): capability 7.5 and later. */
bool gpu_flash_knows(int kv_format, uint32_t head_dim, uint32_t value_dim, uint32_t parts);
void gpu_flash(struct CUstream_st *s, const struct gpu_attention *a);
/* The same for Hopper, capability 9.0 (flash_hopper.cu), of what gpu_flash_knows too. */
bool gpu_hopper_knows(uint32_t head_dim);
void gpu_flash_hopper(struct CUstream_st *s, const struct gpu_attention *a);
/* Rows that are in no tile, each in at most `splits` parts (split.cu), of so many tokens at
 * least: what a row sees decides, on the device, so that the same launch holds for all steps. */
enum { GPU_SPLIT_LEAST = 32 };
bool gpu_split_knows(const struct gpu_attention *a);
uint64_t gpu_split_bytes(const struct gpu_attention *a);
void gpu_split(struct CUstream_st *s, const struct gpu_attention *a);

/* Rows that are alone and not split, which also writes keys and values as gpu_attend does
 * (split_alone.cu). */
bool gpu_alone_knows(const struct gpu_attention *a);
void gpu_attend_alone(struct CUstream_st *s, const struct gpu_attention *a,
                      const struct gpu_turn *turn);

/* ---- tokens ---- */

struct gpu_sample_change {
    uint32_t token;
    float amount;
};
/* As struct sample_ask, with `first` for where its changes begin. */
struct gpu_sample_ask {
    double temperature, top_p, min_p, chance;
    float repetition;
    uint32_t wanted, top_k, first, n_seen, n_added, n_ruled_out;
};
/* All but logits and room is memory of the host that the GPU reaches. */
struct gpu_sampling {
    struct gpu_rows logits;
    uint32_t n, width; /* GPU_SAMPLE_LEAST to GPU_SAMPLE_MOST */
    const struct gpu_sample_ask *asks;
    const struct gpu_sample_change *changes;
    uint32_t *tokens; /* [n]; UINT32_MAX: in doubt */
    float *rows;      /* [n, width]: those in doubt */
    uint64_t *room;   /* [n, width], of the device */
};
enum { GPU_SAMPLE_LEAST = 65, GPU_SAMPLE_MOST = 1 << 18 };
void gpu_sample(struct CUstream_st *s, const struct gpu_sampling *p);

/* ---- networks (agent/backend/arrays.h) ---- */

void gpu_array_elements(struct CUstream_st *s, const struct array_elements *c);
void gpu_array_reduce(struct CUstream_st *s, const struct nn_reduction *r, float *out,
                      const float *x);
void gpu_array_softmax(struct CUstream_st *s, const struct array_softmax *c);
void gpu_array_norm(struct CUstream_st *s, const struct array_norm *c);
void gpu_array_product(struct CUstream_st *s, const struct array_product *p);
void gpu_array_causal(struct CUstream_st *s, const struct array_causal *c);
void gpu_array_scores(struct CUstream_st *s, const struct array_scores *c);
void gpu_array_conv(struct CUstream_st *s, const struct array_conv *c);
void gpu_array_resize(struct CUstream_st *s, const struct array_resize *c);
void gpu_array_pool(struct CUstream_st *s, const struct nn_pool *p, float *out, const float *x);

/* ---- number formats of rows ---- */

/* Between float32 and F16, BF16 or Q8_WIRE, as narrow.h has it; rows of `row_bytes`. */
void gpu_narrow(struct CUstream_st *s, int dtype, struct gpu_rows in, void *out, uint64_t row_bytes,
                struct gpu_shape shape);
void gpu_widen(struct CUstream_st *s, int dtype, const void *in, uint64_t row_bytes,
               struct gpu_rows out, struct gpu_shape shape);

#ifdef __cplusplus
}
#endif

#endif
