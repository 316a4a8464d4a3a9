/* Products of many rows with matrices that they choose (experts of a prompt): rows are put in order
 * by matrix, in lots of GROUP_ROWS, so that each matrix is read once for a lot and not for each
 * row. Weights and rows are f16 or bf16, sums float32: tensor cores' work. */
#include "agent/backend/cuda/kernels.h"
#include "agent/backend/cuda/tensor.cuh"

static constexpr uint32_t GROUP_WARPS = 4, GROUP_THREADS = GROUP_WARPS * WARP, GROUP_ROWS = 64,
                          GROUP_COLUMNS = 64, GROUP_DEPTH = 64, CHUNKS = GROUP_DEPTH / 8,
                          TILE_ROW = GROUP_DEPTH * 2 + 16; /* bytes: rows lie in other banks */

/* ---- who goes with whom ---- */

/* `matrices` where it is none of these. */
static __device__ __forceinline__ uint32_t chosen_of(const gpu_groups &g, uint32_t pair)
{
    uint32_t own = (uint32_t)g.chosen[pair / g.used * g.stride + pair % g.used] - g.chosen_from;
    return own < g.matrices ? own : g.matrices;
}

/* A warp a matrix: its pairs in their order behind those of the matrices before it, and its lots.
 * Lots begin where there is room for all before them, however these fall; those between are
 * empty. */
__global__ void groups_list_kernel(gpu_groups g)
{
    uint32_t own = blockIdx.x, lane = threadIdx.x, pairs = g.rows * g.used, before = 0, count = 0;
    for (uint32_t p0 = 0; p0 < pairs; p0 += WARP) {
        uint32_t matrix = p0 + lane < pairs ? chosen_of(g, p0 + lane) : g.matrices;
        before += (uint32_t)__popc(__ballot_sync((unsigned)ALL_LANES, matrix < own));
        count += (uint32_t)__popc(__ballot_sync((unsigned)ALL_LANES, matrix == own));
    }
    for (uint32_t p0 = 0, at = before; p0 < pairs; p0 += WARP) {
        uint32_t matrix = p0 + lane < pairs ? chosen_of(g, p0 + lane) : g.matrices;
        unsigned mine = __ballot_sync((unsigned)ALL_LANES, matrix == own);
        if (matrix == own)
            g.order[at + (uint32_t)__popc(mine & ((1u << lane) - 1))] = p0 + lane;
        at += (uint32_t)__popc(mine);
    }
    uint32_t first = before / GROUP_ROWS + own,
             end = own + 1 < g.matrices ? (before + count) / GROUP_ROWS + own + 1 : g.n_lots;
    for (uint32_t i = lane; first + i < end; i += WARP) {
        uint32_t done = i * GROUP_ROWS, left = count > done ? count - done : 0;
        g.lots[first + i] = {own, before + done, left < GROUP_ROWS ? left : GROUP_ROWS};
    }
    if (lane == 0)
        g.counts[own] = count;
}

/* ---- products ---- */

/* A tile's next columns on their way; what there is not is zero. `rows`: how many there are; row r
 * begins at from(r). */
template <class FROM>
static __device__ __forceinline__ void tile_fetch(shared_at to, uint32_t rows, uint32_t k0,
                                                  uint32_t width, FROM from)
{
    for (uint32_t i = threadIdx.x; i < GROUP_ROWS * CHUNKS; i += GROUP_THREADS) {
        uint32_t r = i / CHUNKS, k = k0 + i % CHUNKS * 8;
        shared_at there = to + r * TILE_ROW + i % CHUNKS * 16;
        if (r < rows && k < width)
            async_copy_16(there, from(r) + k);
        else
            shared_quad_put(there, uint4{});
    }
}

/* A warp's 32 rows by 32 columns. */
template <bool BF16>
static __device__ __forceinline__ void tiles_multiply(shared_at in, shared_at weights,
                                                      float (*sums)[4][4])
{
    uint32_t lane = threadIdx.x % WARP;
    in += lane % 16 * TILE_ROW + lane / 16 * 16;
    weights += (lane / 16 * 8 + lane % 8) * TILE_ROW + lane / 8 % 2 * 16;
#pragma unroll
    for (uint32_t k = 0; k < GROUP_DEPTH / 16; k++) {
        unsigned a[2][4];
#pragma unroll
        for (uint32_t m = 0; m < 2; m++)
            matrices_read<false>(in + m * 16 * TILE_ROW + k * 32, a[m]);
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            unsigned b[4];
            matrices_read<false>(weights + n * 16 * TILE_ROW + k * 32, b);
#pragma unroll
            for (uint32_t m = 0; m < 2; m++) {
                tensor_multiply<BF16>(sums[m][n * 2], a[m], b[0], b[1]);
                tensor_multiply<BF16>(sums[m][n * 2 + 1], a[m], b[2], b[3]);
            }
        }
    }
}

