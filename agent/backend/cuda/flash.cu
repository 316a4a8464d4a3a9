/* Attention of many tokens of one sequence: a block takes a tile of them, or a part of one, and one
 * head, and goes through the pages that they see. Scores and their products with values are tensor
 * cores' work on f16, with float32 sums. A turn's values come while its scores are computed, the
 * next one's keys while these are weighed. */
#include "agent/backend/cuda/flash.cuh"

/* How a block does it: with heads of DIM and KEYS tokens at a time, by warps of `each` times 16
 * rows. */
template <int DIM, int KEYS> struct flash_plan {
    static constexpr uint32_t dim = DIM, keys = KEYS, warps = 4, each = DIM > 128 ? 1 : 2,
                              rows = warps * each * 16, threads = warps * WARP;
    /* Bytes of a row: where no eight chunks of 16 bytes make it, 16 more, so that rows lie in other
     * banks; else chunks are swizzled. */
    static constexpr bool swizzled = DIM % 64 == 0;
    static constexpr uint32_t row = DIM * 2 + (swizzled ? 0 : 16), pitch = row;
    static constexpr uint32_t bytes = (rows + 2 * keys) * row;

    /* Where a chunk, 8 numbers of a row, lies. */
    static __device__ __forceinline__ uint32_t of(uint32_t i, uint32_t chunk)
    {
        return i * row + (swizzled ? (chunk ^ i % 8) : chunk) * 16;
    }
};

/* Keys or values of a turn's tokens on their way. */
template <int FORMAT, class PLAN>
static __device__ __forceinline__ void
turn_fetch(shared_at to, const gpu_attention &a, const flash_turns &t,
           const flash_pages<PLAN::keys> &pages, uint32_t part, uint32_t turn)
{
    tokens_fetch<FORMAT, PLAN::dim, PLAN::keys, PLAN::threads, 2, PLAN>(to, a, t, pages, part,
                                                                        turn * PLAN::keys);
}

/* The block's queries as f16; rows past the tile's end are its last one. */
template <class PLAN>
static __device__ __forceinline__ void queries_put(shared_at to, const gpu_attention &a,
                                                   const gpu_attention_tile &tile)
{
    const uint32_t chunks = PLAN::dim / 8;
    bool whole = rows_are_whole(a.q);
#pragma unroll 4
    for (uint32_t n = threadIdx.x; n < PLAN::rows * chunks; n += PLAN::threads) {
        uint32_t i = n / chunks, chunk = n % chunks,
                 row = a.rows[tile.first + (i < tile.count ? i : tile.count - 1)].row;
        const float *q = a.q.data + row * a.q.stride + blockIdx.x * PLAN::dim + chunk * 8;
        shared_quad_put(to + PLAN::of(i, chunk), query_halves(q, whole));
    }
}

/* scores[each][keys / 8] of a warp's rows with a turn's keys. */
template <class PLAN>
static __device__ __forceinline__ void keys_multiply(shared_at queries, shared_at keys,
                                                     float (*scores)[PLAN::keys / 8][4])
{
    uint32_t lane = threadIdx.x % WARP;
    queries += threadIdx.x / WARP * PLAN::each * 16 * PLAN::row;
#pragma unroll
    for (uint32_t m = 0; m < PLAN::each; m++)
#pragma unroll
        for (uint32_t n = 0; n < PLAN::keys / 8; n++)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++)
                scores[m][n][k] = 0;
#pragma unroll
    for (uint32_t k = 0; k < PLAN::dim / 16; k++) {
        unsigned q[PLAN::each][4];
#pragma unroll
        for (uint32_t m = 0; m < PLAN::each; m++)
            matrices_read<false>(
                queries + PLAN::of(lane % 16, k * 2 + lane / 16) + m * 16 * PLAN::row, q[m]);
#pragma unroll
        for (uint32_t n = 0; n < PLAN::keys / 8; n += 2) {
            unsigned b[4];
            matrices_read<false>(keys + PLAN::of(lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2) +
                                     n * 8 * PLAN::row,
                                 b);
#pragma unroll
            for (uint32_t m = 0; m < PLAN::each; m++) {
                tensor_multiply(scores[m][n], q[m], b[0], b[1]);
                tensor_multiply(scores[m][n + 1], q[m], b[2], b[3]);
            }
        }
    }
}

/* sums[each][PLAN::dim / 8] += weights, which lie where scores did, · values */
template <class PLAN>
static __device__ __forceinline__ void values_multiply(shared_at values,
                                                       const float (*scores)[PLAN::keys / 8][4],
                                                       float (*sums)[PLAN::dim / 8][4])
{
    uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t k = 0; k < PLAN::keys / 16; k++) {
        unsigned weights[PLAN::each][1][4];
#pragma unroll
        for (uint32_t m = 0; m < PLAN::each; m++)
            weights_pack<16>(scores[m] + k * 2, weights[m]);
#pragma unroll
        for (uint32_t n = 0; n < PLAN::dim / 8; n += 2) {
            unsigned b[4];
            matrices_read<true>(values + PLAN::of(lane % 16, n + lane / 16) + k * 16 * PLAN::row,
                                b);
#pragma unroll
            for (uint32_t m = 0; m < PLAN::each; m++) {
                tensor_multiply(sums[m][n], weights[m][0], b[0], b[1]);
                tensor_multiply(sums[m][n + 1], weights[m][0], b[2], b[3]);
            }
        }
    }
}

