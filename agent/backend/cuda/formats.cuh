/* Number formats of weights as kernels read them, in place: a run of FORMAT_RUN elements of a row
 * at a time. What is in a block: model/dtype/blocks.c and superblocks.c. */
#ifndef HP_AGENT_BACKEND_CUDA_FORMATS_CUH
#define HP_AGENT_BACKEND_CUDA_FORMATS_CUH

#include "agent/backend/cuda/cuda.cuh"
#include "model/dtype/dtype.h"

static constexpr uint32_t FORMAT_RUN = 8;

/* One call of `each` with the constant that `dtype` is. */
#define FORMAT_SWITCH(dtype, each)                                                                 \
    switch (dtype) {                                                                               \
    case DTYPE_F32: each(DTYPE_F32); break;                                                        \
    case DTYPE_F16: each(DTYPE_F16); break;                                                        \
    case DTYPE_BF16: each(DTYPE_BF16); break;                                                      \
    case DTYPE_Q8_0: each(DTYPE_Q8_0); break;                                                      \
    case DTYPE_Q4_0: each(DTYPE_Q4_0); break;                                                      \
    case DTYPE_Q4_1: each(DTYPE_Q4_1); break;                                                      \
    case DTYPE_Q5_0: each(DTYPE_Q5_0); break;                                                      \
    case DTYPE_Q5_1: each(DTYPE_Q5_1); break;                                                      \
    case DTYPE_Q4_K: each(DTYPE_Q4_K); break;                                                      \
    case DTYPE_Q5_K: each(DTYPE_Q5_K); break;                                                      \
    case DTYPE_Q6_K: each(DTYPE_Q6_K); break;                                                      \
    case DTYPE_MXFP4: each(DTYPE_MXFP4); break;                                                    \
    default: break;                                                                                \
    }

/* Of 32 elements in four bits, 16 bytes with i and i + 16 in one. */
static __device__ __forceinline__ int pair_bits(const uint8_t *pairs, uint32_t i)
{
    return i < 16 ? pairs[i] & 0xf : pairs[i - 16] >> 4;
}

static __device__ __forceinline__ int fifth_bit(const uint8_t *high, uint32_t i)
{
    return (high[i / 8] >> i % 8 & 1) << 4;
}

