/* One row by quantised weights, as decode_kernel multiplies it and to the bit what that finds, by
 * blocks that stay: each takes the outputs of many of decode_kernel's blocks, one after the other,
 * and its warps ask for the weights of the next outputs while they multiply those of the ones
 * before, so that memory has something to do all the time. Where that is faster tuning.c finds.
 *
 * A warp has PIECES of each of its outputs in shared memory or on their way to it, the first of
 * which it asks for before kernels before this one are over. */
#include "agent/backend/cuda/decode_tasks.cuh"

/* Shared memory of an output's piece, in 16 bytes. */
template <int DTYPE>
static constexpr uint32_t PIECE_ROOM = decode_format<DTYPE>::PIECE_BYTES / 16 + 1;

static constexpr uint32_t PIECES = 2;
/* A multiprocessor has registers for so many blocks and, of most formats, for
 * GPU_PERSISTENT_BLOCKS; Q6_K on Turing spills where the compiler is to make room for those. */
static constexpr uint32_t BLOCKS_LEAST = 4;

/* What a warp asks for next: a piece of its outputs in a block of all, which begin `lead` bytes
 * after `from`, a multiple of 16. */
struct decode_ahead {
    const uint8_t *from[DECODE_OUTPUTS];
    uint32_t lead[DECODE_OUTPUTS], block, piece;
};

/* A warp's first output of those that its block has. */
static __device__ __forceinline__ uint32_t output_first(const decode_place &at)
{
    return (at.block * DECODE_WARPS + threadIdx.x / WARP) * DECODE_OUTPUTS;
}

/* In place of outputs past the last, the last one is read, and not written. */
static __device__ __forceinline__ const uint8_t *output_weights(const decode_place &at,
                                                                uint64_t row_bytes, uint32_t c)
{
    return at.weight + (c < at.outputs ? c : at.outputs - 1) * row_bytes;
}

/* Blocks of whole 16 bytes begin at multiples of that. */
template <int DTYPE> static __device__ __forceinline__ uint32_t weights_lead(const uint8_t *row)
{
    return decode_format<DTYPE>::BLOCK_BYTES % 16 == 0 ? 0 : (uint32_t)((uintptr_t)row & 15);
}

template <int DTYPE>
static __device__ __forceinline__ void ahead_find(decode_ahead &a, const gpu_product &p,
                                                  uint32_t blocks)
{
    a.piece = 0;
    if (a.block >= blocks)
        return;
    const decode_place place = place_find<DECODE_WARPS * DECODE_OUTPUTS>(p, a.block);
#pragma unroll
    for (uint32_t o = 0; o < DECODE_OUTPUTS; o++) {
        const uint8_t *row = output_weights(place, p.row_bytes, output_first(place) + o);
        a.lead[o] = weights_lead<DTYPE>(row);
        a.from[o] = row - a.lead[o];
    }
}

/* Asks for a piece, and goes on to the next of `n`, or to the next outputs. */
template <int DTYPE>
static __device__ __forceinline__ void
ahead_fetch(decode_ahead &a, shared_at to, const gpu_product &p, uint32_t blocks, uint32_t n)
{
    if (a.block < blocks)
#pragma unroll
        for (uint32_t o = 0; o < DECODE_OUTPUTS; o++)
            piece_fetch<DTYPE>(to + o * PIECE_ROOM<DTYPE> * 16, a.from[o], a.lead[o],
                               (uint32_t)p.row_bytes, a.piece);
    async_group_end();
    if (++a.piece < n)
        return;
    a.block += gridDim.x;
    ahead_find<DTYPE>(a, p, blocks);
}

/* A piece, whose first task is `first` of its row's, by the row whose blocks' heads the lane's
 * first task has at `x`; an output's weights begin `lead` bytes after its room. */
template <int DTYPE>
static __device__ __forceinline__ void
piece_multiply(const decode_tables &tables, shared_at piece, const uint32_t *lead, const uint8_t *x,
               uint32_t inputs, uint32_t first, float (*sums)[1])
{
    using format = decode_format<DTYPE>;
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t k = 0; k < format::EACH; k++) {
        uint32_t j = k * WARP + lane;
        decode_task tasks[DECODE_OUTPUTS];
        if (first + j >= inputs / format::ELEMENTS)
            break;
#pragma unroll
        for (uint32_t o = 0; o < DECODE_OUTPUTS; o++)
            task_unpack<DTYPE>(tables, piece + o * PIECE_ROOM<DTYPE> * 16 + lead[o], k, tasks[o]);
        task_multiply<DTYPE, 1>(x + k * WARP * format::TASK_BLOCKS * INPUT_BLOCK_PART,
                                inputs / INPUT_BLOCK, tasks, sums);
    }
}

