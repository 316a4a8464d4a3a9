/* The single-threaded pieces that the CPU backend is made of: one table for each set of
 * instructions, chosen at run time.
 *
 * The plain loops of agent/backend/plain/loops.h say what each piece means; these compute the same
 * with vectors, within rounding. In float32 the order in which one
 * output element is summed depends on its own inputs alone, never on how many rows are computed
 * together: that is what makes `--compute f32` independent of batches and slices. */
#ifndef HP_AGENT_BACKEND_CPU_KERNELS_H
#define HP_AGENT_BACKEND_CPU_KERNELS_H

#include "agent/backend/backend.h"
#include "agent/backend/cpu/blocks.h"
#include "agent/backend/cpu/narrow.h"
#include "agent/backend/cpu/words.h"
#include "model/graph/config.h"

enum {
    DOT_MAX_ROWS = 4,     /* rows of x that one call of `dot` takes */
    SIDE_ROWS = 4,        /* rows of weights of plain formats that lie side by side */
    DOT_CHUNK = 512,      /* inputs whose products are summed before they are added to the output */
    PANEL_OUTPUTS = 64,   /* outputs side by side in a packed bf16 panel */
    PANEL_INPUTS = 32,    /* a panel's inputs are padded to a multiple of this */
    PANEL_TURN_ROWS = 16, /* outputs that a panel is made of at a time: they stay in the cache */
    ATTEND_MAX_ROWS = 192 /* query rows of one attention task */
};

/* A tile of attention: rows [row_begin, row_end) of one run and one kv head, where row r is query
 * head `r % group` of the run's token `r / group`, at position first_position + r / group. */
struct attend_task {
    const float *q; /* first query head of the kv head's group in the run's first row */
    float *out;     /* the same place in the output */
    size_t q_stride, out_stride; /* floats from one token to the next */
    int group, head_dim, value_dim;
    bool by_rows; /* values are the first elements of keys, which are kept as values are, alone */
    uint32_t first_position, row_begin, row_end;
    const uint8_t *head; /* in page 0: keys [head_dim][KV_PAGE_TOKENS], then values
                            [KV_PAGE_TOKENS][head_dim]; by rows: keys [KV_PAGE_TOKENS][head_dim].
                            Of KV_Q8_0 keys [head_dim / 2][KV_PAGE_TOKENS][2], values and keys
                            by rows [KV_PAGE_TOKENS / 2][head_dim][2], and behind these, for keys
                            and then for values, [head_dim / KV_Q8_ELEMENTS][KV_PAGE_TOKENS] scales
                          */
    size_t page_stride;  /* bytes from one page to the next */
    const uint32_t *pages;
    uint32_t sees_to; /* every row sees up to this position, too; 0: to its own alone */
    uint32_t window;  /* a row sees its own token and the window - 1 before it; 0: all before it */
    enum kv_format format;
    float scale;
    float cap;          /* of scores: cap * tanh(score / cap); 0: none */
    const float *sinks; /* [group]: scores that no value stands for; NULL: none */
    float *scratch;     /* attend_scratch_floats(head_dim) */
};

/* The last position that row `r` of the run sees. */
static inline uint32_t attend_last_seen(const struct attend_task *t, uint32_t r)
{
    uint32_t own = t->first_position + r / (uint32_t)t->group;
    return own > t->sees_to ? own : t->sees_to;
}

/* Heads that rotate: each from `in` to `out`, which may be the same, head_dim floats from one to
 * the next. Pairs of elements turn by their angles, cosine and sine of each: [pairs][2]. */
struct rope_task {
    const float *in, *angles;
    float *out;
    size_t heads, head_dim, pairs;
};

struct cpu_kernels {
    const char *name;

    /* n values of a dtype, a whole number of blocks, to float32. NULL, like `dot`, where there is
     * no kernel for a format: kernels_unpack goes by its row of the table of formats. */
    void (*unpack[DTYPE_COUNT])(const uint8_t *src, size_t n, float *out);
    void (*f32_to_f16)(const float *src, size_t n, uint16_t *out);
    void (*f32_to_q8_0)(const float *src, size_t n, uint8_t *out); /* loop_q8_0, to the bit */
    const struct narrow_kernels *narrow;                           /* for what leaves the device */
    const struct block_kernels *blocks; /* quantised weights where they lie */
    const struct word_kernels *words;   /* plain formats and many rows; NULL where there is bf16 */

