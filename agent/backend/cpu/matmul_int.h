/* What the kinds of matrix products share. */
#ifndef HP_AGENT_BACKEND_CPU_MATMUL_INT_H
#define HP_AGENT_BACKEND_CPU_MATMUL_INT_H

#include "agent/backend/cpu/cpu_int.h"

/* Who makes the rows of a product's inputs, right before something is made of them. */
struct matmul_maker {
    /* Rows [begin, begin + n), at most MAKER_ROWS, to `to`, `stride` floats apart; any thread. */
    void (*make)(const void *ctx, size_t begin, size_t n, float *to, size_t stride);
    const void *ctx;
    bool kept; /* others read the rows, too: they go to the product's x, else to scratch */
};
enum { MAKER_ROWS = 6 };
_Static_assert(MAKER_ROWS >= (int)BLOCK_MAX_ROWS && MAKER_ROWS >= (int)BLOCK_TILE &&
                   MAKER_ROWS >= (int)WORD_TILE,
               "rows that are quantised together are made together");

struct matmul_job {
    struct cpu_device *device;
    const struct device_weight *w;
    const struct device_weight *next; /* FORM_BLOCKS: of the product behind this one, whose first
                                         bytes are asked for meanwhile; NULL: nobody knows */
    const float *bias;                /* [outputs] or NULL */
    const float *x;                   /* [rows, inputs] */
    size_t x_row;                     /* elements from one row of x to the next */
    const struct matmul_maker *maker; /* of x; NULL: it is there */
    uint16_t *x_bf16;                 /* [rows, x_stride] */
    size_t x_stride;          /* inputs as our kernel has them padded, or as oneDNN has them not */
    uint8_t *x_blocks;        /* [rows / BLOCK_MAX_ROWS]: of block_rows_bytes of so many */
    uint8_t *x_tiles;         /* [rows / BLOCK_TILE]: of matmul_tile_bytes(inputs) */
    struct word_run *x_words; /* [rows / WORD_TILE, inputs / WORD_RUN] */
    size_t *tiles_apart;      /* [rows / BLOCK_TILE]: how many inputs of a tile are apart */
    float *out;               /* [rows, outputs] */
    size_t rows;
    bool accumulate, by_rows;
    struct parts parts;                                /* of the rows, or of the outputs */
    void (*run)(void *job, int thread, uint32_t part); /* the product, once it has begun */
    atomic_bool failed;
};

/* Adds the bias of outputs [begin, end) to rows [first_row, end_row). */
void matmul_add_bias(const struct matmul_job *job, size_t first_row, size_t end_row, size_t begin,
                     size_t end);
enum inputs_there {
    INPUTS_MISSING,
    INPUTS_OF_OTHERS, /* for weights of another format */
    INPUTS_THERE
};
/* Whether the device's inputs are this job's already, by the product just before it; they count as
 * these from now on. */
enum inputs_there matmul_inputs_find(const struct matmul_job *job, enum inputs_form form);
/* Rows [r, r + n) of x, at most MAKER_ROWS, as they are read now: made first, where nobody has. */
struct matmul_rows {
    const float *at;
    size_t stride;
};
struct matmul_rows matmul_rows_now(const struct matmul_job *job, int thread, size_t r, size_t n);
/* Fills x_bf16 from x, zeros up to x_stride; on the calling thread alone, or on all. */
void matmul_fill_bf16(struct matmul_job *job, bool alone);

/* The byte of a row of weights at which those of input k0 begin. */
static inline size_t matmul_in_place_at(const struct device_weight *w, size_t k0)
{
    const struct dtype_info *info = dtype_info(w->dtype);
    return k0 / info->block_elements * info->block_bytes;
}
/* Rows [c, c + n) of weights in place as floats, DOT_CHUNK apart, whole groups of those side by
 * side; inputs [k0, k0 + n) of them. */
void matmul_in_place_unpack(const struct matmul_job *job, size_t c, size_t n_rows, size_t k0,
                            size_t n, float *out);
/* matmul_tiles.c: quantises the rows into x_tiles, unless they are there. False: no memory. */
bool matmul_tiles_make(struct matmul_job *job);
/* Inputs [k0, k0 + n) of tile i; in x_tiles still. */
struct block_tile matmul_tile_chunk(const struct matmul_job *job, size_t i, size_t k0, size_t n);

/* What follows begins a product: its inputs are made as its weights want them, and `run` and
 * `parts` say what is left to do. False: no memory. */

/* matmul_words.c: plain formats that lie side by side, where matmul_by_words says so */
bool matmul_words_begin(struct matmul_job *job);
/* matmul_blocks.c: weights of FORM_BLOCKS, any number of rows */
bool matmul_blocks_begin(struct matmul_job *job);
/* matmul_few.c: the same by integers, a few rows at a time */
bool matmul_few_begin(struct matmul_job *job);

#endif
