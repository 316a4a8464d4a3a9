/* What the kernels of attention in tiles share: scores of rows as tensor cores leave them, which
 * become weights. A lane has of two rows, 8 apart, two columns of every eight; greatest score and
 * sum of weights are carried from turn to turn (Dao, FlashAttention-2, section 3.1). */
#ifndef HP_AGENT_BACKEND_CUDA_FLASH_CUH
#define HP_AGENT_BACKEND_CUDA_FLASH_CUH

#include "agent/backend/cuda/attention.cuh"
#include "agent/backend/cuda/forms.cuh"
#include "agent/backend/cuda/tensor.cuh"
#include "common/kv_range.h"

static constexpr float LOG2_E = 1.44269504f;
static constexpr uint32_t FLASH_PAGE = KV_PAGE_TOKENS;

/* What a lane knows of two rows, 8 apart. */
struct flash_rows {
    float greatest[2], total[2];
};

static __device__ __forceinline__ flash_rows rows_begin()
{
    return {{-INFINITY, -INFINITY}, {0, 0}};
}

/* What a block goes through: positions from `first` to `last`, of which all its rows see those from
 * `all_first` to `all_last`, of the sequence whose pages begin at `pages`. */
struct flash_turns {
    gpu_attention_tile tile;
    uint32_t first, last, all_first, all_last, pages;
    uint32_t head; /* where a token's part has the block's head, in bytes */
};

static __device__ __forceinline__ flash_turns turns_of(const gpu_attention &a,
                                                       const gpu_attention_tile &tile)
{
    gpu_attention_row top = a.rows[tile.first], end = a.rows[tile.first + tile.count - 1];
    return {tile,
            top.first,
            end.last,
            end.first,
            top.last,
            top.pages,
            blockIdx.x / (a.heads / a.kv_heads) * (uint32_t)a.head_bytes};
}

/* Row i of a tile; past its end its last one. */
static __device__ __forceinline__ gpu_attention_row tile_row(const gpu_attention &a,
                                                             const gpu_attention_tile &tile,
                                                             uint32_t i)
{
    return a.rows[tile.first + (i < tile.count ? i : tile.count - 1)];
}

/* By how much scores are multiplied to be powers of two. */
static __device__ __forceinline__ float scores_factor(const gpu_attention &a)
{
    return a.cap != 0 ? LOG2_E : a.scale * LOG2_E;
}

template <int N>
static __device__ __forceinline__ void scores_cap(const gpu_attention &a, float (*scores)[4])
{
    float by = a.scale / a.cap;
#pragma unroll
    for (uint32_t n = 0; n < N / 8; n++)
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            scores[n][k] = a.cap * tanh_fast(scores[n][k] * by);
}

/* Of N tokens from position `first` on those that rows `own` and 8 below do not see count nothing.
 */
template <int N>
static __device__ __forceinline__ void scores_mask(const gpu_attention &a,
                                                   const gpu_attention_tile &tile, uint32_t own,
                                                   uint32_t first, float (*scores)[4])
{
    uint32_t column = first + threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        gpu_attention_row row = tile_row(a, tile, own + h * 8);
#pragma unroll
        for (uint32_t n = 0; n < N / 8; n++)
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                uint32_t position = column + n * 8 + k;
                if (position < row.first || position > row.last)
                    scores[n][h * 2 + k] = -INFINITY;
            }
    }
}

/* Scores become weights; `keep` is by what sums so far are to be multiplied. */
template <int N>
static __device__ __forceinline__ void scores_weigh(float factor, flash_rows &r, float (*scores)[4],
                                                    float *keep)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        float most = r.greatest[h], total = 0;
#pragma unroll
        for (uint32_t n = 0; n < N / 8; n++)
            most = fmaxf(most, fmaxf(scores[n][h * 2], scores[n][h * 2 + 1]));
        most = fmaxf(most, __shfl_xor_sync((unsigned)ALL_LANES, most, 1));
        most = fmaxf(most, __shfl_xor_sync((unsigned)ALL_LANES, most, 2));
        float from = most == -INFINITY ? 0 : most * factor;
        keep[h] = exp2_fast(r.greatest[h] * factor - from);
#pragma unroll
        for (uint32_t n = 0; n < N / 8; n++)
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                float weight = exp2_fast(scores[n][h * 2 + k] * factor - from);
                scores[n][h * 2 + k] = weight;
                total += weight;
            }
        r.greatest[h] = most;
        r.total[h] = r.total[h] * keep[h] + total;
    }
}

/* Of N tokens from position `first` on. */
template <int N>
static __device__ __forceinline__ void turn_weigh(const gpu_attention &a, const flash_turns &t,
                                                  uint32_t own, uint32_t first, flash_rows &r,
                                                  float (*scores)[4], float *keep)
{
    if (a.cap != 0)
        scores_cap<N>(a, scores);
    if (first < t.all_first || first + N - 1 > t.all_last)
        scores_mask<N>(a, t.tile, own, first, scores);
    scores_weigh<N>(scores_factor(a), r, scores, keep);
}

