/* Products of 2 to GPU_DECODE_ROWS rows with quantised weights, by tensor cores that multiply bytes
 * (capability 8.0 and later): what more rows cost is little beside reading the weights. A block of
 * threads has FRAGMENT_OUTPUTS outputs, of which each warp multiplies some pieces of all rows; what
 * they find is added up at the end. Weights go through shared memory, since blocks begin anywhere.
 */
#include "agent/backend/cuda/decode_fragments.cuh"
#include "agent/backend/cuda/kernels.h"
#include "agent/backend/cuda/products.cuh"
#include "agent/backend/cuda/tensor.cuh"

static constexpr uint32_t TENSOR_WARPS = 4, ROW_LANES = 4;

/* Of a warp: rows of weights that its lanes fetch and multiply, row lane / 4 and the eighth after
 * it. A row begins `lead` bytes after `from`, which is a multiple of 16. */
struct fragment_rows {
    const uint8_t *from[2];
    uint32_t lead[2], bytes;
};

static __device__ __forceinline__ fragment_rows rows_find(const decode_place &at,
                                                          uint64_t row_bytes, uint32_t c0)
{
    fragment_rows rows;
    rows.bytes = (uint32_t)row_bytes;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t c = c0 + threadIdx.x % WARP / ROW_LANES + h * 8;
        const uint8_t *row = at.weight + (c < at.outputs ? c : at.outputs - 1) * row_bytes;
        rows.lead[h] = (uint32_t)((uintptr_t)row & 15);
        rows.from[h] = row - rows.lead[h];
    }
    return rows;
}

/* Bytes that a piece lies after what is fetched of it, which begins at a multiple of 16. */
template <int DTYPE>
static __device__ __forceinline__ uint32_t piece_lead(const fragment_rows &rows, uint32_t h,
                                                      uint32_t piece)
{
    using format = fragment_format<DTYPE>;
    return format::AT_16 ? 0 : (rows.lead[h] + piece * format::PIECE_BYTES) & 15;
}

/* A piece on its way to shared memory: lanes of a row take 16 bytes each by turns. */
template <int DTYPE>
static __device__ __forceinline__ void rows_fetch(shared_at to, const fragment_rows &rows,
                                                  uint32_t piece)
{
    using format = fragment_format<DTYPE>;
    const uint32_t own = threadIdx.x % ROW_LANES * 16, row = threadIdx.x % WARP / ROW_LANES;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t lead = piece_lead<DTYPE>(rows, h, piece),
                 first = rows.lead[h] + piece * format::PIECE_BYTES - lead,
                 left = rows.lead[h] + rows.bytes - first, end = lead + format::PIECE_BYTES;
        const uint8_t *at = rows.from[h] + first + own;
        shared_at there = to + (row + h * 8) * format::ROOM * 16 + own;
        end = left < end ? left : end;
#pragma unroll
        for (uint32_t i = 0; i < format::ROOM * 16; i += ROW_LANES * 16)
            if (own + i < end)
                async_copy_16(there + i, at + i);
    }
}

/* ---- multiplying ---- */

/* What a warp finds: of outputs lane / 4 and the eighth after it, rows lane % 4 * 2 and the next.
 */
struct fragment_sums {
    float of[4];
};

/* Rows' numbers of a block of 32, as a lane has them. */
struct fragment_input {
    uint2 words;
    float4 heads; /* of its two rows: scale, what sums begin with by it */
    float2 seconds;
};

/* `seconds`: whether these are wanted. */
static __device__ __forceinline__ fragment_input input_read(const uint8_t *x, bool seconds)
{
    fragment_input in;
    in.words = ((const uint2 *)x)[threadIdx.x % WARP];
    in.heads = ((const float4 *)(x + FRAGMENT_HEADS))[threadIdx.x % ROW_LANES];
    if (seconds)
        in.seconds = ((const float2 *)(x + FRAGMENT_SECONDS))[threadIdx.x % ROW_LANES];
    return in;
}

/* A sum of integers by the scale of the first or the second row. */
static __device__ __forceinline__ float sum_scale(const fragment_input &x, bool second, int sum)
{
    return second ? fmaf(x.heads.z, __int_as_float(sum), x.heads.w)
                  : fmaf(x.heads.x, __int_as_float(sum), x.heads.y);
}

