/* Products of a warpgroup, four warps that multiply 64 rows together (wgmma, Hopper alone: sm_90a).
 * Matrices in shared memory are rows of 128 bytes, 64 f16, whose eight chunks of 16 bytes lie
 * swizzled: chunk c of row r at c ^ r % 8. Eight rows follow each other, 1024 bytes from a multiple
 * of 1024 on; wider matrices have their next 64 columns `beside` bytes on. Thread t of the group
 * has of 64 x N sums rows t / 32 * 16 + t % 32 / 4 and 8 below, eight columns after another as
 * tensor.cuh has them. */
#ifndef HP_AGENT_BACKEND_CUDA_WARPGROUP_CUH
#define HP_AGENT_BACKEND_CUDA_WARPGROUP_CUH

#include "agent/backend/cuda/tensor.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(CUDA_ON_CPU)
#define GROUP_ASM
#endif

enum { GROUP_THREADS = 4 * WARP };

/* What this thread wrote to shared memory is there for products once a barrier has been passed. */
static __device__ __forceinline__ void group_shared_written()
{
#ifdef GROUP_ASM
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Before the first of some products: registers that they read and write are as they should be. */
static __device__ __forceinline__ void group_begin()
{
#ifdef GROUP_ASM
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* Ends a set of products. */
static __device__ __forceinline__ void group_end()
{
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_group_end();
#elif defined(GROUP_ASM)
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Until all sets but the last `BUT` are done. */
template <int BUT> static __device__ __forceinline__ void group_wait()
{
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_group_wait(BUT);
#elif defined(GROUP_ASM)
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BUT) : "memory");
#endif
}

/* Two groups of a block put their products on the tensor cores by turns, so that one's are under
 * way while the other has work of other kinds: waits for its turn, gives it to the other. Numbers
 * do not depend on it. */
static __device__ __forceinline__ void group_turn_wait(uint32_t group)
{
    (void)group;
#ifdef GROUP_ASM
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(2 * GROUP_THREADS) : "memory");
#endif
}

static __device__ __forceinline__ void group_turn_give(uint32_t group)
{
    (void)group;
#ifdef GROUP_ASM
    asm volatile("bar.arrive %0, %1;" ::"r"(group + 1), "n"(2 * GROUP_THREADS) : "memory");
#endif
}

#ifdef GROUP_ASM
static __device__ __forceinline__ uint64_t group_matrix(shared_at at, uint32_t beside)
{
    const uint64_t eight_rows = 1024 >> 4, swizzled_128 = (uint64_t)1 << 62;
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(beside >> 4) << 16 | eight_rows << 32 |
           swizzled_128;
}

#define GROUP_SUMS_4(s, n) "+f"(s[n][0]), "+f"(s[n][1]), "+f"(s[n][2]), "+f"(s[n][3])
#define GROUP_SUMS_32(s, n)                                                                        \
    GROUP_SUMS_4(s, n), GROUP_SUMS_4(s, n + 1), GROUP_SUMS_4(s, n + 2), GROUP_SUMS_4(s, n + 3),    \
        GROUP_SUMS_4(s, n + 4), GROUP_SUMS_4(s, n + 5), GROUP_SUMS_4(s, n + 6),                    \
        GROUP_SUMS_4(s, n + 7)
#define GROUP_NAMES_32                                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GROUP_NAMES_64                                                                             \
    GROUP_NAMES_32                                                                                 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#endif

/* sums[N / 8][4] = a · bᵀ (+ sums, `add`): a [64 rows][16 columns], b [N rows][16 columns]. */
template <int N>
static __device__ __forceinline__ void group_multiply(float (*sums)[4], shared_at a, shared_at b,
                                                      bool add)
{
    static_assert(N == 64 || N == 128, "so many columns");
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_group_multiply(sums, N, a, b, add);
#elif defined(GROUP_ASM)
    if constexpr (N == 128)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" GROUP_NAMES_64
                     "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
                     : GROUP_SUMS_32(sums, 0), GROUP_SUMS_32(sums, 8)
                     : "l"(group_matrix(a, 16)), "l"(group_matrix(b, 16)), "r"((int)add));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" GROUP_NAMES_32
                     "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
                     : GROUP_SUMS_32(sums, 0)
                     : "l"(group_matrix(a, 16)), "l"(group_matrix(b, 16)), "r"((int)add));
#endif
}

/* sums[N / 8][4] += a · b: a is 64 rows of 16 in registers, as tensor.cuh has it by warps, b [16
 * rows][N columns]. */
template <int N>
static __device__ __forceinline__ void group_multiply_kept(float (*sums)[4], const unsigned *a,
                                                           shared_at b, uint32_t beside)
{
    static_assert(N == 64 || N == 128, "so many columns");
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_group_multiply_kept(sums, N, a, b, beside);
#elif defined(GROUP_ASM)
    if constexpr (N == 128)
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" GROUP_NAMES_64
                     "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
                     : GROUP_SUMS_32(sums, 0), GROUP_SUMS_32(sums, 8)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(group_matrix(b, beside)));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" GROUP_NAMES_32
                     "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
                     : GROUP_SUMS_32(sums, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(group_matrix(b, beside)));
#endif
}

#endif