/* Weights of N tokens as fragments of 16 each. */
template <int N>
static __device__ __forceinline__ void weights_pack(const float (*scores)[4], unsigned (*to)[4])
{
#pragma unroll
    for (uint32_t k = 0; k < N / 16; k++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            to[k][i] = halves_of_small(scores[k * 2 + i / 2][i % 2 * 2],
                                       scores[k * 2 + i / 2][i % 2 * 2 + 1]);
}

/* Most turns bring no greater score to any row of a warp. */
template <int N>
static __device__ __forceinline__ void sums_keep(const float *keep, float (*sums)[4])
{
    if (!__any_sync((unsigned)ALL_LANES, keep[0] != 1 || keep[1] != 1))
        return;
#pragma unroll
    for (uint32_t n = 0; n < N / 8; n++)
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            sums[n][k] *= keep[k / 2];
}

/* Whether rows lie at multiples of 16 bytes. */
static __device__ __forceinline__ bool rows_are_whole(const gpu_rows &r)
{
    return ((uintptr_t)r.data / sizeof(float) | r.stride) % 4 == 0;
}

/* Divides by the sums of weights, a sink among them, and writes N columns of rows `own` and 8 below
 * where they are there. */
template <int N>
static __device__ __forceinline__ void rows_write(const gpu_attention &a,
                                                  const gpu_attention_tile &tile, uint32_t own,
                                                  const flash_rows &r, float (*sums)[4])
{
    uint32_t head = blockIdx.x;
    float factor = scores_factor(a);
    bool whole = rows_are_whole(a.out);
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        float total = r.total[h], by = 1;
        total += __shfl_xor_sync((unsigned)ALL_LANES, total, 1);
        total += __shfl_xor_sync((unsigned)ALL_LANES, total, 2);
        if (a.sinks) {
            float sink = a.sinks[head] * LOG2_E, greatest = r.greatest[h] * factor,
                  most = fmaxf(greatest, sink);
            by = exp2f(greatest - most);
            total = total * by + exp2f(sink - most);
        }
        by /= total;
        if (own + h * 8 >= tile.count)
            continue;
        uint32_t row = tile_row(a, tile, own + h * 8).row, column = head * N + threadIdx.x % 4 * 2;
        float *to = a.out.data + row * a.out.stride + column;
        unsigned *formed = (unsigned *)a.formed.to + (row * (uint64_t)(a.heads * N) + column) / 2;
#pragma unroll
        for (uint32_t n = 0; n < N / 8; n++) {
            float low = sums[n][h * 2] * by, high = sums[n][h * 2 + 1] * by;
            if (whole)
                *(float2 *)(to + n * 8) = {low, high};
            else
                to[n * 8] = low, to[n * 8 + 1] = high;
            if (a.formed.form == GPU_FORM_F16)
                formed[n * 4] = halves_of(low, high);
            else if (a.formed.form == GPU_FORM_BF16)
                formed[n * 4] = narrow_bf16(low) | (unsigned)narrow_bf16(high) << 16;
        }
    }
}

/* Eight numbers of a block of Q8_0, which begins at a multiple of 2. */
struct q8_chunk {
    unsigned short scale, two[4];
};

static __device__ __forceinline__ q8_chunk q8_read(const uint8_t *head, uint32_t chunk)
{
    const uint32_t each = KV_Q8_ELEMENTS / 8;
    const unsigned short *block = (const unsigned short *)(head + chunk / each * KV_Q8_BYTES);
    q8_chunk c;
    c.scale = block[0];
#pragma unroll
    for (uint32_t k = 0; k < 4; k++)
        c.two[k] = block[1 + chunk % each * 4 + k];
    return c;
}