template <int DTYPE>
static __device__ __forceinline__ void part_multiply(const uint8_t *numbers, const fragment_part &t,
                                                     fragment_sums &sums)
{
    const bool begins = DTYPE == DTYPE_MXFP4;
    const fragment_input x = input_read(numbers, begins || LEASTS<DTYPE>);
    int first = begins ? __float_as_int(x.seconds.x) : SUM_BITS,
        second = begins ? __float_as_int(x.seconds.y) : SUM_BITS, found[4];
    const int begin[4] = {first, second, first, second};
    tensor_multiply_bytes<LEASTS<DTYPE>>(found, t.words, x.words.x, x.words.y, begin);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sums.of[i] += t.scales[i / 2] * sum_scale(x, i % 2, found[i]);
        if (LEASTS<DTYPE>)
            sums.of[i] += t.offsets[i / 2] * (i % 2 ? x.seconds.y : x.seconds.x);
    }
}

/* Q6_K: each half of 32 has a scale of its own. */
static __device__ __forceinline__ void halves_multiply(const uint8_t *numbers,
                                                       const unsigned *words, const float2 *scales,
                                                       fragment_sums &sums)
{
    const int begin[4] = {SUM_BITS, SUM_BITS, SUM_BITS, SUM_BITS};
    const fragment_input x = input_read(numbers, false);
    int low[4], high[4];
    tensor_multiply_16_bytes(low, words, x.words.x, begin);
    tensor_multiply_16_bytes(high, words + 2, x.words.y, begin);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sums.of[i] += scales[i / 2].x * sum_scale(x, i % 2, low[i]);
        sums.of[i] += scales[i / 2].y * sum_scale(x, i % 2, high[i]);
    }
}

/* Block `j` of a piece. */
template <int DTYPE>
static __device__ __forceinline__ void
small_block(const decode_tables &tables, const fragment_masks &masks, const small_row<DTYPE> *rows,
            const uint8_t *x, uint32_t j, fragment_sums &sums)
{
    const uint32_t own = threadIdx.x % ROW_LANES * 4;
    fragment_part t;
    small_part<DTYPE>(tables, masks, rows[0], j, own, 0, t);
    small_part<DTYPE>(tables, masks, rows[1], j, own, 1, t);
    part_multiply<DTYPE>(x + j * FRAGMENT_BLOCK_BYTES, t, sums);
}

/* Two rows' blocks of 32 in a piece; WHOLE: as many as it has room for, else `n`. */
template <int DTYPE, bool WHOLE>
static __device__ __forceinline__ void
small_piece(const decode_tables &tables, const fragment_masks &masks, const shared_at *b,
            const uint8_t *x, uint32_t n, fragment_sums &sums)
{
    small_row<DTYPE> rows[2];
    rows[0].find(b[0], threadIdx.x % ROW_LANES * 4);
    rows[1].find(b[1], threadIdx.x % ROW_LANES * 4);
#pragma unroll
    for (uint32_t j = 0; j < fragment_format<DTYPE>::BLOCKS; j++)
        if (WHOLE || j < n)
            small_block<DTYPE>(tables, masks, rows, x, j, sums);
}

/* A block of 256 of Q4_K or Q5_K. `scales`: of the lane's two rows. */
template <int DTYPE>
static __device__ __forceinline__ void k_piece(const shared_at *b, float4 *const *scales,
                                               const uint8_t *x, fragment_sums &sums)
{
    const uint32_t own = threadIdx.x % ROW_LANES * 4;
    unsigned fifths[2][2] = {};
#pragma unroll
    for (uint32_t h = 0; h < 2 && DTYPE == DTYPE_Q5_K; h++) {
        fifths[h][0] = shared_word(b[h] + 16 + own);
        fifths[h][1] = shared_word(b[h] + 32 + own);
    }
#pragma unroll
    for (uint32_t pair = 0; pair < 4; pair++) {
        unsigned words[2][2][2]; /* of a row, of one of the two */
        float4 by[2];
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            by[h] = scales[h][pair];
            k_pair<DTYPE>(b[h], pair, own, fifths[h], words[h]);
        }
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const fragment_part t = {
                {words[0][i][0], words[1][i][0], words[0][i][1], words[1][i][1]},
                {i ? by[0].z : by[0].x, i ? by[1].z : by[1].x},
                {i ? by[0].w : by[0].y, i ? by[1].w : by[1].y}};
            part_multiply<DTYPE>(x + (pair * 2 + i) * FRAGMENT_BLOCK_BYTES, t, sums);
        }
    }
}