static __device__ __forceinline__ float mxfp4_value(int bits)
{
    const float sizes[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    return bits & 8 ? -sizes[bits & 7] : sizes[bits & 7];
}

/* 2^(e - 128), also where that is no normal number. */
static __device__ __forceinline__ float mxfp4_scale(unsigned e)
{
    return e < 2 ? __uint_as_float(0x00200000u << e) : __uint_as_float((e - 1) << 23);
}

/* Blocks of 32: element i of the block at `b`. */
template <int DTYPE>
static __device__ __forceinline__ void small_read(const uint8_t *b, uint32_t i, float *out)
{
    if (DTYPE == DTYPE_Q8_0) {
        float scale = half_at(b);
        for (uint32_t k = 0; k < FORMAT_RUN; k++)
            out[k] = scale * (float)(int8_t)b[2 + i + k];
    } else if (DTYPE == DTYPE_Q4_0) {
        float scale = half_at(b);
        for (uint32_t k = 0; k < FORMAT_RUN; k++)
            out[k] = scale * (float)(pair_bits(b + 2, i + k) - 8);
    } else if (DTYPE == DTYPE_Q4_1) {
        float scale = half_at(b), least = half_at(b + 2);
        for (uint32_t k = 0; k < FORMAT_RUN; k++)
            out[k] = scale * (float)pair_bits(b + 4, i + k) + least;
    } else if (DTYPE == DTYPE_Q5_0) {
        float scale = half_at(b);
        for (uint32_t k = 0; k < FORMAT_RUN; k++)
            out[k] = scale * (float)((pair_bits(b + 6, i + k) | fifth_bit(b + 2, i + k)) - 16);
    } else if (DTYPE == DTYPE_Q5_1) {
        float scale = half_at(b), least = half_at(b + 2);
        for (uint32_t k = 0; k < FORMAT_RUN; k++)
            out[k] = scale * (float)(pair_bits(b + 8, i + k) | fifth_bit(b + 4, i + k)) + least;
    } else {
        float scale = mxfp4_scale(b[0]);
        for (uint32_t k = 0; k < FORMAT_RUN; k++)
            out[k] = scale * mxfp4_value(pair_bits(b + 1, i + k));
    }
}

/* Scale and least value of run `run` of 32 of a Q4_K or Q5_K block. */
static __device__ __forceinline__ void k_scales(const uint8_t *packed, uint32_t run, int *scale,
                                                int *least)
{
    if (run < 4) {
        *scale = packed[run] & 63;
        *least = packed[run + 4] & 63;
        return;
    }
    *scale = (packed[run + 4] & 0xf) | packed[run - 4] >> 6 << 4;
    *least = packed[run + 4] >> 4 | packed[run] >> 6 << 4;
}

/* Blocks of 256. */
template <int DTYPE>
static __device__ __forceinline__ void super_read(const uint8_t *b, uint32_t i, float *out)
{
    if (DTYPE == DTYPE_Q6_K) {
        const uint8_t *low = b + i / 128 * 64, *high = b + 128 + i / 128 * 32;
        uint32_t at = i % 128, quarter = at / 32;
        float scale = half_at(b + 208) * (float)(int8_t)b[192 + i / 16];
        for (uint32_t k = 0; k < FORMAT_RUN; k++) {
            uint32_t l = at % 32 + k;
            int bits = (low[l + quarter % 2 * 32] >> quarter / 2 * 4 & 0xf) |
                       (high[l] >> quarter * 2 & 3) << 4;
            out[k] = scale * (float)(bits - 32);
        }
        return;
    }
    int scale, least;
    uint32_t run = i / 32;
    const uint8_t *four = b + (DTYPE == DTYPE_Q5_K ? 48 : 16) + i / 64 * 32;
    k_scales(b + 4, run, &scale, &least);
    float by = half_at(b) * (float)scale, less = half_at(b + 2) * (float)least;
    for (uint32_t k = 0; k < FORMAT_RUN; k++) {
        int bits = four[i % 32 + k] >> run % 2 * 4 & 0xf;
        if (DTYPE == DTYPE_Q5_K)
            bits |= (b[16 + i % 32 + k] >> run & 1) << 4;
        out[k] = by * (float)bits - less;
    }
}

/* Elements [at, at + FORMAT_RUN) of a row, `at` a multiple of that; those from `left` on are 0. */
template <int DTYPE>
static __device__ __forceinline__ void format_read(const uint8_t *row, uint32_t at, uint32_t left,
                                                   float *out)
{
    if (DTYPE == DTYPE_F32) {
        for (uint32_t k = 0; k < FORMAT_RUN; k++)
            out[k] = k < left ? ((const float *)row)[at + k] : 0;
    } else if (DTYPE == DTYPE_F16) {
        for (uint32_t k = 0; k < FORMAT_RUN; k++)
            out[k] = k < left
                         ? __half2float(__ushort_as_half(((const unsigned short *)row)[at + k]))
                         : 0;
    } else if (DTYPE == DTYPE_BF16) {
        for (uint32_t k = 0; k < FORMAT_RUN; k++)
            out[k] = k < left
                         ? __uint_as_float((unsigned)((const unsigned short *)row)[at + k] << 16)
                         : 0;
    } else if (DTYPE == DTYPE_Q4_K || DTYPE == DTYPE_Q5_K || DTYPE == DTYPE_Q6_K) {
        const uint32_t bytes = DTYPE == DTYPE_Q4_K   ? Q4_K_BYTES
                               : DTYPE == DTYPE_Q5_K ? Q5_K_BYTES
                                                     : Q6_K_BYTES;
        super_read<DTYPE>(row + (uint64_t)(at / SUPERBLOCK_ELEMENTS) * bytes,
                          at % SUPERBLOCK_ELEMENTS, out);
    } else {
        const uint32_t bytes = DTYPE == DTYPE_Q8_0   ? Q8_0_BYTES
                               : DTYPE == DTYPE_Q4_0 ? Q4_0_BYTES
                               : DTYPE == DTYPE_Q4_1 ? Q4_1_BYTES
                               : DTYPE == DTYPE_Q5_0 ? Q5_0_BYTES
                               : DTYPE == DTYPE_Q5_1 ? Q5_1_BYTES
                                                     : MXFP4_BYTES;
        small_read<DTYPE>(row + (uint64_t)(at / SMALL_BLOCK_ELEMENTS) * bytes,
                          at % SMALL_BLOCK_ELEMENTS, out);
    }
}

#endif