/* `blocks`: of all outputs, DECODE_WARPS * DECODE_OUTPUTS each. */
template <int DTYPE>
__global__ void __launch_bounds__(DECODE_WARPS *WARP, BLOCKS_LEAST)
    decode_persistent_kernel(gpu_product p, uint32_t blocks)
{
    using format = decode_format<DTYPE>;
    const uint32_t room = PIECE_ROOM<DTYPE>, turn = DECODE_OUTPUTS * room * 16;
    __shared__ uint4 pieces[DECODE_WARPS][PIECES][DECODE_OUTPUTS][room];
    shared_at own = shared_at_of(pieces[threadIdx.x / WARP]);
    const uint32_t n_tasks = p.inputs / format::ELEMENTS,
                   n = (n_tasks + format::PIECE_TASKS - 1) / format::PIECE_TASKS;
    const decode_tables tables = tables_make(own);
    decode_ahead ahead = {};
    uint32_t now = 0; /* where the piece lies that is multiplied next */
    ahead.block = blockIdx.x;
    ahead_find<DTYPE>(ahead, p, blocks);
#pragma unroll
    for (uint32_t i = 0; i < PIECES; i++)
        ahead_fetch<DTYPE>(ahead, own + i * turn, p, blocks, n);
    earlier_wait();
    for (uint32_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const decode_place place = place_find<DECODE_WARPS * DECODE_OUTPUTS>(p, block);
        const decode_result result = result_find<1>(place, p.rows, output_first(place));
        const uint8_t *x = p.numbers + task_block<DTYPE>(threadIdx.x % WARP) * INPUT_BLOCK_PART;
        float sums[DECODE_OUTPUTS][1] = {};
        uint32_t lead[DECODE_OUTPUTS];
#pragma unroll
        for (uint32_t o = 0; o < DECODE_OUTPUTS; o++)
            lead[o] =
                weights_lead<DTYPE>(output_weights(place, p.row_bytes, output_first(place) + o));
        for (uint32_t i = 0; i < n; i++) {
            async_groups_wait<(int)PIECES - 1>();
            __syncwarp();
            piece_multiply<DTYPE>(tables, own + now, lead, x, p.inputs, i * format::PIECE_TASKS,
                                  sums);
            x += format::PIECE_TASKS * format::TASK_BLOCKS * INPUT_BLOCK_PART;
            __syncwarp();
            ahead_fetch<DTYPE>(ahead, own + now, p, blocks, n);
            now = now + turn < PIECES * turn ? now + turn : 0;
        }
        sums_store<1>(place, result, BY<DTYPE>, sums);
    }
}

/* ---- for the host ---- */

uint32_t gpu_decode_blocks(const struct gpu_product *p)
{
    bool by_integers = p->form == GPU_FORM_INTEGERS || p->form == GPU_FORM_INTEGERS_BY_TURNS;
    return p->rows == 1 && !p->turned && p->numbers && by_integers
               ? place_blocks(*p, DECODE_WARPS * DECODE_OUTPUTS)
               : 0;
}

template <int DTYPE> static void persistent_launch(struct CUstream_st *s, const gpu_product &p)
{
    uint32_t blocks = gpu_decode_blocks(&p);
    dim3 grid(p.persistent_blocks < blocks ? p.persistent_blocks : blocks);
    CUDA_LAUNCH_EARLY(decode_persistent_kernel<DTYPE>, grid, DECODE_WARPS * WARP, s)(p, blocks);
}

void gpu_decode_persistent_run(struct CUstream_st *s, const struct gpu_product *p)
{
    switch (p->dtype) {
    case DTYPE_Q8_0: persistent_launch<DTYPE_Q8_0>(s, *p); break;
    case DTYPE_Q4_0: persistent_launch<DTYPE_Q4_0>(s, *p); break;
    case DTYPE_Q4_1: persistent_launch<DTYPE_Q4_1>(s, *p); break;
    case DTYPE_Q5_0: persistent_launch<DTYPE_Q5_0>(s, *p); break;
    case DTYPE_Q5_1: persistent_launch<DTYPE_Q5_1>(s, *p); break;
    case DTYPE_Q4_K: persistent_launch<DTYPE_Q4_K>(s, *p); break;
    case DTYPE_Q5_K: persistent_launch<DTYPE_Q5_K>(s, *p); break;
    case DTYPE_Q6_K: persistent_launch<DTYPE_Q6_K>(s, *p); break;
    case DTYPE_MXFP4: persistent_launch<DTYPE_MXFP4>(s, *p); break;
    default: break;
    }
}
