/* Quantised formats as tensor cores read them: of 32 elements of a row a lane has two words,
 * elements 4 i to 4 i + 3 of either half for lane i of the row's four, as bytes: an element is
 * scale * byte * FRAGMENT_BY, plus offset where a format has LEASTS, and MXFP4_ADDED more than its
 * byte for MXFP4. Bytes of formats that go below nothing have a sign, for which their bits are
 * moved up to the highest one. What is in a block: model/dtype/blocks.c and superblocks.c. */
#ifndef HP_AGENT_BACKEND_CUDA_DECODE_FRAGMENTS_CUH
#define HP_AGENT_BACKEND_CUDA_DECODE_FRAGMENTS_CUH

#include "agent/backend/cuda/decode_formats.cuh"

static constexpr uint32_t FRAGMENT_OUTPUTS = 16;

template <int DTYPE>
static constexpr float FRAGMENT_BY = DTYPE == DTYPE_Q4_0    ? 1.0f / 16
                                     : DTYPE == DTYPE_Q5_0  ? 1.0f / 8
                                     : DTYPE == DTYPE_Q6_K  ? 1.0f / 4
                                     : DTYPE == DTYPE_MXFP4 ? 0.5f
                                                            : 1;

/* A piece of a row is so many blocks of 32 elements, in a room of so many times 16 bytes: an odd
 * number, so that rows beside each other lie in other banks. STAGES pieces are on their way or
 * being multiplied. Blocks PERIOD apart lie alike to words. */
template <int DTYPE> struct fragment_format {
    using format = decode_format<DTYPE>;
    static constexpr bool AT_16 = DTYPE == DTYPE_Q4_K || DTYPE == DTYPE_Q5_K;
    static constexpr uint32_t BLOCK_BYTES = format::BLOCK_BYTES,
                              BLOCKS = DTYPE == DTYPE_Q8_0 ? 4 : 8,
                              PIECE_BYTES = format::SUPER ? BLOCK_BYTES : BLOCKS * BLOCK_BYTES,
                              ROOM = (PIECE_BYTES + (AT_16 ? 15 : 30)) / 16 | 1,
                              STAGES = DTYPE == DTYPE_Q6_K ? 2 : 3,
                              PERIOD = BLOCK_BYTES % 4 == 0   ? 1
                                       : BLOCK_BYTES % 2 == 0 ? 2
                                                              : 4;
};

/* Two rows' part of 32 elements, as a lane multiplies it: those of the one and the other row by
 * turns. */
struct fragment_part {
    unsigned words[4];
    float scales[2], offsets[2]; /* offsets: of formats with LEASTS alone */
};

/* Bits 0 to 3, each as the highest of a byte. */
static __device__ __forceinline__ unsigned highest_spread(unsigned bits)
{
    return (bits & 0xf) * 0x10204080 & 0x80808080;
}

/* Masks in registers: an instruction has room for one that is not. */
struct fragment_masks {
    unsigned halves, signs, fifths, twos;
};

/* As tables_make. */
static __device__ __forceinline__ fragment_masks masks_make(shared_at own)
{
#ifdef CUDA_ON_CPU
    unsigned nothing = own == nullptr;
#else
    unsigned nothing = own >> 24;
#endif
    return {0xf0f0f0f0 + nothing, 0x80808080 + nothing, 0x78787878 + nothing, 0xc0c0c0c0 + nothing};
}

/* A row's blocks of 32 in a piece, as a lane reads them: of each that lies otherwise to words. */
template <int DTYPE> struct small_row {
    static constexpr bool LEAST = DTYPE == DTYPE_Q4_1 || DTYPE == DTYPE_Q5_1,
                          FIFTHS = DTYPE == DTYPE_Q5_0 || DTYPE == DTYPE_Q5_1;
    static constexpr uint32_t AT =
        DTYPE == DTYPE_MXFP4 ? 1 : (LEAST ? 4 : 2) + (FIFTHS ? 4 : 0); /* of a block's bytes */
    shared_at first;
    words_place words[fragment_format<DTYPE>::PERIOD];

    __device__ __forceinline__ void find(shared_at b, uint32_t own)
    {
        first = b;
#pragma unroll
        for (uint32_t i = 0; i < fragment_format<DTYPE>::PERIOD; i++)
            words[i] = words_at(b + i * fragment_format<DTYPE>::BLOCK_BYTES + AT + own);
    }
};

/* Block `j` of the row, which is the `h`th of the lane's two; `own`: 4 times the lane's number
 * among the row's four. */
