/* Products with quantised weights, in as many bytes as their files have: inputs are quantised too,
 * to eight bits with a scale for every 32, and integers are multiplied. Each byte of the weights is
 * read once for up to BLOCK_MAX_ROWS rows, or for all rows by way of panels.
 *
 * A few channels of a language model's activations are many times as large as all others (LLM.int8,
 * Dettmers et al. 2022, section 3) and would coarsen the steps of the 31 beside them. Inputs stand
 * out that are larger than so many times their row's root mean square, at most one in that square:
 * BLOCK_FEW_APART times where few rows are multiplied, BLOCK_APART times where many are. They are
 * apart: they count as 0 among the integers, and are multiplied in float32 with the same weights.
 * With AVX-512 the run of a few rows is multiplied twice instead, with the same registers of
 * weights: what stands out in steps of its own, and then the others with what these steps left.
 *
 * The error of an output is at most that of its inputs' rounding: the sum over k of |w[k]| times
 * half of x's scale there, which is the largest |x| of 32 that does not stand out, or 1/254 of the
 * largest that does, over 127; and float32's own, beside which it is small. In a row whose root
 * mean square is below 1e-15, infinite or no number nothing stands out. Inputs below the least
 * normal float32 count as 0. */
#ifndef HP_AGENT_BACKEND_CPU_BLOCKS_H
#define HP_AGENT_BACKEND_CPU_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/dtype/dtype.h"

enum {
    BLOCK_RUN = 32,      /* inputs that share a scale */
    BLOCK_FEW_APART = 3, /* root mean squares beyond which a few rows' inputs stand out */
    BLOCK_APART = 4,     /* and many rows': what is apart costs them more */
    BLOCK_MAX_ROWS = 4,  /* of one call */
    BLOCK_TILE = 6,      /* rows of inputs that many rows are cut into */
    BLOCK_JOIN_MOST = 5, /* tiles that are multiplied at once */
    BLOCK_LINE = 64      /* bytes of a cache line */
};

/* How many of n inputs can be apart, beyond so many root mean squares. */
static inline size_t block_most_apart(size_t n, int times)
{
    return n / (size_t)(times * times);
}

/* An input that is apart in one row at least of some; 0 where it is not. */
struct block_apart {
    uint32_t column;
    float offset; /* what bytes of panels, read without a sign, are too great by */
    float values[BLOCK_TILE];
};

/* Of so many rows of n inputs. */
static inline size_t block_most_apart_of(size_t rows, size_t n, int times)
{
    size_t most = block_most_apart(n, times) * rows;
    return most < n ? most : n;
}

/* Up to BLOCK_MAX_ROWS quantised rows. A run of all rows lies together: of each row BLOCK_RUN
 * bytes, then floats of all rows: scales (an input is scale * byte), sums of the run's inputs as
 * quantised, and the same of its two halves, side by side (with AVX2 the sums of these halves'
 * bytes, 16 bits each, in the first of the two); last a bit for each row that multiplies
 * it twice, as 32 bits. What stands out of such a row lies elsewhere, as a run of one row without
 * these bits does. Kernels use `out` or `apart`, which share their memory. */
struct block_rows {
    uint8_t *runs;             /* [inputs / BLOCK_RUN]: of block_run_bytes(rows) */
    uint8_t *out;              /* what stands out: of BLOCK_OUT_BYTES, run by run, row by row */
    struct block_apart *apart; /* in the order of their columns */
    uint32_t *n_apart;
    int rows;
};

enum { BLOCK_OUT_BYTES = BLOCK_RUN + 4 * sizeof(float) }; /* bytes and floats of a row's run */

static inline size_t block_run_bytes(size_t rows)
{
    return rows * BLOCK_OUT_BYTES + sizeof(uint32_t);
}

/* Memory of so many rows of n inputs. */
static inline size_t block_rows_bytes(size_t rows, size_t n)
{
    size_t out = n / BLOCK_RUN * rows * BLOCK_OUT_BYTES,
           apart = block_most_apart_of(rows, n, BLOCK_FEW_APART) * sizeof(struct block_apart);
    return n / BLOCK_RUN * block_run_bytes(rows) + sizeof(uint32_t) + (out > apart ? out : apart);
}

/* They, in memory that is aligned for floats. */
static inline struct block_rows block_rows_at(uint8_t *memory, int rows, size_t n)
{
    uint32_t *n_apart =
        (uint32_t *)(void *)(memory + n / BLOCK_RUN * block_run_bytes((size_t)rows));
    void *out = n_apart + 1;
    return (struct block_rows){memory, out, out, n_apart, rows};
}

/* out[r * out_stride + c] = sum over k < n of x[r][k] * w[c][k], plus what is there where it
 * accumulates; for `cols` rows of weights, a multiple of `lanes` that lie side by side
 * (block_lanes.h), w_stride the bytes of one. n is a whole number of blocks. */
typedef void (*block_dot_fn)(const struct block_rows *x, const uint8_t *w, size_t w_stride,
                             size_t cols, size_t n, bool accumulate, float *out, size_t out_stride);

/* A run of a tile's rows, quantised as those of block_rows are, for products of many rows with one
 * format. */
struct block_tile_run {
    int8_t values[BLOCK_RUN / 4][BLOCK_TILE][4]; /* to be joined: [BLOCK_TILE][BLOCK_RUN] */
    int32_t starts[2][BLOCK_TILE]; /* of the run or of its halves: values' sum, times what bytes of
                                      panels are too great by, less than 0; of superblocks on AVX2
                                      such sums of inputs 0 and 1 and of 2 and 3 of each quad, 16
                                      bits each */
    float sums[2][BLOCK_TILE];     /* of the run's inputs or of its halves', as quantised */
    float scales[BLOCK_TILE];
};

