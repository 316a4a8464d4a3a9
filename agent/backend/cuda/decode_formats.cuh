/* Quantised formats as decode reads them: a lane's task is 32 or 64 elements of a row, as bytes to
 * be multiplied four at a time (dp4a), with a scale for each of its parts: an element is scale *
 * (byte + ADDED) * BY, or scale * byte + offset where a format has LEASTS. A row's bytes are in
 * shared memory, a piece of some tasks for each lane at a time. What is in a block:
 * model/dtype/blocks.c and superblocks.c. */
#ifndef HP_AGENT_BACKEND_CUDA_DECODE_FORMATS_CUH
#define HP_AGENT_BACKEND_CUDA_DECODE_FORMATS_CUH

#include "agent/backend/cuda/async.cuh"
#include "agent/backend/cuda/forms.cuh"
#include "model/dtype/dtype.h"

/* Formats whose blocks keep a least value. */
template <int DTYPE>
static constexpr bool LEASTS =
    DTYPE == DTYPE_Q4_1 || DTYPE == DTYPE_Q5_1 || DTYPE == DTYPE_Q4_K || DTYPE == DTYPE_Q5_K;
template <int DTYPE>
static constexpr float ADDED = DTYPE == DTYPE_Q4_0    ? -8
                               : DTYPE == DTYPE_Q5_0  ? -16
                               : DTYPE == DTYPE_Q6_K  ? -32
                               : DTYPE == DTYPE_MXFP4 ? MXFP4_ADDED
                                                      : 0;
template <int DTYPE> static constexpr float BY = DTYPE == DTYPE_MXFP4 ? 0.5f : 1;

/* PARTS parts of WORDS words; a row is of blocks of BLOCK_BYTES with BLOCK_TASKS tasks; a piece has
 * EACH tasks for a lane. */
template <int DTYPE> struct decode_format {
    static constexpr bool SUPER = DTYPE == DTYPE_Q4_K || DTYPE == DTYPE_Q5_K || DTYPE == DTYPE_Q6_K;
    static constexpr uint32_t BLOCK_BYTES = DTYPE == DTYPE_Q8_0   ? Q8_0_BYTES
                                            : DTYPE == DTYPE_Q4_0 ? Q4_0_BYTES
                                            : DTYPE == DTYPE_Q4_1 ? Q4_1_BYTES
                                            : DTYPE == DTYPE_Q5_0 ? Q5_0_BYTES
                                            : DTYPE == DTYPE_Q5_1 ? Q5_1_BYTES
                                            : DTYPE == DTYPE_Q4_K ? Q4_K_BYTES
                                            : DTYPE == DTYPE_Q5_K ? Q5_K_BYTES
                                            : DTYPE == DTYPE_Q6_K ? Q6_K_BYTES
                                                                  : MXFP4_BYTES;
    static constexpr uint32_t BLOCK_TASKS = SUPER ? 4 : 1, ELEMENTS = SUPER ? 64 : 32,
                              PARTS = DTYPE == DTYPE_Q6_K ? 4
                                      : SUPER             ? 2
                                                          : 1,
                              WORDS = DTYPE == DTYPE_Q6_K ? 4 : 8,
                              EACH = SUPER || DTYPE == DTYPE_Q8_0 ? 1 : 2,
                              TASK_BLOCKS = ELEMENTS / INPUT_BLOCK, PIECE_TASKS = WARP * EACH,
                              PIECE_BYTES = PIECE_TASKS / BLOCK_TASKS * BLOCK_BYTES;
};

struct decode_task {
    unsigned words[16];
    float scales[4], offsets[4]; /* offsets: of formats with LEASTS alone */
};

/* Bytes of tables, in registers: a constant would be loaded anew for each use. */
struct decode_tables {
    unsigned plus, minus;
};

static __device__ __forceinline__ float scale_at(shared_at p)
{
    return __half2float(__ushort_as_half(shared_half(p)));
}

