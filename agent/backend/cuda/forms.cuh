/* Rows as products want them: integers of 32 at a time for decode, f16 or bf16 for many rows. */
#ifndef HP_AGENT_BACKEND_CUDA_FORMS_CUH
#define HP_AGENT_BACKEND_CUDA_FORMS_CUH

#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/kernels.h"

/* A row that is multiplied by integers, by blocks of 32 elements: scale, its sums (first half,
 * second half, all), then 32 bytes. Blocks of the same place in all rows lie side by side. */
enum { INPUT_BLOCK = 32, INPUT_BLOCK_BYTES = 16 + INPUT_BLOCK };

/* What MXFP4's bytes have too much (decode_formats.cuh). */
static constexpr float MXFP4_ADDED = -12;

/* A warp's block, of whose elements a lane has one. `by_turns`: for MXFP4, in the order 0, 16, 1,
 * 17, ..., and with what makes up for MXFP4_ADDED in place of the sum of all. */
static __device__ __forceinline__ void integers_put(uint8_t *to, float value, bool by_turns)
{
    uint32_t lane = threadIdx.x % WARP;
    float scale = warp_max(fabsf(value)) / 127, inverse = scale > 0 ? 1 / scale : 0;
    int number = (int)rintf(value * inverse);
    float sum = (float)number;
    for (int by = 8; by; by /= 2)
        sum += __shfl_xor_sync((unsigned)ALL_LANES, sum, by);
    float other = __shfl_xor_sync((unsigned)ALL_LANES, sum, 16);
    to[16 + (by_turns ? lane % 16 * 2 + lane / 16 : lane)] = (uint8_t)(int8_t)number;
    if (lane == 0)
        *(float4 *)to = {scale, sum * scale, other * scale,
                         (by_turns ? MXFP4_ADDED : 1) * (sum + other) * scale};
}

static __device__ __forceinline__ unsigned short narrow_f16(float v)
{
    v = v > 65504.0f ? 65504.0f : v;
    v = v < -65504.0f ? -65504.0f : v;
    return __half_as_ushort(__float2half_rn(v));
}

static __device__ __forceinline__ unsigned short narrow_bf16(float v)
{
    unsigned bits = __float_as_uint(v);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (unsigned short)(bits >> 16 | 0x40);
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Element i of a row; as integers all lanes of a warp have neighbours of one block. */
static __device__ __forceinline__ void form_put(const gpu_formed &f, uint64_t row, uint32_t width,
                                                uint32_t i, float v)
{
    switch (f.form) {
    case GPU_FORM_NONE: break;
    case GPU_FORM_INTEGERS:
    case GPU_FORM_INTEGERS_BY_TURNS:
        integers_put(f.to + ((uint64_t)(i / INPUT_BLOCK) * f.rows + row) * INPUT_BLOCK_BYTES, v,
                     f.form == GPU_FORM_INTEGERS_BY_TURNS);
        break;
    case GPU_FORM_F16: ((unsigned short *)f.to)[row * width + i] = narrow_f16(v); break;
    case GPU_FORM_BF16: ((unsigned short *)f.to)[row * width + i] = narrow_bf16(v); break;
    }
}

#endif
