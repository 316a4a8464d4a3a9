/* Weights as f16 or bf16, for products of many rows: a warp brings a piece of a row to shared
 * memory as decode does, and its lanes write what their tasks hold, 16 bytes at a time. */
#include "agent/backend/cuda/decode_formats.cuh"
#include "agent/backend/cuda/kernels.h"

static constexpr uint32_t EXPAND_WARPS = 4, EXPAND_THREADS = EXPAND_WARPS * WARP;

static __device__ __forceinline__ unsigned half_bits(float v, bool bf16)
{
    if (bf16) {
        unsigned bits = __float_as_uint(v);
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
    v = v > 65504.0f ? 65504.0f : v;
    return __half_as_ushort(__float2half_rn(v < -65504.0f ? -65504.0f : v));
}

/* Where 8 elements of a piece wait in shared memory, so that neither lanes that have a task each
 * nor those that have neighbours meet in a bank. */
static __device__ __forceinline__ uint32_t eight_place(uint32_t eight)
{
    return eight ^ (eight / 8 % 8);
}

static __device__ __forceinline__ void eight_put(uint4 *halves, uint32_t eight, const float *v,
                                                 bool bf16)
{
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        words[i] = half_bits(v[i * 2], bf16) | half_bits(v[i * 2 + 1], bf16) << 16;
    halves[eight_place(eight)] = {words[0], words[1], words[2], words[3]};
}

/* A part of a task: 16 or 32 elements. */
template <int DTYPE>
static __device__ __forceinline__ void part_put(uint4 *halves, uint32_t eight, const decode_task &t,
                                                uint32_t part, bool bf16)
{
    const uint32_t n = decode_format<DTYPE>::WORDS * 4;
    float values[n];
#pragma unroll
    for (uint32_t i = 0; i < n; i++) {
        int byte = (int8_t)(t.words[part * (n / 4) + i / 4] >> i % 4 * 8);
        values[DTYPE == DTYPE_MXFP4 ? i / 2 + i % 2 * 16 : i] =
            LEASTS<DTYPE> ? t.scales[part] * (float)byte + t.offsets[part]
                          : t.scales[part] * (BY<DTYPE> * ((float)byte + ADDED<DTYPE>));
    }
#pragma unroll
    for (uint32_t i = 0; i < n; i += 8)
        eight_put(halves, eight + i / 8, values + i, bf16);
}

/* Elements from the begin of a piece to that of a task's part. */
template <int DTYPE>
static __device__ __forceinline__ uint32_t part_place(uint32_t task, uint32_t part)
{
    using format = decode_format<DTYPE>;
    uint32_t quarter = task % format::BLOCK_TASKS, block = task - quarter;
    return block * format::ELEMENTS + (DTYPE == DTYPE_Q6_K
                                           ? quarter / 2 * 128 + quarter % 2 * 16 + part * 32
                                           : quarter * 64 + part * 32);
}

/* Pieces along x, rows along y. */
template <int DTYPE>
__global__ void __launch_bounds__(EXPAND_THREADS)
    expand_kernel(const uint8_t *rows, uint64_t row_bytes, uint32_t n_rows, uint32_t width,
                  uint16_t *out, bool bf16, const uint32_t *counts, uint32_t rows_each,
                  uint32_t first_row)
{
    using format = decode_format<DTYPE>;
    const uint32_t room = format::PIECE_BYTES / 16 + 1,
                   eights = format::PIECE_TASKS * format::ELEMENTS / 8;
    __shared__ uint4 pieces[EXPAND_WARPS][room], halves[EXPAND_WARPS][eights];
    uint4 *mine = halves[threadIdx.x / WARP];
    shared_at own = shared_at_of(pieces[threadIdx.x / WARP]);
    uint32_t lane = threadIdx.x % WARP, row = blockIdx.y * EXPAND_WARPS + threadIdx.x / WARP,
             n_tasks = width / format::ELEMENTS, first_task = blockIdx.x * format::PIECE_TASKS;
    if (row >= n_rows || (counts && counts[(first_row + row) / rows_each] == 0))
        return;
    const uint8_t *from = rows + row * row_bytes;
    uint32_t lead = (uint32_t)((uintptr_t)from & 15);
    piece_fetch<DTYPE>(own, from - lead, lead, (uint32_t)row_bytes, blockIdx.x);
    async_group_end();
    async_groups_wait<0>();
    __syncwarp();
#pragma unroll
    for (uint32_t k = 0; k < format::EACH; k++) {
        uint32_t task = k * WARP + lane;
        decode_task t;
        if (first_task + task >= n_tasks)
            break;
        task_unpack<DTYPE>(tables_make(own), own + lead, k, t);
#pragma unroll
        for (uint32_t part = 0; part < format::PARTS; part++)
            part_put<DTYPE>(mine, part_place<DTYPE>(task, part) / 8, t, part, bf16);
    }
    __syncwarp();
    uint32_t elements = (n_tasks - first_task) * format::ELEMENTS;
    uint4 *to = (uint4 *)(out + (uint64_t)row * width + first_task * format::ELEMENTS);
#pragma unroll
    for (uint32_t i = 0; i < eights; i += WARP)
        if ((i + lane) * 8 < elements)
            to[i + lane] = mine[eight_place(i + lane)];
}

/* BF16 for a GPU that multiplies f16 alone. */
__global__ void bf16_turn_kernel(const uint16_t *in, uint64_t n, uint16_t *out)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        out[i] = (uint16_t)half_bits(__uint_as_float((unsigned)in[i] << 16), false);
}

