/* Rows as products want them: integers of 32 at a time for decode, f16 or bf16 for many rows. */
#ifndef HP_AGENT_BACKEND_CUDA_FORMS_CUH
#define HP_AGENT_BACKEND_CUDA_FORMS_CUH

#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/kernels.h"

/* A row that is multiplied by integers, by blocks of 32 elements: first a head of each (scale, its
 * sums: first half, second half, all), then the first 16 bytes of each, then the others, so that
 * lanes that have neighbours read neighbours. Rows lie one after the other. */
enum { INPUT_BLOCK = 32, INPUT_BLOCK_PART = 16, INPUT_BLOCK_BYTES = 3 * INPUT_BLOCK_PART };

/* FRAGMENT_ROWS rows as tensor cores take them: of a block of 32 elements 8 bytes for each lane of
 * a warp (tensor.cuh: row lane / 4), then for each row its scale and what SUM_BEGIN comes to by it,
 * then a second number of each row. */
enum {
    FRAGMENT_ROWS = 8,
    FRAGMENT_HEADS = FRAGMENT_ROWS * INPUT_BLOCK,
    FRAGMENT_SECONDS = FRAGMENT_HEADS + FRAGMENT_ROWS * 8,
    FRAGMENT_BLOCK_BYTES = FRAGMENT_SECONDS + FRAGMENT_ROWS * 4
};

/* What MXFP4's bytes have too much (decode_formats.cuh). */
static constexpr float MXFP4_ADDED = -12;

/* Sums of integers begin with these bits: as a float32 they are then that much more than the sum,
 * which is less than 2^22. */
static constexpr int SUM_BITS = 0x4b400000;
static constexpr float SUM_BEGIN = 12582912;

/* What a lane has of a block of 32: N elements as integers, the sum of those of its half, of the
 * other half, and what all are multiplied by. */
template <int N> struct input_numbers {
    int of[N];
    float sum, other, scale;
};

/* All lanes of a warp come, 32 / N for a block. Numbers are small, so that sums are the same in any
 * order. Scales have 16 bits, so that a float32 holds them times SUM_BEGIN, too. */
template <int N> static __device__ __forceinline__ input_numbers<N> numbers_of(const float *values)
{
    input_numbers<N> n;
    float most = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        most = fmaxf(most, fabsf(values[i]));
#pragma unroll
    for (int by = INPUT_BLOCK / N / 2; by; by /= 2)
        most = fmaxf(most, __shfl_xor_sync((unsigned)ALL_LANES, most, by));
    n.scale = __uint_as_float((__float_as_uint(most / 127) + 0xff) & ~0xffu);
    float inverse = n.scale > 0 ? 1 / n.scale : 0;
    int sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        sum += n.of[i] = (int)rintf(values[i] * inverse);
    n.sum = (float)sum;
#pragma unroll
    for (int by = INPUT_BLOCK / N / 4; by; by /= 2)
        n.sum += __shfl_xor_sync((unsigned)ALL_LANES, n.sum, by);
    n.other = __shfl_xor_sync((unsigned)ALL_LANES, n.sum, INPUT_BLOCK / N / 2);
    return n;
}

/* The first of N is the lowest byte; what is past N is 0. */
template <int N> static __device__ __forceinline__ unsigned bytes_of_4(const int (&of)[N])
{
    unsigned word = 0;
#pragma unroll
    for (int i = 0; i < N && i < 4; i++)
        word |= (unsigned)(uint8_t)(int8_t)of[i] << i * 8;
    return word;
}

/* Of a row of so many blocks; the lane's are from element `first` of the block on. `by_turns`: for
 * MXFP4, in the order 0, 16, 1, 17, ..., and with what makes up for MXFP4_ADDED in place of the sum
 * of all. */
template <int N>
static __device__ __forceinline__ void integers_put(uint8_t *row, uint32_t blocks, uint32_t block,
                                                    const input_numbers<N> &n, uint32_t first,
                                                    bool by_turns)
{
    const uint32_t apart = blocks * INPUT_BLOCK_PART;
    uint8_t *to = row + (uint64_t)block * INPUT_BLOCK_PART;
    if (N == 4 && !by_turns)
        *(unsigned *)(to + (1 + first / INPUT_BLOCK_PART) * apart + first % INPUT_BLOCK_PART) =
            bytes_of_4(n.of);
    else
#pragma unroll
        for (uint32_t i = 0; i < N; i++) {
            uint32_t e = first + i, at = by_turns ? e % 16 * 2 + e / 16 : e;
            to[(1 + at / INPUT_BLOCK_PART) * apart + at % INPUT_BLOCK_PART] =
                (uint8_t)(int8_t)n.of[i];
        }
    if (first == 0)
        *(float4 *)to = {n.scale, n.sum * n.scale, n.other * n.scale,
                         (by_turns ? MXFP4_ADDED : 1) * (n.sum + n.other) * n.scale};
}