static __device__ __forceinline__ void q6_k_piece(const fragment_masks &masks, const shared_at *b,
                                                  float4 *const *scales, const uint8_t *x,
                                                  fragment_sums &sums)
{
    const uint32_t own = threadIdx.x % ROW_LANES * 4;
    const words_place places[2] = {words_at(b[0] + own), words_at(b[1] + own)};
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        unsigned words[2][4][2];
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
            q6_k_half(places[h], half, masks, words[h]);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t j = half * 4 + i;
            const unsigned own_words[4] = {words[0][i][0], words[1][i][0], words[0][i][1],
                                           words[1][i][1]};
            const float2 by[2] = {((const float2 *)scales[0])[j], ((const float2 *)scales[1])[j]};
            halves_multiply(x + j * FRAGMENT_BLOCK_BYTES, own_words, by, sums);
        }
    }
}

/* ---- all ---- */

/* What the warps have found, row by row; `room`: of a warp, [outputs][rows]. */
static __device__ __forceinline__ void sums_join(const decode_place &at, uint32_t rows, uint32_t c0,
                                                 float by, const fragment_sums &sums,
                                                 float (*room)[FRAGMENT_OUTPUTS * FRAGMENT_ROWS])
{
    uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        room[threadIdx.x / WARP][(lane / ROW_LANES + i / 2 * 8) * FRAGMENT_ROWS +
                                 lane % ROW_LANES * 2 + i % 2] = sums.of[i];
    __syncthreads();
    uint32_t row = threadIdx.x / FRAGMENT_OUTPUTS, c = threadIdx.x % FRAGMENT_OUTPUTS;
    float sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < TENSOR_WARPS; w++)
        sum += room[w][c * FRAGMENT_ROWS + row];
    if (row < rows && c0 + c < at.outputs)
        product_store(at, row, c0 + c, sum * by);
}

/* A warp's pieces, of which STAGES are on their way or being multiplied. */
template <int DTYPE> struct fragment_pieces {
    using format = fragment_format<DTYPE>;
    static constexpr uint32_t STAGE = FRAGMENT_OUTPUTS * format::ROOM * 16;
    fragment_rows rows;
    shared_at room;
    uint32_t n, piece, turn; /* pieces of a row, the next to be multiplied, and its stage */

    __device__ __forceinline__ void begin(const fragment_rows &of, uint32_t n_blocks, shared_at own)
    {
        rows = of;
        room = own;
        n = (n_blocks + format::BLOCKS - 1) / format::BLOCKS;
        piece = threadIdx.x / WARP;
        turn = 0;
#pragma unroll
        for (uint32_t i = 0; i + 1 < format::STAGES; i++) {
            if (piece + i * TENSOR_WARPS < n)
                rows_fetch<DTYPE>(room + i * STAGE, rows, piece + i * TENSOR_WARPS);
            async_group_end();
        }
    }

    /* The piece is there for all lanes, and another is on its way: where it lies in the lane's two
     * rows. */
    __device__ __forceinline__ void wait(shared_at *b) const
    {
        uint32_t next = piece + (format::STAGES - 1) * TENSOR_WARPS;
        if (next < n)
            rows_fetch<DTYPE>(room + (turn ? turn - 1 : format::STAGES - 1) * STAGE, rows, next);
        async_group_end();
        async_groups_wait<format::STAGES - 1>();
        __syncwarp();
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
            b[h] = room + turn * STAGE +
                   (threadIdx.x % WARP / ROW_LANES + h * 8) * format::ROOM * 16 +
                   piece_lead<DTYPE>(rows, h, piece);
    }

    /* All lanes have read it: each has come to the last multiplication, which waits for all. */
    __device__ __forceinline__ void leave()
    {
        piece += TENSOR_WARPS;
        turn = turn + 1 < format::STAGES ? turn + 1 : 0;
    }
};

