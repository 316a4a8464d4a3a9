/* Attention in tiles (flash.cu) for Hopper, whose warpgroups multiply what lies in shared memory: a
 * block takes 128 tokens of a sequence and one head, two groups 64 each. The scores of a turn are
 * made while the values of the one before are weighed, and become weights meanwhile (Shah et al.,
 * FlashAttention-3, section 3.2). */
#include "agent/backend/cuda/flash.cuh"
#include "agent/backend/cuda/warpgroup.cuh"

static constexpr uint32_t GROUPS = 2, HOPPER_THREADS = GROUPS * GROUP_THREADS, HOPPER_ROWS = 128;

/* Tokens at a time. */
template <int DIM> static constexpr uint32_t KEYS = DIM > 128 ? 64 : 128;
template <int DIM> static constexpr uint32_t KEYS_BYTES = KEYS<DIM> *DIM * 2;
template <int DIM> static constexpr uint32_t QUERIES_BYTES = HOPPER_ROWS *DIM * 2;
/* Queries, keys and values of two turns, and what may lie before a multiple of 1024. */
template <int DIM>
static constexpr uint32_t HOPPER_BYTES = QUERIES_BYTES<DIM> + 4 * KEYS_BYTES<DIM> + 1024;

/* Where a chunk, 8 numbers of a row, lies of a matrix of ROWS rows. */
template <int ROWS> struct swizzled_rows {
    static constexpr bool swizzled = true;
    static constexpr uint32_t pitch = 128;
    static __device__ __forceinline__ uint32_t of(uint32_t row, uint32_t chunk)
    {
        return chunk / 8 * ROWS * 128 + row * 128 + (chunk ^ row) % 8 * 16;
    }
};

/* Keys or values of a turn's tokens on their way. */
template <int FORMAT, int DIM>
static __device__ __forceinline__ void
turn_fetch(shared_at to, const gpu_attention &a, const flash_turns &t,
           const flash_pages<KEYS<DIM>> &pages, uint32_t part, uint32_t turn)
{
    tokens_fetch<FORMAT, DIM, KEYS<DIM>, HOPPER_THREADS, 4, swizzled_rows<KEYS<DIM>>>(
        to, a, t, pages, part, turn * KEYS<DIM>);
}

/* The tile's queries as f16; rows past its end are its last one. */
template <int DIM>
static __device__ __forceinline__ void queries_put(shared_at to, const gpu_attention &a,
                                                   const gpu_attention_tile &tile)
{
    const uint32_t chunks = DIM / 8, rows = HOPPER_THREADS / chunks;
    uint32_t chunk = threadIdx.x % chunks, own = threadIdx.x / chunks;
    bool whole = rows_are_whole(a.q);
#pragma unroll 4
    for (uint32_t i = own; i < HOPPER_ROWS; i += rows) {
        uint32_t row = a.rows[tile.first + (i < tile.count ? i : tile.count - 1)].row;
        const float *q = a.q.data + row * a.q.stride + blockIdx.x * DIM + chunk * 8;
        shared_quad_put(to + swizzled_rows<HOPPER_ROWS>::of(i, chunk), query_halves(q, whole));
    }
}

/* Pages of the turns whose values and whose keys are fetched next, and of the one after them. */
template <int DIM> struct hopper_pages {
    flash_pages<KEYS<DIM>> values, keys, later;
};

/* Values of the next turn, keys of the one after it. */
template <int FORMAT, int DIM>
static __device__ __forceinline__ void turns_fetch(shared_at keys, shared_at values,
                                                   const gpu_attention &a, const flash_turns &t,
                                                   hopper_pages<DIM> &p, uint32_t turn)
{
    if (turn + 1 < t.last / KEYS<DIM>)
        turn_fetch<FORMAT, DIM>(keys + turn % 2 * KEYS_BYTES<DIM>, a, t, p.keys, 0, turn + 2);
    turn_fetch<FORMAT, DIM>(values + (turn + 1) % 2 * KEYS_BYTES<DIM>, a, t, p.values, 1, turn + 1);
    async_group_end();
    p = {p.keys, p.later, pages_read<KEYS<DIM>>(a, t, (turn + 4) * KEYS<DIM>)};
}

/* scores of a group's rows with a turn's keys. */
template <int DIM>
static __device__ __forceinline__ void keys_multiply(shared_at queries, shared_at keys,
                                                     float (*scores)[4])
{
    group_begin();
#pragma unroll
    for (uint32_t k = 0; k < DIM / 16; k++)
        group_multiply<KEYS<DIM>>(scores, queries + k / 4 * HOPPER_ROWS * 128 + k % 4 * 32,
                                  keys + k / 4 * KEYS<DIM> * 128 + k % 4 * 32, k > 0);
    group_end();
}

/* sums += weights · values */
template <int DIM>
static __device__ __forceinline__ void
values_multiply(shared_at values, const unsigned (*weights)[4], float (*sums)[4])
{
    const uint32_t beside = KEYS<DIM> * 128, columns = DIM > 128 ? 128 : DIM;
    group_begin();
#pragma unroll
    for (uint32_t k = 0; k < KEYS<DIM> / 16; k++)
#pragma unroll
        for (uint32_t n = 0; n < DIM / columns; n++)
            group_multiply_kept<columns>(sums + n * columns / 8, weights[k],
                                         values + n * 2 * beside + k * 16 * 128, beside);
    group_end();
}