/* Element 4 i + k of either half is for lane i of the row's four: those of the first half, then
 * those of the second; the second number is the sum of all. `by_turns`: for MXFP4, one of each by
 * turns; the second number is the bits with which its sums begin. */
template <int N>
static __device__ __forceinline__ void fragments_put(uint8_t *block, uint64_t row,
                                                     const input_numbers<N> &n, uint32_t first,
                                                     bool by_turns)
{
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        uint32_t half = (first + i) / 16, k = (first + i) % 4;
        block[row * INPUT_BLOCK + first % 16 / 4 * 8 + (by_turns ? k * 2 + half : half * 4 + k)] =
            (uint8_t)(int8_t)n.of[i];
    }
    if (first == 0) {
        float sum = n.sum + n.other,
              second =
                  by_turns ? __int_as_float(SUM_BITS + (int)(MXFP4_ADDED * sum)) : sum * n.scale;
        *(float2 *)(block + FRAGMENT_HEADS + row * 8) = {n.scale, -SUM_BEGIN * n.scale};
        *(float *)(block + FRAGMENT_SECONDS + row * 4) = second;
    }
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

static __device__ __forceinline__ bool form_by_integers(gpu_form f)
{
    return f == GPU_FORM_INTEGERS || f == GPU_FORM_INTEGERS_BY_TURNS || f == GPU_FORM_FRAGMENTS ||
           f == GPU_FORM_FRAGMENTS_BY_TURNS;
}

/* N elements of a row from the ith on, as integers. */
template <int N>
static __device__ __forceinline__ void numbers_put(const gpu_formed &f, uint64_t row,
                                                   uint32_t width, uint32_t i, const float *values,
                                                   bool there)
{
    const input_numbers<N> n = numbers_of<N>(values);
    uint32_t blocks = width / INPUT_BLOCK, block = i / INPUT_BLOCK, first = i % INPUT_BLOCK;
    if (!there)
        return;
    if (f.form == GPU_FORM_FRAGMENTS || f.form == GPU_FORM_FRAGMENTS_BY_TURNS)
        fragments_put<N>(f.to + (uint64_t)block * FRAGMENT_BLOCK_BYTES, row, n, first,
                         f.form == GPU_FORM_FRAGMENTS_BY_TURNS);
    else
        integers_put<N>(f.to + row * blocks * INPUT_BLOCK_BYTES, blocks, block, n, first,
                        f.form == GPU_FORM_INTEGERS_BY_TURNS);
}

/* Element i of a row; as integers all lanes of a warp have neighbours of one block. */
static __device__ __forceinline__ void form_put(const gpu_formed &f, uint64_t row, uint32_t width,
                                                uint32_t i, float v)
{
    if (form_by_integers(f.form))
        numbers_put<1>(f, row, width, i, &v, true);
    else if (f.form != GPU_FORM_NONE)
        ((unsigned short *)f.to)[row * width + i] =
            f.form == GPU_FORM_F16 ? narrow_f16(v) : narrow_bf16(v);
}

/* Elements i to i + 3; all lanes of a warp come, `there`: the row has this lane's. */
static __device__ __forceinline__ void form_put_4(const gpu_formed &f, uint64_t row, uint32_t width,
                                                  uint32_t i, float4 v, bool there)
{
    const float four[4] = {v.x, v.y, v.z, v.w};
    if (form_by_integers(f.form)) {
        numbers_put<4>(f, row, width, i, four, there);
    } else if (f.form != GPU_FORM_NONE && there) {
        unsigned short halves[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            halves[k] = f.form == GPU_FORM_F16 ? narrow_f16(four[k]) : narrow_bf16(four[k]);
        *(uint2 *)((unsigned short *)f.to + row * width + i) = {
            halves[0] | (unsigned)halves[1] << 16, halves[2] | (unsigned)halves[3] << 16};
    }
}

#endif