template <int DTYPE>
__global__ void __launch_bounds__(TENSOR_WARPS *WARP) decode_tensor_kernel(gpu_product p)
{
#ifdef TENSOR_BYTES
    using format = fragment_format<DTYPE>;
    const bool super = decode_format<DTYPE>::SUPER;
    __shared__ uint4 room[TENSOR_WARPS][format::STAGES][FRAGMENT_OUTPUTS][format::ROOM];
    __shared__ float4 scales[TENSOR_WARPS][super ? FRAGMENT_OUTPUTS : 1][4];
    __shared__ float found[TENSOR_WARPS][FRAGMENT_OUTPUTS * FRAGMENT_ROWS];
    const decode_place place = place_find<FRAGMENT_OUTPUTS>(p, blockIdx.x);
    const uint8_t *x = p.numbers;
    uint32_t warp = threadIdx.x / WARP, row = threadIdx.x % WARP / ROW_LANES,
             c0 = place.block * FRAGMENT_OUTPUTS, n_blocks = p.inputs / INPUT_BLOCK,
             whole = n_blocks / format::BLOCKS;
    float4 *by[2] = {scales[warp][super ? row : 0], scales[warp][super ? row + 8 : 0]};
    const decode_tables tables = tables_make(shared_at_of(room[warp]));
    const fragment_masks masks = masks_make(shared_at_of(room[warp]));
    fragment_pieces<DTYPE> pieces;
    fragment_sums sums = {};
    shared_at b[2];
    pieces.begin(rows_find(place, p.row_bytes, c0), n_blocks, shared_at_of(room[warp]));
    earlier_wait();
#pragma unroll 1
    while (pieces.piece < whole) {
        const uint8_t *own = x + (uint64_t)pieces.piece * format::BLOCKS * FRAGMENT_BLOCK_BYTES;
        pieces.wait(b);
        if constexpr (super) {
            scales_make<DTYPE>(b[0], threadIdx.x % ROW_LANES, by[0]);
            scales_make<DTYPE>(b[1], threadIdx.x % ROW_LANES, by[1]);
            __syncwarp();
        }
        if constexpr (DTYPE == DTYPE_Q6_K)
            q6_k_piece(masks, b, by, own, sums);
        else if constexpr (super)
            k_piece<DTYPE>(b, by, own, sums);
        else
            small_piece<DTYPE, true>(tables, masks, b, own, 0, sums);
        pieces.leave();
    }
    if constexpr (!super) {
        if (pieces.piece < pieces.n) { /* the last is not whole */
            uint32_t before = whole * format::BLOCKS;
            pieces.wait(b);
            small_piece<DTYPE, false>(tables, masks, b, x + (uint64_t)before * FRAGMENT_BLOCK_BYTES,
                                      n_blocks - before, sums);
        }
    }
    sums_join(place, p.rows, c0, FRAGMENT_BY<DTYPE>, sums, found);
#endif
}

/* ---- for the host ---- */

template <int DTYPE> static void tensor_launch(struct CUstream_st *s, const gpu_product &p)
{
    CUDA_LAUNCH_EARLY(decode_tensor_kernel<DTYPE>, place_blocks(p, FRAGMENT_OUTPUTS),
                      TENSOR_WARPS * WARP, s)
    (p);
}

void gpu_decode_tensor_run(struct CUstream_st *s, const struct gpu_product *p)
{
    switch (p->dtype) {
    case DTYPE_Q8_0: tensor_launch<DTYPE_Q8_0>(s, *p); break;
    case DTYPE_Q4_0: tensor_launch<DTYPE_Q4_0>(s, *p); break;
    case DTYPE_Q4_1: tensor_launch<DTYPE_Q4_1>(s, *p); break;
    case DTYPE_Q5_0: tensor_launch<DTYPE_Q5_0>(s, *p); break;
    case DTYPE_Q5_1: tensor_launch<DTYPE_Q5_1>(s, *p); break;
    case DTYPE_Q4_K: tensor_launch<DTYPE_Q4_K>(s, *p); break;
    case DTYPE_Q5_K: tensor_launch<DTYPE_Q5_K>(s, *p); break;
    case DTYPE_Q6_K: tensor_launch<DTYPE_Q6_K>(s, *p); break;
    case DTYPE_MXFP4: tensor_launch<DTYPE_MXFP4>(s, *p); break;
    default: break;
    }
}