/* What was fetched is there for all of the block. */
static __device__ __forceinline__ void fetched_wait()
{
    async_groups_wait<0>();
    group_shared_written();
    __syncthreads();
}

/* Heads along x, tiles along y: those that see most come first. */
template <int FORMAT, int DIM>
__global__ void __launch_bounds__(HOPPER_THREADS, 1) flash_hopper_kernel(gpu_attention a)
{
#if defined(GROUP_ASM) || defined(CUDA_ON_CPU)
    DYNAMIC_SHARED(room);
    shared_at queries = shared_at_of(room);
    queries += (1024 - (unsigned)(uintptr_t)queries % 1024) % 1024;
    const uint32_t bytes = KEYS_BYTES<DIM>;
    shared_at keys = queries + QUERIES_BYTES<DIM>, values = keys + 2 * bytes;
    gpu_attention_tile tile = a.tiles[gridDim.y - 1 - blockIdx.y];
    const flash_turns t = turns_of(a, tile);
    uint32_t turn = t.first / KEYS<DIM>, last = t.last / KEYS<DIM>,
             group = __shfl_sync((unsigned)ALL_LANES, threadIdx.x / GROUP_THREADS, 0),
             own = threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;
    bool works = group * 64 < tile.count;
    flash_rows r = rows_begin();
    float scores[KEYS<DIM> / 8][4], sums[DIM / 8][4], keep[2];
    unsigned weights[KEYS<DIM> / 16][4];
#pragma unroll
    for (uint32_t n = 0; n < DIM / 8; n++)
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            sums[n][k] = 0;
    flash_pages<KEYS<DIM>> now = pages_read<KEYS<DIM>>(a, t, turn * KEYS<DIM>);
    hopper_pages<DIM> p = {pages_read<KEYS<DIM>>(a, t, (turn + 1) * KEYS<DIM>),
                           pages_read<KEYS<DIM>>(a, t, (turn + 2) * KEYS<DIM>),
                           pages_read<KEYS<DIM>>(a, t, (turn + 3) * KEYS<DIM>)};
    turn_fetch<FORMAT, DIM>(keys + turn % 2 * bytes, a, t, now, 0, turn);
    async_group_end();
    queries_put<DIM>(queries, a, tile);
    fetched_wait();
    queries += group * 64 * 128;
    if (turn < last)
        turn_fetch<FORMAT, DIM>(keys + (turn + 1) % 2 * bytes, a, t, p.values, 0, turn + 1);
    turn_fetch<FORMAT, DIM>(values + turn % 2 * bytes, a, t, now, 1, turn);
    async_group_end();
    if (works) {
        keys_multiply<DIM>(queries, keys + turn % 2 * bytes, scores);
        group_wait<0>();
        turn_weigh<KEYS<DIM>>(a, t, own, turn * KEYS<DIM>, r, scores, keep);
        weights_pack<KEYS<DIM>>(scores, weights);
    }
    bool by_turns = tile.count > 64; /* both groups have work */
    if (by_turns && group == 1 && turn < last)
        group_turn_give(0);
    for (; turn < last; turn++) {
        fetched_wait();
        if (!works) {
            turns_fetch<FORMAT, DIM>(keys, values, a, t, p, turn);
            continue;
        }
        if (by_turns)
            group_turn_wait(group);
        keys_multiply<DIM>(queries, keys + (turn + 1) % 2 * bytes, scores);
        values_multiply<DIM>(values + turn % 2 * bytes, weights, sums);
        if (by_turns && (group == 0 || turn + 1 < last))
            group_turn_give(1 - group);
        turns_fetch<FORMAT, DIM>(keys, values, a, t, p, turn);
        group_wait<1>();
        turn_weigh<KEYS<DIM>>(a, t, own, (turn + 1) * KEYS<DIM>, r, scores, keep);
        group_wait<0>();
        sums_keep<DIM>(keep, sums);
        weights_pack<KEYS<DIM>>(scores, weights);
    }
    fetched_wait();
    if (works) {
        values_multiply<DIM>(values + last % 2 * bytes, weights, sums);
        group_wait<0>();
        rows_write<DIM>(a, tile, own, r, sums);
    }
#endif
}

bool gpu_hopper_knows(uint32_t head_dim)
{
    return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

template <int FORMAT, int DIM>
static void hopper_launch(struct CUstream_st *s, const gpu_attention &a)
{
    dim3 grid(a.heads, a.n_tiles);
    cudaFuncSetAttribute((const void *)flash_hopper_kernel<FORMAT, DIM>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, HOPPER_BYTES<DIM>);
    CUDA_LAUNCH_SHARED((flash_hopper_kernel<FORMAT, DIM>), grid, HOPPER_THREADS, HOPPER_BYTES<DIM>,
                       s)
    (a);
}

template <int FORMAT> static void hopper_launch(struct CUstream_st *s, const gpu_attention &a)
{
    if (a.head_dim == 64)
        hopper_launch<FORMAT, 64>(s, a);
    else if (a.head_dim == 128)
        hopper_launch<FORMAT, 128>(s, a);
    else
        hopper_launch<FORMAT, 256>(s, a);
}

void gpu_flash_hopper(struct CUstream_st *s, const struct gpu_attention *a)
{
    if (a->n_tiles == 0)
        return;
    if (a->kv_format == KV_F16)
        hopper_launch<KV_F16>(s, *a);
    else
        hopper_launch<KV_Q8_0>(s, *a);
}
