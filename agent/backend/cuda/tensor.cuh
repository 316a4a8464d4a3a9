/* Tensor cores (mma.sync, Turing and later), for a whole warp. A fragment's register holds two f16
 * side by side. Of 16 x 16 by 16 x 8: lane l has of the first matrix rows l / 4 and l / 4 + 8 at
 * columns l % 4 * 2 and the next, then 8 columns on; of the second column l / 4 at rows l % 4 * 2
 * and the next, then 8 rows on; of the result rows l / 4 (two columns from l % 4 * 2 on) and l / 4
 * + 8. */
#ifndef HP_AGENT_BACKEND_CUDA_TENSOR_CUH
#define HP_AGENT_BACKEND_CUDA_TENSOR_CUH

#include "agent/backend/cuda/async.cuh"

/* sums += a · b; of bf16 from Ampere on. */
template <bool BF16 = false>
static __device__ __forceinline__ void tensor_multiply(float *sums, const unsigned *a, unsigned b0,
                                                       unsigned b1)
{
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_tensor_multiply(sums, a, b0, b1, BF16);
#elif __CUDA_ARCH__ >= 800
    if (BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

/* Signed bytes, four in a register (Ampere and later): of 16 x 32 by 32 x 8 lane l has of the first
 * matrix rows l / 4 and l / 4 + 8 at columns l % 4 * 4 and the next three, then 16 columns on; of
 * the second column l / 4 at these rows; of the result what it has of that of f16. */
#if defined(CUDA_ON_CPU) || __CUDA_ARCH__ >= 800
#define TENSOR_BYTES 1
#endif

/* a · b, added to `begin`; UNSIGNED: the bytes of a have no sign. */
template <bool UNSIGNED>
static __device__ __forceinline__ void
tensor_multiply_bytes(int *out, const unsigned *a, unsigned b0, unsigned b1, const int *begin)
{
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_tensor_multiply_bytes(out, a, b0, b1, begin, {32, UNSIGNED});
#elif defined(TENSOR_BYTES)
    if (UNSIGNED)
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(begin[0]),
                       "r"(begin[1]), "r"(begin[2]), "r"(begin[3]));
    else
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(begin[0]),
                       "r"(begin[1]), "r"(begin[2]), "r"(begin[3]));
#endif
}

/* The same of the first 16 columns: a[0], a[1] and b. */
static __device__ __forceinline__ void tensor_multiply_16_bytes(int *out, const unsigned *a,
                                                                unsigned b, const int *begin)
{
#if defined(CUDA_ON_CPU)
    const unsigned both[4] = {a[0], a[1], 0, 0};
    cuda_on_cpu_tensor_multiply_bytes(out, both, b, 0, begin, {16, false});
#elif defined(TENSOR_BYTES)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, "
                 "{%6}, {%7, %8, %9, %10};"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b), "r"(begin[0]), "r"(begin[1]), "r"(begin[2]),
                   "r"(begin[3]));
#endif
}

/* Four matrices of 8 x 8 f16 from shared memory: lanes 8 i to 8 i + 7 say where the rows of matrix
 * i are. Lane l gets of each row l / 4 at columns l % 4 * 2 and the next; turned: column l / 4 at
 * these rows. */
template <bool TURNED>
static __device__ __forceinline__ void matrices_read(shared_at row, unsigned *out)
{
#if defined(CUDA_ON_CPU)
    unsigned lane = cuda_on_cpu_lane(), first = lane % 4 * 2;
    for (unsigned i = 0; i < 4; i++) {
        shared_at a = cuda_on_cpu_shuffle(~0u, row, i * 8 + (TURNED ? first : lane / 4)),
                  b = cuda_on_cpu_shuffle(~0u, row, i * 8 + (TURNED ? first + 1 : lane / 4));
        out[i] = *(const unsigned short *)(a + (TURNED ? lane / 4 : first) * 2) |
                 (unsigned)*(const unsigned short *)(b + (TURNED ? lane / 4 : first + 1) * 2) << 16;
    }
#elif __CUDA_ARCH__ >= 750
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(row)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(row)
                     : "memory");
#endif
}

/* Two numbers as f16, the first in the low half; what f16 cannot hold becomes its largest. */
static __device__ __forceinline__ unsigned halves_of(float low, float high)
{
    const float most = 65504.0f;
    low = fminf(fmaxf(low, -most), most);
    high = fminf(fmaxf(high, -most), most);
    return __half_as_ushort(__float2half_rn(low)) |
           (unsigned)__half_as_ushort(__float2half_rn(high)) << 16;
}

/* The same of numbers that f16 holds. */
static __device__ __forceinline__ unsigned halves_of_small(float low, float high)
{
#if defined(CUDA_ON_CPU) || __CUDA_ARCH__ < 800
    return __half_as_ushort(__float2half_rn(low)) |
           (unsigned)__half_as_ushort(__float2half_rn(high)) << 16;
#else
    unsigned out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
#endif
}

/* 2 to the power of x, to about 22 bits; 0 of what is less than 2^-126. */
static __device__ __forceinline__ float exp2_fast(float x)
{
#ifdef CUDA_ON_CPU
    return exp2f(x);
#else
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
#endif
}

/* Hyperbolic tangent to about 1e-6. */
static __device__ __forceinline__ float tanh_fast(float x)
{
#ifdef CUDA_ON_CPU
    return tanhf(x);
#else
    float all = 1 + exp2_fast(2 * 1.44269504f * x), inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(all));
    return 1 - 2 * inverse;
#endif
}

#endif
