/* Products of 2 to GPU_DECODE_ROWS rows with BF16 weights, by tensor cores (capability 8.0 and
 * later): what more rows cost is little beside reading the weights. A float32 of the rows is the
 * sum of three bf16, so that no bit of it is lost; sums are float32. A warp has BF16_OUTPUTS
 * outputs, a block's warps take 32 elements of all rows by turns. */
#include "agent/backend/cuda/forms.cuh"
#include "agent/backend/cuda/kernels.h"
#include "agent/backend/cuda/products.cuh"
#include "agent/backend/cuda/tensor.cuh"

static constexpr uint32_t BF16_WARPS = 8, BF16_TILES = 2, BF16_OUTPUTS = BF16_TILES * 16,
                          BF16_DEPTH = 32, BF16_ROWS = 8, BF16_LANES = 4;

/* Two numbers as bf16, the first in the low half. */
static __device__ __forceinline__ unsigned bf16_pair(float low, float high)
{
#if defined(CUDA_ON_CPU)
    return narrow_bf16(low) | (unsigned)narrow_bf16(high) << 16;
#elif __CUDA_ARCH__ >= 800
    unsigned out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
#else
    return 0;
#endif
}

/* Eight of a row's elements, as three times eight bf16: each what the ones before it have not. */
struct bf16_thirds {
    unsigned of[3][4];
};

static __device__ __forceinline__ bf16_thirds thirds_of(float4 a, float4 b)
{
    float left[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    bf16_thirds t;
#pragma unroll
    for (int third = 0; third < 3; third++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned pair = bf16_pair(left[i * 2], left[i * 2 + 1]);
            t.of[third][i] = pair;
            left[i * 2] -= __uint_as_float(pair << 16);
            left[i * 2 + 1] -= __uint_as_float(pair & 0xffff0000u);
        }
    return t;
}

/* A lane's eight elements of weights of outputs lane / 4, and each eighth after it. */
struct bf16_weights {
    uint4 of[BF16_TILES * 2];
};

static __device__ __forceinline__ bf16_weights weights_load(const uint8_t *const *from, uint32_t k,
                                                            uint32_t inputs)
{
    bf16_weights w;
#pragma unroll
    for (uint32_t i = 0; i < BF16_TILES * 2; i++)
        w.of[i] = k < inputs ? *(const uint4 *)(from[i] + k * 2) : uint4{};
    return w;
}

/* Sums of 32 elements are added up by themselves first: tensor cores cut where they add to much. */
static __device__ __forceinline__ void weights_multiply(const bf16_weights &w, const bf16_thirds &x,
                                                        float (*sums)[4])
{
#pragma unroll
    for (uint32_t t = 0; t < BF16_TILES; t++) {
        const uint4 a = w.of[t * 2], b = w.of[t * 2 + 1];
        const unsigned first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
        float own[4] = {};
#pragma unroll
        for (int third = 2; third >= 0; third--) {
            tensor_multiply<true>(own, first, x.of[third][0], x.of[third][1]);
            tensor_multiply<true>(own, second, x.of[third][2], x.of[third][3]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[t][i] += own[i];
    }
}

/* What the warps have found; `room`: of a warp, [outputs][rows]. */
static __device__ __forceinline__ void sums_join(const decode_place &at, uint32_t rows, uint32_t c0,
                                                 const float (*sums)[4],
                                                 float (*room)[BF16_OUTPUTS * BF16_ROWS])
{
    uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t t = 0; t < BF16_TILES; t++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            room[threadIdx.x / WARP][(t * 16 + lane / BF16_LANES + i / 2 * 8) * BF16_ROWS +
                                     lane % BF16_LANES * 2 + i % 2] = sums[t][i];
    __syncthreads();
    uint32_t row = threadIdx.x / BF16_OUTPUTS, c = threadIdx.x % BF16_OUTPUTS;
    float sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < BF16_WARPS; w++)
        sum += room[w][c * BF16_ROWS + row];
    if (row < rows && c0 + c < at.outputs)
        product_store(at, row, c0 + c, sum);
}

__global__ void __launch_bounds__(BF16_WARPS *WARP) decode_bf16_kernel(gpu_product p)
{
    __shared__ float room[BF16_WARPS][BF16_OUTPUTS * BF16_ROWS];
    const decode_place place = place_find<BF16_OUTPUTS>(p, blockIdx.x);
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, c0 = place.block * BF16_OUTPUTS,
             row = lane / BF16_LANES, k = warp * BF16_DEPTH + lane % BF16_LANES * 8,
             step = BF16_WARPS * BF16_DEPTH;
    float sums[BF16_TILES][4] = {};
    const uint8_t *from[BF16_TILES * 2];
#pragma unroll
    for (uint32_t i = 0; i < BF16_TILES * 2; i++) {
        uint32_t c = c0 + row + i * 8;
        from[i] = place.weight + (c < place.outputs ? c : place.outputs - 1) * p.row_bytes;
    }
    bf16_weights now = weights_load(from, k, p.inputs),
                 next = weights_load(from, k + step, p.inputs);
    earlier_wait();
    const float *x = p.in.data + (row < p.rows ? row : 0) * p.in.stride;
    for (uint32_t k0 = warp * BF16_DEPTH; k0 < p.inputs; k0 += step, k += step) {
        const bf16_weights after = weights_load(from, k + 2 * step, p.inputs);
        float4 a = {}, b = {};
        if (k < p.inputs) {
            a = *(const float4 *)(x + k);
            b = *(const float4 *)(x + k + 4);
        }
        weights_multiply(now, thirds_of(a, b), sums);
        now = next;
        next = after;
    }
    sums_join(place, p.rows, c0, sums, room);
}

void gpu_decode_bf16_run(struct CUstream_st *s, const struct gpu_product *p)
{
    CUDA_LAUNCH_EARLY(decode_bf16_kernel, place_blocks(*p, BF16_OUTPUTS), BF16_WARPS * WARP, s)(*p);
}