static __device__ __forceinline__ uint4 q8_halves(const q8_chunk &c)
{
    float scale = __half2float(__ushort_as_half(c.scale));
    unsigned words[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        words[k] =
            halves_of(scale * (float)(int8_t)c.two[k], scale * (float)(int8_t)(c.two[k] >> 8));
    return {words[0], words[1], words[2], words[3]};
}

/* Pages of TOKENS tokens from position `first` on, a multiple of that; where nobody sees one, any.
 */
template <int TOKENS> struct flash_pages {
    static constexpr uint32_t run = TOKENS < FLASH_PAGE ? TOKENS : FLASH_PAGE, count = TOKENS / run;
    uint32_t at[count];
};

template <int TOKENS>
static __device__ __forceinline__ flash_pages<TOKENS>
pages_read(const gpu_attention &a, const flash_turns &t, uint32_t first)
{
    flash_pages<TOKENS> p;
#pragma unroll
    for (uint32_t i = 0; i < p.count; i++) {
        uint32_t page = first / FLASH_PAGE + i, last = t.last / FLASH_PAGE;
        p.at[i] = a.pages[t.pages + (page < last ? page : last)];
    }
    return p;
}

/* Where the block's head lies of the token at this position, in this page. */
static __device__ __forceinline__ const uint8_t *token_at(const gpu_attention &a,
                                                          const flash_turns &t, uint32_t part,
                                                          uint32_t page, uint32_t position)
{
    return a.pool + page * a.page_bytes +
           ((a.block * a.parts + part) * FLASH_PAGE + position % FLASH_PAGE) * a.token_bytes +
           t.head;
}

/* Eight numbers of a key or value on their way to shared memory, `chunk` of a head. */
template <int FORMAT>
static __device__ __forceinline__ void chunk_fetch(shared_at to, const uint8_t *head,
                                                   uint32_t chunk)
{
    if (FORMAT == KV_F16)
        async_copy_16(to, head + chunk * 16);
    else
        shared_quad_put(to, q8_halves(q8_read(head, chunk)));
}

/* Where a thread's chunk lies of the token i after its first, `own`: rows whose chunks lie alike
 * are a pitch apart. */
template <int EACH, class PLACE>
static __device__ __forceinline__ shared_at chunk_at(shared_at to, uint32_t own, uint32_t chunk,
                                                     uint32_t i)
{
    return to + (!PLACE::swizzled || EACH % 8 == 0 ? PLACE::of(own, chunk) + i * PLACE::pitch
                                                   : PLACE::of(own + i, chunk));
}

/* Keys or values of TOKENS tokens from position `first` on, a multiple of that, by a block of
 * THREADS; those that nobody sees are zero. PLACE::of says where a chunk of a token lies. Of Q8_0
 * AHEAD chunks are read before they are written. */
template <int FORMAT, int DIM, int TOKENS, int THREADS, int AHEAD, class PLACE>
static __device__ __forceinline__ void
tokens_fetch(shared_at to, const gpu_attention &a, const flash_turns &t,
             const flash_pages<TOKENS> &pages, uint32_t part, uint32_t first)
{
    const uint32_t chunks = DIM / 8, each = THREADS / (DIM % 64 ? (DIM / 64 + 1) * 8 : chunks),
                   run = pages.run, n = run / each, ahead = n < AHEAD ? n : AHEAD;
    static_assert(run % each == 0 && n % ahead == 0, "threads have as many tokens each");
    uint32_t chunk = threadIdx.x % chunks, own = threadIdx.x / chunks;
    bool all = first >= t.first && first + TOKENS - 1 <= t.last;
    if (chunks * each < THREADS && own >= each)
        return;
#pragma unroll
    for (uint32_t page = 0; page < pages.count; page++) {
        uint32_t position = first + page * run + own;
        const uint8_t *from = token_at(a, t, part, pages.at[page], position);
        if (all && FORMAT == KV_F16) {
#pragma unroll
            for (uint32_t i = 0; i < run; i += each)
                chunk_fetch<FORMAT>(chunk_at<each, PLACE>(to, own, chunk, page * run + i),
                                    from + i * a.token_bytes, chunk);
        } else if (all) {
            q8_chunk read[ahead];
#pragma unroll
            for (uint32_t i = 0; i < n; i++) {
                read[i % ahead] = q8_read(from + i * each * a.token_bytes, chunk);
#pragma unroll
                for (uint32_t k = 0; k < ahead; k++)
                    if (i % ahead == ahead - 1)
                        shared_quad_put(
                            chunk_at<each, PLACE>(to, own, chunk,
                                                  page * run + (i + 1 - ahead + k) * each),
                            q8_halves(read[k]));
            }
        } else {
#pragma unroll 1
            for (uint32_t i = 0; i < run; i += each)
                if (position + i >= t.first && position + i <= t.last)
                    chunk_fetch<FORMAT>(chunk_at<each, PLACE>(to, own, chunk, page * run + i),
                                        from + i * a.token_bytes, chunk);
                else
                    shared_quad_put(chunk_at<each, PLACE>(to, own, chunk, page * run + i), uint4{});
        }
    }
}

/* Eight numbers of a row's query as f16; `whole`: they lie at a multiple of 16. */
static __device__ __forceinline__ uint4 query_halves(const float *q, bool whole)
{
    float4 low, high;
    if (whole) {
        low = *(const float4 *)q;
        high = *(const float4 *)(q + 4);
    } else {
        low = {q[0], q[1], q[2], q[3]};
        high = {q[4], q[5], q[6], q[7]};
    }
    return {halves_of(low.x, low.y), halves_of(low.z, low.w), halves_of(high.x, high.y),
            halves_of(high.z, high.w)};
}

#endif
