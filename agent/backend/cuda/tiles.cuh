/* Tiles of products in float32: a block has TILE rows and columns of a result, a thread TILE_SIDE
 * of each, and both sides go through shared memory TILE_INNER at a time. */
#ifndef HP_AGENT_BACKEND_CUDA_TILES_CUH
#define HP_AGENT_BACKEND_CUDA_TILES_CUH

#include "agent/backend/cuda/cuda.cuh"

enum {
    TILE = 64,
    TILE_INNER = 16,
    TILE_THREADS = 256,
    TILE_SIDE = 4,
    TILE_STEP = TILE / TILE_SIDE, /* between the rows of a thread */
};

static __device__ __forceinline__ uint32_t tile_row(uint32_t i)
{
    return threadIdx.x / TILE_STEP + i * TILE_STEP;
}

static __device__ __forceinline__ uint32_t tile_column(uint32_t i)
{
    return threadIdx.x % TILE_STEP + i * TILE_STEP;
}

/* What lies in shared memory now: between two barriers. */
static __device__ __forceinline__ void
tile_multiply(const float (*xs)[TILE + 1], const float (*ws)[TILE + 1], float (*sums)[TILE_SIDE])
{
#pragma unroll
    for (uint32_t k = 0; k < TILE_INNER; k++)
#pragma unroll
        for (uint32_t a = 0; a < TILE_SIDE; a++)
#pragma unroll
            for (uint32_t b = 0; b < TILE_SIDE; b++)
                sums[a][b] += xs[k][tile_row(a)] * ws[k][tile_column(b)];
}

#endif
