/* What all kernels stand on: launches as CUDA and the stand-in (tests/cuda_on_cpu) know them, and
 * sums over a warp and a block. */
#ifndef HP_AGENT_BACKEND_CUDA_CUDA_CUH
#define HP_AGENT_BACKEND_CUDA_CUDA_CUH

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "agent/backend/cuda/gpu.h"

/* CUDA_LAUNCH_SHARED: with so many bytes of shared memory, DYNAMIC_SHARED in the kernel; more than
 * 48 KiB once cudaFuncSetAttribute has allowed it. CUDA_LAUNCH_EARLY: of a kernel that calls
 * earlier_wait: its blocks may begin while the kernel before it on the stream still runs (CUDA's
 * programmatic dependent launch, compute capability 9.0 and later; elsewhere it is a launch like
 * any other). */
#ifdef CUDA_ON_CPU
#define CUDA_LAUNCH(kernel, grid, block, stream)                                                   \
    cuda_on_cpu_launcher_of(#kernel, kernel, grid, block, 0, stream)
#define CUDA_LAUNCH_EARLY(kernel, grid, block, stream)                                             \
    cuda_on_cpu_launcher_of(#kernel, kernel, grid, block, 0, stream, true)
#define CUDA_LAUNCH_SHARED(kernel, grid, block, bytes, stream)                                     \
    cuda_on_cpu_launcher_of(#kernel, kernel, grid, block, bytes, stream)
#define DYNAMIC_SHARED(name) uint8_t *name = (uint8_t *)cuda_on_cpu_dynamic_shared()
#else
#define CUDA_LAUNCH(kernel, grid, block, stream) kernel<<<grid, block, 0, stream>>>
#define CUDA_LAUNCH_SHARED(kernel, grid, block, bytes, stream)                                     \
    kernel<<<grid, block, bytes, stream>>>
#define DYNAMIC_SHARED(name) extern __shared__ uint4 name[]
#define CUDA_LAUNCH_EARLY(kernel, grid, block, stream)                                             \
    early_launcher_of(kernel, grid, block, stream)

template <typename... P> struct early_launcher {
    void (*kernel)(P...);
    dim3 grid, block;
    cudaStream_t stream;

    void operator()(const P &...args) const
    {
        cudaLaunchAttribute early = {};
        cudaLaunchConfig_t how = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        how.gridDim = grid;
        how.blockDim = block;
        how.stream = stream;
        how.attrs = &early;
        how.numAttrs = gpu_overlaps_launches() ? 1 : 0;
        cudaLaunchKernelEx(&how, kernel, args...);
    }
};

template <typename... P>
static inline early_launcher<P...> early_launcher_of(void (*kernel)(P...), dim3 grid, dim3 block,
                                                     cudaStream_t stream)
{
    return {kernel, grid, block, stream};
}
#endif

/* Of each block of a kernel that is launched early, before it reads what kernels before it write
 * and before it writes anything: returns when these are over, and those after it may begin. What
 * never changes, weights, may be read before, and what kernels wrote that a copy on the stream, the
 * start of a graph, or a kernel that is not launched early has waited for since. */
static __device__ __forceinline__ void earlier_wait()
{
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_earlier_wait();
#elif __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

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
    unsigned lane = threadIdx.x % WARP;
    x = warp_sum(x);
    if (lane == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(lane < blockDim.x / WARP ? parts[lane] : 0);
}

/* sum + a · b of four signed bytes each. */
static __device__ __forceinline__ int dot_of_4(int a, int b, int sum)
{
#if defined(CUDA_ON_CPU) || __CUDA_ARCH__ >= 610
    return __dp4a(a, b, sum);
#else
#ifdef __CUDA_ARCH__
    asm volatile(""
                 : "+r"(a)); /* or its four bytes are kept in registers for all rows: they spill */
#endif
    for (int i = 0; i < 4; i++)
        sum += (int)(int8_t)(a >> i * 8) * (int)(int8_t)(b >> i * 8);
    return sum;
#endif
}

static __device__ __forceinline__ float half_at(const uint8_t *p)
{
    return __half2float(__ushort_as_half((unsigned short)(p[0] | p[1] << 8)));
}

/* Blocks of a grid along its second and third side; along the first there are 2^31 - 1. In tests so
 * few that small cases take several grids. */
#ifdef CUDA_ON_CPU
static constexpr unsigned GRID_MOST = 2;
#else
static constexpr unsigned GRID_MOST = 65535;
#endif
static inline unsigned grid_side(uint64_t blocks)
{
    return blocks < GRID_MOST ? (unsigned)blocks : GRID_MOST;
}
static inline unsigned blocks_for(uint64_t n, unsigned each)
{
    return (unsigned)((n + each - 1) / each);
}

#endif