template <int DTYPE>
static __device__ __forceinline__ void
small_part(const decode_tables &tables, const fragment_masks &masks, const small_row<DTYPE> &row,
           uint32_t j, uint32_t own, uint32_t h, fragment_part &t)
{
    using format = fragment_format<DTYPE>;
    const uint32_t plus = j / format::PERIOD * format::PERIOD * format::BLOCK_BYTES;
    const words_place &place = row.words[j % format::PERIOD];
    const shared_at b = row.first + j * format::BLOCK_BYTES;
    unsigned w, low = 0, high = 0, pair[2];
    words_take<1>(place, plus, &w);
    if (row.FIFTHS) {
        low = (unsigned)shared_half(b + row.AT - 4) >> own;
        high = (unsigned)shared_half(b + row.AT - 2) >> own;
    }
    if (DTYPE == DTYPE_MXFP4) { /* 2^-127, which is no normal number, is nothing here */
        t.scales[h] = __uint_as_float(shared_byte(b) << 23);
        mxfp4_bytes(tables, w, pair);
    } else {
        t.scales[h] = scale_at(b);
    }
    if (row.LEAST)
        t.offsets[h] = scale_at(b + 2);
    if (DTYPE == DTYPE_Q8_0) {
        pair[0] = w;
        words_take<1>(place, plus + 16, &pair[1]);
    } else if (DTYPE == DTYPE_Q4_0) {
        pair[0] = (w << 4 & masks.halves) ^ masks.signs;
        pair[1] = (w & masks.halves) ^ masks.signs;
    } else if (DTYPE == DTYPE_Q5_0) {
        pair[0] = (w << 3 & masks.fifths) | (highest_spread(low) ^ masks.signs);
        pair[1] = (w >> 1 & masks.fifths) | (highest_spread(high) ^ masks.signs);
    } else if (row.LEAST) {
        pair[0] = (w & 0x0f0f0f0f) | (row.FIFTHS ? fifths_spread(low, 0) : 0);
        pair[1] = (w >> 4 & 0x0f0f0f0f) | (row.FIFTHS ? fifths_spread(high, 0) : 0);
    }
    t.words[h] = pair[0];
    t.words[2 + h] = pair[1];
}

/* A block of 256's scales in shared memory for all lanes of the warp, each of which makes a fourth
 * of a row's: with offsets by turns, or Q6_K's 16. */
template <int DTYPE>
static __device__ __forceinline__ void scales_make(shared_at b, uint32_t fourth, float4 *to)
{
    if (DTYPE == DTYPE_Q6_K) {
        float by = scale_at(b + 208);
        unsigned four;
        words_read<1>(b + 192 + fourth * 4, 0, &four);
        to[fourth] = {by * (float)(int8_t)four, by * (float)(int8_t)(four >> 8),
                      by * (float)(int8_t)(four >> 16), by * (float)(int8_t)(four >> 24)};
    } else {
        decode_task t;
        k_scales_pair(shared_quad(b), fourth, t);
        float by = DTYPE == DTYPE_Q4_K ? 1.0f / 16 : 1; /* what high halves are multiplied as */
        to[fourth] = {t.scales[0], t.offsets[0], by * t.scales[1], t.offsets[1]};
    }
}

/* What a lane has of a row's two blocks of 32 that share bytes, the `pair`th of 4: low halves of
 * bytes, then high ones, where they are for Q4_K. `fifths`: the lane's two words of fifth bits. */
template <int DTYPE>
static __device__ __forceinline__ void k_pair(shared_at b, uint32_t pair, uint32_t own,
                                              const unsigned *fifths, unsigned (*words)[2])
{
    shared_at four = b + (DTYPE == DTYPE_Q5_K ? 48 : 16) + pair * 32 + own;
    unsigned w[2] = {shared_word(four), shared_word(four + 16)};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        words[0][i] = w[i] & 0x0f0f0f0f;
        words[1][i] = w[i] & 0xf0f0f0f0;
        if (DTYPE == DTYPE_Q4_K)
            continue;
        unsigned two = fifths[i] >> pair * 2;
        words[0][i] |= two << 4 & 0x10101010;
        words[1][i] = words[1][i] >> 4 | (two << 3 & 0x10101010);
    }
}

/* The same of Q6_K's four blocks of 32 of a half of 256. */
static __device__ __forceinline__ void q6_k_half(const words_place &place, uint32_t half,
                                                 const fragment_masks &masks, unsigned (*words)[2])
{
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        unsigned low, high, bits;
        words_take<1>(place, half * 64 + i * 16, &low);
        words_take<1>(place, half * 64 + 32 + i * 16, &high);
        words_take<1>(place, 128 + half * 32 + i * 16, &bits);
        bits ^= 0xaaaaaaaa; /* the highest of each two */
        words[0][i] = (low << 2 & 0x3c3c3c3c) | (bits << 6 & masks.twos);
        words[1][i] = (high << 2 & 0x3c3c3c3c) | (bits << 4 & masks.twos);
        words[2][i] = (low >> 2 & 0x3c3c3c3c) | (bits << 2 & masks.twos);
        words[3][i] = (high >> 2 & 0x3c3c3c3c) | (bits & masks.twos);
    }
}

#endif