/* Up to BLOCK_TILE rows of inputs. */
struct block_tile {
    struct block_tile_run *runs;
    struct block_apart *apart; /* in the order of their columns */
    size_t n_runs, n_apart;
    size_t first; /* the first run's first input, as `apart` counts them */
    int rows;
    /* Memory that is asked for meanwhile: so many cache lines with each run of a product, from
     * `ahead` on. */
    const uint8_t *ahead;
    size_t ahead_lines;
};

/* out[r * out_stride + c] (+)= sum over the inputs of a tile of x[r] * a panel's, for its rows and
 * panel_outputs outputs. */
typedef void (*block_panel_dot_fn)(const struct block_tile *x, const uint8_t *panel,
                                   bool accumulate, float *out, size_t out_stride);

/* The same, to the bit, of a tile of BLOCK_TILE rows, and makes the panel: of groups that lie
 * group_step bytes apart. */
typedef void (*block_panel_begin_fn)(const struct block_tile *x, const uint8_t *group,
                                     size_t group_step, uint8_t *panel, bool accumulate, float *out,
                                     size_t out_stride);

/* An input that is apart in one of the rows of several tiles; its column is that of their chunk. */
struct block_joined_apart {
    uint16_t column, row;
    float value;
};

/* Tiles that are multiplied at once: n of them, of the same inputs, whose rows lie together in
 * `runs`. What is asked for meanwhile is as of the first. */
struct block_joined {
    const struct block_tile *tiles;
    int n;
    void *runs; /* [tiles->n_runs]: of joined_bytes, beginning with a cache line */
    struct block_joined_apart *apart; /* run by run; room for block_joined_most_apart */
    size_t n_apart;
};

/* Of all rows that are joined, of whose n inputs so many are a chunk. */
static inline size_t block_joined_most_apart(size_t n, size_t chunk)
{
    size_t most = block_most_apart(n, BLOCK_APART);
    return BLOCK_JOIN_MOST * BLOCK_TILE * (most < chunk ? most : chunk);
}

/* The same, to the bit, of all their rows: with a panel, of which a group's lies group_step bytes
 * behind the one before, or with weights as they lie. */
typedef void (*block_joined_dot_fn)(const struct block_joined *x, const uint8_t *groups,
                                    size_t group_step, bool accumulate, float *out,
                                    size_t out_stride);

/* The same, to the bit, without a panel: of the weights of groups that lie group_step bytes apart,
 * and of their scales, where the format has a direct_make for them. */
typedef void (*block_direct_dot_fn)(const struct block_tile *x, const uint8_t *group,
                                    size_t group_step, const uint8_t *scales, bool accumulate,
                                    float *out, size_t out_stride);

struct block_kernels {
    /* x->rows rows of n inputs, a multiple of BLOCK_RUN, x_stride floats apart. */
    void (*quantise)(const float *x, size_t x_stride, size_t n, const struct block_rows *out);
    /* How many rows of weights lie side by side, and products with them; NULL for what is not in
     * blocks. */
    size_t lanes;
    block_dot_fn dot[DTYPE_COUNT];
    /* Many rows: weights' bytes are taken out of their blocks once for all of them, into panels of
     * panel_outputs outputs, a multiple of `lanes`. A panel is what panel_make makes of n inputs of
     * a group's blocks, for each of its groups, one behind the other: panel_bytes for a run of a
     * group. */
    size_t panel_outputs;
    size_t (*panel_bytes)(enum dtype t);
    void (*panel_make[DTYPE_COUNT])(const uint8_t *group, size_t n, uint8_t *panel);
    block_panel_dot_fn panel_dot[DTYPE_COUNT];     /* NULL: joined_dot */
    block_panel_begin_fn panel_begin[DTYPE_COUNT]; /* NULL: panel_make, then panel_dot */
    block_direct_dot_fn direct_dot[DTYPE_COUNT];   /* NULL: by panels alone */
    /* What direct_dot wants beside the weights, made as panels are: direct_bytes for a run of a
     * group, less than a panel's. NULL: nothing. */
    size_t direct_bytes;
    void (*direct_make[DTYPE_COUNT])(const uint8_t *group, size_t n, uint8_t *scales);
    /* Where several tiles are multiplied at once, BLOCK_JOIN_MOST at most: how many bytes a run of
     * them has, whole cache lines, who joins them (sets what x->runs and x->apart point to, and
     * x->n_apart), and whether weights are taken as they lie, without a panel. */
    size_t joined_bytes;
    void (*join)(struct block_joined *x);
    block_joined_dot_fn joined_dot[DTYPE_COUNT]; /* NULL: by panel_dot, one after the other */
    bool joined_lie[DTYPE_COUNT];
    /* out->rows rows of all their inputs, out->n_runs * BLOCK_RUN, x_stride floats apart; rows that
     * are missing are zeros. `runs` has room for n_runs, `apart` for block_most_apart_of
     * BLOCK_TILE rows, BLOCK_APART times; sets n_apart and `first`. */
    void (*tile_make)(enum dtype t, const float *x, size_t x_stride, struct block_tile *out);
    /* A tile that was made for weights of any format becomes what tile_make makes of the same rows
     * for those of t, to the bit: the bytes stay. */
    void (*tile_turn)(enum dtype t, struct block_tile *tile);
    /* n weights, a whole number of blocks, to the bits of their format's to_f32. */
    void (*unpack[DTYPE_COUNT])(const uint8_t *src, size_t n, float *out);
};

/* blocks_amx: of CPUs with AVX-512, too; only after amx_is_usable, for the process that asked. */
extern const struct block_kernels blocks_avx2, blocks_avx_vnni, blocks_avx512, blocks_amx;

#endif