template <int DTYPE> static void expand_launch(struct CUstream_st *s, const struct gpu_expansion *e)
{
    uint32_t tasks = e->width / decode_format<DTYPE>::ELEMENTS;
    for (uint32_t r = 0; r < e->rows;) {
        uint32_t most = 65535 * EXPAND_WARPS, n = e->rows - r < most ? e->rows - r : most;
        dim3 grid(blocks_for(tasks, decode_format<DTYPE>::PIECE_TASKS),
                  blocks_for(n, EXPAND_WARPS));
        CUDA_LAUNCH(expand_kernel<DTYPE>, grid, EXPAND_THREADS, s)
        (e->weight + r * e->row_bytes, e->row_bytes, n, e->width,
         (uint16_t *)e->out + (uint64_t)r * e->width, e->bf16, e->counts, e->rows_each, r);
        r += n;
    }
}

void gpu_expand(struct CUstream_st *s, const struct gpu_expansion *e)
{
    uint64_t n = (uint64_t)e->rows * e->width;
    switch (e->dtype) {
    case DTYPE_BF16:
        CUDA_LAUNCH(bf16_turn_kernel, blocks_for(n, 256 * 8), 256, s)
        ((const uint16_t *)e->weight, n, (uint16_t *)e->out);
        break;
    case DTYPE_Q8_0: expand_launch<DTYPE_Q8_0>(s, e); break;
    case DTYPE_Q4_0: expand_launch<DTYPE_Q4_0>(s, e); break;
    case DTYPE_Q4_1: expand_launch<DTYPE_Q4_1>(s, e); break;
    case DTYPE_Q5_0: expand_launch<DTYPE_Q5_0>(s, e); break;
    case DTYPE_Q5_1: expand_launch<DTYPE_Q5_1>(s, e); break;
    case DTYPE_Q4_K: expand_launch<DTYPE_Q4_K>(s, e); break;
    case DTYPE_Q5_K: expand_launch<DTYPE_Q5_K>(s, e); break;
    case DTYPE_Q6_K: expand_launch<DTYPE_Q6_K>(s, e); break;
    case DTYPE_MXFP4: expand_launch<DTYPE_MXFP4>(s, e); break;
    default: break;
    }
}