/* Four numbers below 16 in the low halves of bytes, then those in the high halves. */
template <int N>
static __device__ __forceinline__ void nibbles_split(const unsigned *from, unsigned *low,
                                                     unsigned *high)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        low[i] = from[i] & 0x0f0f0f0f;
        high[i] = from[i] >> 4 & 0x0f0f0f0f;
    }
}

/* Bits i * 4 to i * 4 + 3, each as the fifth bit of a byte. */
static __device__ __forceinline__ unsigned fifths_spread(unsigned bits, int i)
{
    return (bits >> i * 4 & 0xf) * 0x02040810 & 0x10101010;
}

/* Of a thread that has `own` of shared memory, which ends long before 2^24: what is added is 0, but
 * the compiler does not know. */
static __device__ __forceinline__ decode_tables tables_make(shared_at own)
{
#ifdef CUDA_ON_CPU
    unsigned nothing = own == nullptr;
#else
    unsigned nothing = own >> 24;
#endif
    return {0x0f0e0d0c + nothing, 0x090a0b0c + nothing};
}

/* Numbers of four bits, 8 of them, to 12 more than twice what MXFP4 means by them: 0, 1, 2, 3, 4,
 * 6, 8, 12, or as much less than nothing where the fourth bit is set. */
static __device__ __forceinline__ void mxfp4_bytes(const decode_tables &t, unsigned numbers,
                                                   unsigned *out)
{
    unsigned other = numbers ^ 0x88888888;
#pragma unroll
    for (int i = 0; i < 2; i++)
        out[i] = table_bytes(t.plus, 0x18141210, numbers >> i * 16) |
                 table_bytes(t.minus, 0x00040608, other >> i * 16);
}

/* A block of 32, `plus` bytes after `b` (a multiple of 4): those of MXFP4 in the order 0, 16, 1,
 * 17,
 * ... */
template <int DTYPE>
static __device__ __forceinline__ void small_unpack(const decode_tables &tables, shared_at b,
                                                    uint32_t plus, decode_task &t)
{
    const bool least = DTYPE == DTYPE_Q4_1 || DTYPE == DTYPE_Q5_1,
               fifths = DTYPE == DTYPE_Q5_0 || DTYPE == DTYPE_Q5_1;
    const uint32_t at = (least ? 4 : 2) + (fifths ? 4 : 0);
    unsigned pairs[4], high = 0;
    if (DTYPE == DTYPE_MXFP4) {
        float least = __uint_as_float(0x00400000u); /* 2^-127, which is no normal number */
        words_read<4>(b + 1, plus, pairs);
        t.scales[0] = fmaxf(__uint_as_float(shared_byte(b + plus) << 23), least);
#pragma unroll
        for (int i = 0; i < 4; i++)
            mxfp4_bytes(tables, pairs[i], t.words + i * 2);
        return;
    }
    t.scales[0] = scale_at(b + plus);
    if (least)
        t.offsets[0] = scale_at(b + plus + 2);
    if (DTYPE == DTYPE_Q8_0) {
        words_read<8>(b + 2, plus, t.words);
        return;
    }
    words_read<4>(b + at, plus, pairs);
    nibbles_split<4>(pairs, t.words, t.words + 4);
    if (!fifths)
        return;
    words_read<1>(b + at - 4, plus, &high);
#pragma unroll
    for (int i = 0; i < 8; i++)
        t.words[i] |= fifths_spread(high, i);
}

/* Scales and least values of the two runs of 32 that share bytes, from a block's 12 bytes of them:
 * `quarter` says which two. */