static __device__ __forceinline__ void lot_store(const gpu_groups &g, const gpu_lot &lot,
                                                 const uint32_t *pairs, float (*sums)[4][4])
{
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t m = i / 16, n = i / 4 % 4, k = i % 4,
                 r = warp / 2 * 32 + m * 16 + lane / 4 + k / 2 * 8,
                 c = blockIdx.x * GROUP_COLUMNS + warp % 2 * 32 + n * 8 + lane % 4 * 2 + k % 2;
        if (r >= lot.count || c >= g.n_outputs)
            continue;
        uint32_t pair = pairs[r], output = g.first_output + c;
        float sum = sums[m][n][k];
        if (g.bias)
            sum += g.bias[(uint64_t)(g.chosen_from + lot.matrix) * g.outputs + output];
        g.out.data[pair / g.used * g.out.stride + (uint64_t)(pair % g.used) * g.outputs + output] =
            sum;
    }
}

/* Outputs along x, lots along y. */
template <bool BF16> __global__ void __launch_bounds__(GROUP_THREADS, 2) groups_kernel(gpu_groups g)
{
    __shared__ uint4 tiles[2][2][GROUP_ROWS * TILE_ROW / 16];
    __shared__ uint32_t pairs[GROUP_ROWS];
    gpu_lot lot = g.lots[blockIdx.y];
    uint32_t c0 = blockIdx.x * GROUP_COLUMNS, warp = threadIdx.x / WARP,
             columns = g.n_outputs - c0 < GROUP_COLUMNS ? g.n_outputs - c0 : GROUP_COLUMNS,
             n = (g.inputs + GROUP_DEPTH - 1) / GROUP_DEPTH;
    if (lot.count == 0 || lot.matrix < g.first_matrix ||
        lot.matrix >= g.first_matrix + g.n_matrices)
        return;
    float sums[2][4][4] = {};
    const uint16_t *weight =
        g.weight + ((uint64_t)(lot.matrix - g.first_matrix) * g.n_outputs + c0) * g.inputs;
    if (threadIdx.x < lot.count)
        pairs[threadIdx.x] = g.order[lot.first + threadIdx.x];
    __syncthreads();
    auto row_at = [&](uint32_t r) {
        return g.in + (uint64_t)(g.apart ? pairs[r] : pairs[r] / g.used) * g.inputs;
    };
    auto column_at = [&](uint32_t c) { return weight + (uint64_t)c * g.inputs; };
    tile_fetch(shared_at_of(tiles[0][0]), lot.count, 0, g.inputs, row_at);
    tile_fetch(shared_at_of(tiles[0][1]), columns, 0, g.inputs, column_at);
    async_group_end();
    for (uint32_t i = 0; i < n; i++) {
        if (i + 1 < n) {
            tile_fetch(shared_at_of(tiles[(i + 1) % 2][0]), lot.count, (i + 1) * GROUP_DEPTH,
                       g.inputs, row_at);
            tile_fetch(shared_at_of(tiles[(i + 1) % 2][1]), columns, (i + 1) * GROUP_DEPTH,
                       g.inputs, column_at);
        }
        async_group_end();
        async_groups_wait<1>();
        __syncthreads();
        tiles_multiply<BF16>(shared_at_of(tiles[i % 2][0]) + warp / 2 * 32 * TILE_ROW,
                             shared_at_of(tiles[i % 2][1]) + warp % 2 * 32 * TILE_ROW, sums);
        __syncthreads();
    }
    lot_store(g, lot, pairs, sums);
}

/* ---- for the host ---- */

uint32_t gpu_groups_lots(uint32_t pairs, uint32_t matrices)
{
    return pairs / GROUP_ROWS + matrices + 1;
}

void gpu_groups_list(struct CUstream_st *s, const struct gpu_groups *g)
{
    CUDA_LAUNCH(groups_list_kernel, g->matrices, WARP, s)(*g);
}

void gpu_groups_run(struct CUstream_st *s, const struct gpu_groups *g)
{
    dim3 grid(blocks_for(g->n_outputs, GROUP_COLUMNS), g->n_lots);
    if (g->bf16)
        CUDA_LAUNCH(groups_kernel<true>, grid, GROUP_THREADS, s)(*g);
    else
        CUDA_LAUNCH(groups_kernel<false>, grid, GROUP_THREADS, s)(*g);
}
