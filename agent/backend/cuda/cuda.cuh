/* What all kernels stand on: launches as CUDA and the stand-in (tests/cuda_on_cpu) know them, and
 * sums over a warp and a block. */
#ifndef HP_AGENT_BACKEND_CUDA_CUDA_CUH
#define HP_AGENT_BACKEND_CUDA_CUDA_CUH

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#ifdef CUDA_ON_CPU
#define CUDA_LAUNCH(kernel, grid, block, stream)                                                   \
    cuda_on_cpu_launcher_of(#kernel, kernel, grid, block, 0, stream)
#else
#define CUDA_LAUNCH(kernel, grid, block, stream) kernel<<<grid, block, 0, stream>>>
#endif

enum { WARP = 32, ALL_LANES = -1 };

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int by = WARP / 2; by; by /= 2)
        x += __shfl_xor_sync((unsigned)ALL_LANES, x, by);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (int by = WARP / 2; by; by /= 2)
        x = fmaxf(x, __shfl_xor_sync((unsigned)ALL_LANES, x, by));
    return x;
}

/* Of all threads, whose number is a multiple of a warp's; `parts` has room for one a warp, and
 * another call comes after a barrier. */
static __device__ __forceinline__ float block_sum(float x, float *parts)
{
    float sum = 0;
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x / WARP; i++)
        sum += parts[i];
    return sum;
}

/* sum + a · b of four signed bytes each. */
static __device__ __forceinline__ int dot_of_4(int a, int b, int sum)
{
#if defined(CUDA_ON_CPU) || __CUDA_ARCH__ >= 610
    return __dp4a(a, b, sum);
#else
    for (int i = 0; i < 4; i++)
        sum += (int)(int8_t)(a >> i * 8) * (int)(int8_t)(b >> i * 8);
    return sum;
#endif
}

static __device__ __forceinline__ float half_at(const uint8_t *p)
{
    return __half2float(__ushort_as_half((unsigned short)(p[0] | p[1] << 8)));
}

static inline unsigned blocks_for(uint64_t n, unsigned each)
{
    return (unsigned)((n + each - 1) / each);
}

#endif
