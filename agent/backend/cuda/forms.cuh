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

/* The same by 8 lanes, of which each has four neighbours. Numbers are small, so that sums are the
 * same in any order. */
static __device__ __forceinline__ void integers_put_4(uint8_t *to, float4 v, bool by_turns,
                                                      bool there)
{
    uint32_t lane = threadIdx.x % 8;
    float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    for (int by = 4; by; by /= 2)
        most = fmaxf(most, __shfl_xor_sync((unsigned)ALL_LANES, most, by));
    float scale = most / 127, inverse = scale > 0 ? 1 / scale : 0;
    const int numbers[4] = {(int)rintf(v.x * inverse), (int)rintf(v.y * inverse),
                            (int)rintf(v.z * inverse), (int)rintf(v.w * inverse)};
    float sum = (float)(numbers[0] + numbers[1] + numbers[2] + numbers[3]);
    for (int by = 2; by; by /= 2)
        sum += __shfl_xor_sync((unsigned)ALL_LANES, sum, by);
    float other = __shfl_xor_sync((unsigned)ALL_LANES, sum, 4);
    if (!there)
        return;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t at = lane * 4 + i;
        to[16 + (by_turns ? at % 16 * 2 + at / 16 : at)] = (uint8_t)(int8_t)numbers[i];
    }
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

/* Elements i to i + 3; all lanes of a warp come, `there`: the row has this lane's. */
static __device__ __forceinline__ void form_put_4(const gpu_formed &f, uint64_t row, uint32_t width,
                                                  uint32_t i, float4 v, bool there)
{
    if (f.form == GPU_FORM_INTEGERS || f.form == GPU_FORM_INTEGERS_BY_TURNS) {
        integers_put_4(f.to + ((uint64_t)(i / INPUT_BLOCK) * f.rows + row) * INPUT_BLOCK_BYTES, v,
                       f.form == GPU_FORM_INTEGERS_BY_TURNS, there);
    } else if (f.form != GPU_FORM_NONE && there) {
        const float four[4] = {v.x, v.y, v.z, v.w};
        unsigned short halves[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            halves[k] = f.form == GPU_FORM_F16 ? narrow_f16(four[k]) : narrow_bf16(four[k]);
        *(uint2 *)((unsigned short *)f.to + row * width + i) = {
            halves[0] | (unsigned)halves[1] << 16, halves[2] | (unsigned)halves[3] << 16};
    }
}

#endif