    /* out[r * out_stride + c] += sum over k of x[r * x_stride + k] * w[c][k], for up to
     * DOT_MAX_ROWS rows and `cols` rows of weights, w_stride bytes apart; k <= DOT_CHUNK, a whole
     * number of blocks of the dtype. As many bytes as the weights have are asked for from `next` on
     * meanwhile, where it is not NULL. */
    void (*dot[DTYPE_COUNT])(const float *x, size_t x_stride, int rows, const uint8_t *w,
                             size_t w_stride, size_t cols, size_t k, const uint8_t *next,
                             float *out, size_t out_stride);

    /* Plain formats whose rows lie side by side (plain_side_put): `side_values` values of each of
     * SIDE_ROWS rows in turn. `dot_side` adds to as many outputs what `dot` would, to the bit;
     * `unpack_side` makes rows of k floats, out_stride apart. k is a multiple of side_values. NULL
     * where a format has no such kernel. */
    size_t side_values;
    void (*dot_side[DTYPE_COUNT])(const float *x, size_t x_stride, int rows, const uint8_t *w,
                                  size_t k, float *out, size_t out_stride);
    void (*unpack_side[DTYPE_COUNT])(const uint8_t *w, size_t k, float *out, size_t out_stride);

    /* out[width] = in / sqrt(mean(in²) + epsilon) * weight */
    void (*rms_norm)(const float *in, const float *weight, float epsilon, size_t width, float *out);
    void (*layer_norm)(const float *in, const float *weight, const float *bias, float epsilon,
                       size_t width, float *out);
    void (*gelu)(const float *in, size_t n, float *out);
    void (*gelu_exact)(const float *in, size_t n, float *out);
    void (*soft_cap)(const float *in, float cap, size_t n, float *out);
    void (*silu_mul)(const float *gate, const float *up, size_t n, float *out);
    /* By style, to the bit as loop_rope does it. */
    void (*rope[ROPE_PAIRS + 1])(const struct rope_task *t);
    /* Attention of a tile. Where there is bf16 arithmetic, large tiles over long prefixes in f16
     * are multiplied in bf16. */
    void (*attend)(const struct attend_task *t);

    /* bfloat16 arithmetic: NULL in tables without it. A panel is
     * [inputs / 2][PANEL_OUTPUTS][2]. */
    void (*f32_to_bf16)(const float *src, size_t n, uint16_t *out);
    /* PANEL_TURN_ROWS rows of k values, `stride` apart, k a multiple of PANEL_INPUTS, become so
     * many outputs of a panel, side by side from `panel` on. */
    void (*panel_turn)(const uint16_t *rows, size_t stride, size_t k, uint16_t *panel);
    /* out[r * out_stride + c] (+)= sum over k of x[r * x_stride + k] * panel's, c < cols <=
     * PANEL_OUTPUTS, k a multiple of PANEL_INPUTS. */
    void (*panel_dot)(const uint16_t *x, size_t x_stride, int rows, const uint16_t *panel, size_t k,
                      size_t cols, bool accumulate, float *out, size_t out_stride);
};

extern const struct cpu_kernels kernels_avx2, kernels_avx_vnni, kernels_avx512, kernels_avx512_bf16,
    kernels_amx;

/* The best table that this CPU has, or that of `name` where one is given: HP_EDEVICE when the CPU
 * lacks it, HP_EINVAL for an unknown name. AMX is best where it has been measured to be (amx.h). */
int kernels_choose(const char *name, const struct cpu_kernels **out, struct err *e);

/* Which of the instructions that the tables ask for this CPU has: "avx2 fma f16c avx512f …". */
void kernels_features(char *out, size_t size);

static inline void kernels_unpack(const struct cpu_kernels *k, enum dtype t, const uint8_t *src,
                                  size_t n, float *out)
{
    if (k->unpack[t])
        k->unpack[t](src, n, out);
    else if (k->blocks->unpack[t])
        k->blocks->unpack[t](src, n, out);
    else
        dtype_info(t)->to_f32(src, n, out);
}

/* Floats of scratch that `attend` needs: keys and values of a page, also as halves; scores, queries
 * and sums. */
static inline size_t attend_scratch_floats(int head_dim)
{
    size_t padded = ((size_t)head_dim + 63) / 64 * 64;
    return 3 * padded * KV_PAGE_TOKENS +
           (size_t)ATTEND_MAX_ROWS * (2 * padded + KV_PAGE_TOKENS + 2);
}

#endif
