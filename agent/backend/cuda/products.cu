/* Matrix products. Few rows: a warp an output, whose weights go through once for all rows. Many: a
 * block a tile of outputs and rows, weights and inputs as float32 in shared memory. Weights are
 * read in place, as the file has them. */
#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/formats.cuh"
#include "agent/backend/cuda/kernels.h"
#include "agent/backend/cuda/products.cuh"

static constexpr uint32_t FEW_ROWS = 4, FEW_WARPS = 4, TILE = 64, TILE_K = 32, TILE_THREADS = 256;

template <int DTYPE> __global__ void few_kernel(gpu_product p)
{
    uint32_t c = blockIdx.x * FEW_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP,
             r0 = blockIdx.y * FEW_ROWS, n = p.rows - r0 < FEW_ROWS ? p.rows - r0 : FEW_ROWS;
    float sums[FEW_ROWS] = {0, 0, 0, 0}, w[FORMAT_RUN];
    for (uint32_t k = lane * FORMAT_RUN; c < p.outputs && k < p.inputs; k += WARP * FORMAT_RUN) {
        uint32_t left = p.inputs - k < FORMAT_RUN ? p.inputs - k : FORMAT_RUN;
        format_read<DTYPE>(p.weight + c * p.row_bytes, k, left, w);
#pragma unroll
        for (uint32_t r = 0; r < FEW_ROWS; r++) {
            const float *x = p.in.data + (r0 + (r < n ? r : 0)) * p.in.stride + k;
            for (uint32_t i = 0; i < FORMAT_RUN; i++)
                sums[r] += i < left ? x[i] * w[i] : 0;
        }
    }
#pragma unroll
    for (uint32_t r = 0; r < FEW_ROWS; r++) {
        float sum = warp_sum(sums[r]);
        if (lane == 0 && c < p.outputs && r < n)
            product_store(p, r0 + r, c, sum);
    }
}

/* A thread's 8 elements of a tile whose rows are TILE_K long: of row t / 4, from t % 4 * 8 on. */
static __device__ __forceinline__ void tile_put(float (*tile)[TILE + 1], const float *values)
{
    uint32_t row = threadIdx.x / 4, k = threadIdx.x % 4 * FORMAT_RUN;
    for (uint32_t i = 0; i < FORMAT_RUN; i++)
        tile[k + i][row] = values[i];
}

template <int DTYPE> __global__ void tile_kernel(gpu_product p)
{
    __shared__ float ws[TILE_K][TILE + 1], xs[TILE_K][TILE + 1];
    uint32_t c0 = blockIdx.x * TILE, r0 = blockIdx.y * TILE, own = threadIdx.x / 4,
             tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float sums[4][4] = {{0}};
    for (uint32_t k0 = 0; k0 < p.inputs; k0 += TILE_K) {
        float values[FORMAT_RUN] = {0, 0, 0, 0, 0, 0, 0, 0};
        uint32_t k = k0 + threadIdx.x % 4 * FORMAT_RUN, left = k < p.inputs ? p.inputs - k : 0;
        if (c0 + own < p.outputs && left)
            format_read<DTYPE>(p.weight + (c0 + own) * p.row_bytes, k, left, values);
        tile_put(ws, values);
        for (uint32_t i = 0; i < FORMAT_RUN; i++)
            values[i] =
                r0 + own < p.rows && i < left ? p.in.data[(r0 + own) * p.in.stride + k + i] : 0;
        tile_put(xs, values);
        __syncthreads();
        for (uint32_t i = 0; i < TILE_K; i++)
            for (uint32_t a = 0; a < 4; a++)
                for (uint32_t b = 0; b < 4; b++)
                    sums[a][b] += xs[i][ty + a * 16] * ws[i][tx + b * 16];
        __syncthreads();
    }
    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t b = 0; b < 4; b++)
            if (r0 + ty + a * 16 < p.rows && c0 + tx + b * 16 < p.outputs)
                product_store(p, r0 + ty + a * 16, c0 + tx + b * 16, sums[a][b]);
}

/* A thread an output: neighbours read neighbouring weights. */
template <int DTYPE> __global__ void turned_kernel(gpu_product p)
{
    uint32_t c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    const uint64_t bytes = DTYPE == DTYPE_F32 ? 4 : 2;
    float sum = 0, w[FORMAT_RUN];
    if (c >= p.outputs)
        return;
    for (uint32_t k = 0; k < p.inputs; k++) {
        format_read<DTYPE>(p.weight + ((uint64_t)k * p.outputs + c) * bytes, 0, 1, w);
        sum += p.in.data[r * p.in.stride + k] * w[0];
    }
    product_store(p, r, c, sum);
}

bool gpu_product_knows(int dtype)
{
    bool known = false;
#define KNOWN(d) known = true
    FORMAT_SWITCH(dtype, KNOWN);
    return known;
}

void gpu_product_run(struct CUstream_st *s, const struct gpu_product *p)
{
    dim3 few(blocks_for(p->outputs, FEW_WARPS), blocks_for(p->rows, FEW_ROWS)),
        tiles(blocks_for(p->outputs, TILE), blocks_for(p->rows, TILE)),
        turned(blocks_for(p->outputs, 64), p->rows);
#define FEW(d) CUDA_LAUNCH(few_kernel<d>, few, FEW_WARPS *WARP, s)(*p)
#define TILED(d) CUDA_LAUNCH(tile_kernel<d>, tiles, TILE_THREADS, s)(*p)
    if (p->rows == 0 || p->outputs == 0)
        return;
    if (p->turned && p->dtype == DTYPE_F32)
        CUDA_LAUNCH(turned_kernel<DTYPE_F32>, turned, 64, s)(*p);
    else if (p->turned && p->dtype == DTYPE_F16)
        CUDA_LAUNCH(turned_kernel<DTYPE_F16>, turned, 64, s)(*p);
    else if (p->turned)
        CUDA_LAUNCH(turned_kernel<DTYPE_BF16>, turned, 64, s)(*p);
    else if (gpu_decode_fits(p))
        gpu_decode_run(s, p);
    else if (p->rows <= GPU_DECODE_ROWS)
        FORMAT_SWITCH(p->dtype, FEW)
    else
        FORMAT_SWITCH(p->dtype, TILED)
}