/* Heads along x, tiles along y: those that see most come first. */
template <int FORMAT, int DIM, int KEYS>
__global__ void __launch_bounds__(flash_plan<DIM, KEYS>::threads,
                                  256 / flash_plan<DIM, KEYS>::threads)
    flash_kernel(gpu_attention a)
{
#if defined(CUDA_ON_CPU) || __CUDA_ARCH__ >= 750
    typedef flash_plan<DIM, KEYS> plan;
    DYNAMIC_SHARED(room);
    shared_at queries = shared_at_of(room), keys = queries + plan::rows * plan::row,
              values = keys + plan::keys * plan::row;
    const uint32_t parts = GPU_TILE_ROWS / plan::rows, at = gridDim.y - 1 - blockIdx.y;
    gpu_attention_tile tile = a.tiles[at / parts];
    if (at % parts * plan::rows >= tile.count)
        return;
    tile.first += at % parts * plan::rows;
    tile.count -= at % parts * plan::rows;
    tile.count = tile.count < plan::rows ? tile.count : plan::rows;
    flash_rows r[plan::each];
    float scores[plan::each][plan::keys / 8][4], sums[plan::each][DIM / 8][4];
    uint32_t own = threadIdx.x / WARP * plan::each * 16 + threadIdx.x % WARP / 4;
    bool works = threadIdx.x / WARP * plan::each * 16 < tile.count;
#pragma unroll
    for (uint32_t m = 0; m < plan::each; m++) {
        r[m] = rows_begin();
#pragma unroll
        for (uint32_t n = 0; n < DIM / 8; n++)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++)
                sums[m][n][k] = 0;
    }
    const flash_turns t = turns_of(a, tile);
    uint32_t last_turn = t.last / plan::keys;
    flash_pages<plan::keys> next = pages_read<plan::keys>(a, t, t.first / plan::keys * plan::keys);
    turn_fetch<FORMAT, plan>(keys, a, t, next, 0, t.first / plan::keys);
    async_group_end();
    queries_put<plan>(queries, a, tile);
    for (uint32_t turn = t.first / plan::keys; turn <= last_turn; turn++) {
        async_groups_wait<0>();
        __syncthreads();
        turn_fetch<FORMAT, plan>(values, a, t, next, 1, turn);
        async_group_end();
        next = pages_read<plan::keys>(a, t, (turn + 1) * plan::keys);
        if (works)
            keys_multiply<plan>(queries, keys, scores);
        async_groups_wait<0>();
        __syncthreads();
        if (turn < last_turn)
            turn_fetch<FORMAT, plan>(keys, a, t, next, 0, turn + 1);
        async_group_end();
        if (!works)
            continue;
#pragma unroll
        for (uint32_t m = 0; m < plan::each; m++) {
            float keep[2];
            turn_weigh<plan::keys>(a, t, own + m * 16, turn * plan::keys, r[m], scores[m], keep);
            sums_keep<DIM>(keep, sums[m]);
        }
        values_multiply<plan>(values, scores, sums);
    }
#pragma unroll
    for (uint32_t m = 0; m < plan::each; m++)
        rows_write<DIM>(a, tile, own + m * 16, r[m], sums[m]);
#endif
}

bool gpu_flash_knows(int kv_format, uint32_t head_dim, uint32_t value_dim, uint32_t parts)
{
    return (kv_format == KV_F16 || kv_format == KV_Q8_0) && parts == 2 && head_dim == value_dim &&
           (head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256);
}

template <int FORMAT, int DIM, int KEYS>
static void flash_launch(struct CUstream_st *s, const gpu_attention &a)
{
    typedef flash_plan<DIM, KEYS> plan;
    dim3 grid(a.heads, a.n_tiles * (GPU_TILE_ROWS / plan::rows));
    cudaFuncSetAttribute((const void *)flash_kernel<FORMAT, DIM, KEYS>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, plan::bytes);
    CUDA_LAUNCH_SHARED((flash_kernel<FORMAT, DIM, KEYS>), grid, plan::threads, plan::bytes, s)(a);
}

/* With as many tokens at a time that a multiprocessor has room for two blocks, where it can. */
template <int FORMAT> static void flash_launch_format(struct CUstream_st *s, const gpu_attention &a)
{
    static_assert(2 * flash_plan<128, 64>::bytes <= GPU_FLASH_ROOMY, "two blocks fit");
    bool roomy = a.wide_turns;
    if (a.head_dim == 64)
        flash_launch<FORMAT, 64, 64>(s, a);
    else if (a.head_dim == 96 && roomy)
        flash_launch<FORMAT, 96, 64>(s, a);
    else if (a.head_dim == 96)
        flash_launch<FORMAT, 96, 32>(s, a);
    else if (a.head_dim == 128 && roomy)
        flash_launch<FORMAT, 128, 64>(s, a);
    else if (a.head_dim == 128)
        flash_launch<FORMAT, 128, 32>(s, a);
    else if (roomy)
        flash_launch<FORMAT, 256, 32>(s, a);
    else
        flash_launch<FORMAT, 256, 16>(s, a);
}

void gpu_flash(struct CUstream_st *s, const struct gpu_attention *a)
{
    if (a->n_tiles == 0)
        return;
    if (a->kv_format == KV_F16)
        flash_launch_format<KV_F16>(s, *a);
    else
        flash_launch_format<KV_Q8_0>(s, *a);
}