static __device__ __forceinline__ void k_scales_pair(uint4 head, uint32_t quarter, decode_task &t)
{
    float by = __half2float(__ushort_as_half((unsigned short)head.x)),
          less = -__half2float(__ushort_as_half((unsigned short)(head.x >> 16)));
    unsigned shift = quarter % 2 * 16, a = head.y >> shift, b = head.z >> shift,
             c = head.w >> shift;
    unsigned scales = quarter < 2 ? a & 0x3f3f : (c & 0x0f0f) | (a >> 2 & 0x3030),
             leasts = quarter < 2 ? b & 0x3f3f : (c >> 4 & 0x0f0f) | (b >> 2 & 0x3030);
    t.scales[0] = by * (float)(scales & 0xff);
    t.scales[1] = by * (float)(scales >> 8);
    t.offsets[0] = less * (float)(leasts & 0xff);
    t.offsets[1] = less * (float)(leasts >> 8);
}

/* A fourth of a block of 256 that begins at a multiple of 16. */
template <int DTYPE>
static __device__ __forceinline__ void k_unpack(shared_at b, uint32_t quarter, decode_task &t)
{
    shared_at four = b + (DTYPE == DTYPE_Q5_K ? 48 : 16) + quarter * 32;
    uint4 x = shared_quad(four), y = shared_quad(four + 16);
    const unsigned pairs[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
    k_scales_pair(shared_quad(b), quarter, t);
    nibbles_split<8>(pairs, t.words, t.words + 8);
    if (DTYPE == DTYPE_Q4_K)
        return;
    x = shared_quad(b + 16), y = shared_quad(b + 32);
    const unsigned fifths[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        unsigned two = fifths[i] >> quarter * 2;
        t.words[i] |= two << 4 & 0x10101010;
        t.words[8 + i] |= two << 3 & 0x10101010;
    }
}

/* Of a block of 256: of 128 elements every other 16, so that each part has a scale. */
static __device__ __forceinline__ void q6_k_unpack(shared_at b, uint32_t quarter, decode_task &t)
{
    uint32_t half = quarter / 2, first = quarter % 2 * 16;
    unsigned low[8], high[4];
    float by = scale_at(b + 208);
    words_read<4>(b + half * 64 + first, 0, low);
    words_read<4>(b + half * 64 + first, 32, low + 4);
    words_read<4>(b + 128 + half * 32 + first, 0, high);
    nibbles_split<8>(low, t.words, t.words + 8);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        t.words[i] |= high[i] << 4 & 0x30303030;
        t.words[4 + i] |= high[i] << 2 & 0x30303030;
        t.words[8 + i] |= high[i] & 0x30303030;
        t.words[12 + i] |= high[i] >> 2 & 0x30303030;
        t.scales[i] = by * (float)(int8_t)shared_byte(b + 192 + half * 8 + quarter % 2 + i * 2);
    }
}

/* A piece of a row on its way to shared memory; the row begins `lead` bytes after `from`, which is
 * a multiple of 16. */
template <int DTYPE>
static __device__ __forceinline__ void piece_fetch(shared_at to, const uint8_t *from, uint32_t lead,
                                                   uint32_t row_bytes, uint32_t piece)
{
    const uint32_t each = decode_format<DTYPE>::PIECE_BYTES, most = each / 16 + 1;
    uint32_t first = piece * each, own = threadIdx.x % WARP * 16, left = lead + row_bytes - first;
    const uint8_t *at = from + (first + own);
    to += own;
#pragma unroll
    for (uint32_t i = 0; i < most * 16; i += WARP * 16)
        if (i + own < left && i + own < most * 16)
            async_copy_16(to + i, at + i);
}

/* A lane's task of a piece, the `which`th. */
template <int DTYPE>
static __device__ __forceinline__ void task_unpack(const decode_tables &tables, shared_at piece,
                                                   uint32_t which, decode_task &t)
{
    using format = decode_format<DTYPE>;
    uint32_t task = threadIdx.x % WARP;
    shared_at b = piece + task / format::BLOCK_TASKS * format::BLOCK_BYTES;
    if (DTYPE == DTYPE_Q6_K)
        q6_k_unpack(b, task % 4, t);
    else if (format::SUPER)
        k_unpack<DTYPE>(b, task % 4, t);
    else
        small_unpack<DTYPE>(tables, b, which * WARP * format::BLOCK_BYTES, t);
}

#endif
