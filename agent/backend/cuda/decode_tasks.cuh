/* Products by quantised weights as integers, without tensor cores: what the kernels of decode.cu
 * and decode_persistent.cu have in common, so that both add up the same numbers in the same order.
 * A warp has two outputs, a piece of whose weights lies in shared memory. */
#ifndef HP_AGENT_BACKEND_CUDA_DECODE_TASKS_CUH
#define HP_AGENT_BACKEND_CUDA_DECODE_TASKS_CUH

#include "agent/backend/cuda/decode_formats.cuh"
#include "agent/backend/cuda/forms.cuh"
#include "agent/backend/cuda/kernels.h"
#include "agent/backend/cuda/products.cuh"

static constexpr uint32_t DECODE_WARPS = 4, DECODE_OUTPUTS = 2;

/* Outputs whose tasks a lane has in registers together: one where several rows are multiplied
 * without dp4a, which takes the registers of the other. */
#if !defined(CUDA_ON_CPU) && __CUDA_ARCH__ < 610
template <int ROWS> static constexpr uint32_t TOGETHER = ROWS > 1 ? 1 : DECODE_OUTPUTS;
#else
template <int ROWS> static constexpr uint32_t TOGETHER = DECODE_OUTPUTS;
#endif

/* Between them: or the compiler keeps what it has read of the rows in registers for the next. */
template <int ROWS> static __device__ __forceinline__ void together_end()
{
#ifndef CUDA_ON_CPU
    if (TOGETHER<ROWS> < DECODE_OUTPUTS)
        __threadfence_block();
#endif
}

/* The block of a task's first part. */
template <int DTYPE> static __device__ __forceinline__ uint32_t task_block(uint32_t task)
{
    return DTYPE == DTYPE_Q6_K ? task / 4 * 8 + task % 4 / 2 * 4
                               : task * decode_format<DTYPE>::TASK_BLOCKS;
}

/* By rows of so many blocks, the first of which has the head of the task's first block at `x`:
 * TOGETHER<ROWS> tasks. */
template <int DTYPE, int ROWS>
static __device__ __forceinline__ void task_multiply(const uint8_t *x, uint32_t blocks,
                                                     const decode_task *tasks, float (*sums)[ROWS])
{
    const uint32_t apart = blocks * INPUT_BLOCK_PART; /* heads, first bytes, others */
    using format = decode_format<DTYPE>;
    const uint32_t half = DTYPE == DTYPE_Q6_K ? threadIdx.x % 2 : 0; /* as its task's number */
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) {
#pragma unroll
        for (uint32_t k = 0; k < format::PARTS; k++) {
            const uint8_t *block = x + r * 3 * apart + k * INPUT_BLOCK_PART;
            float4 head = *(const float4 *)block;
            uint4 low = *(const uint4 *)(block + (1 + half) * apart),
                  high = format::WORDS == 8 ? *(const uint4 *)(block + 2 * apart) : uint4{};
            const unsigned own[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            float sum = DTYPE != DTYPE_Q6_K ? head.w
                        : half              ? head.z
                                            : head.y,
                  added = DTYPE == DTYPE_MXFP4 ? sum : ADDED<DTYPE> * sum;
#pragma unroll
            for (uint32_t o = 0; o < TOGETHER<ROWS>; o++) {
                int dot = 0;
#pragma unroll
                for (uint32_t i = 0; i < format::WORDS; i++)
                    dot = dot_of_4((int)tasks[o].words[k * format::WORDS + i], (int)own[i], dot);
                sums[o][r] += tasks[o].scales[k] * (ADDED<DTYPE> != 0 ? head.x * (float)dot + added
                                                                      : head.x * (float)dot);
                if (LEASTS<DTYPE>)
                    sums[o][r] += tasks[o].offsets[k] * sum;
            }
        }
    }
}

/* The result that a lane writes, and what is added to it, which is on its way while the warp
 * multiplies. */
struct decode_result {
    bool here;
    uint32_t row, output;
    float added;
};

template <int ROWS>
static __device__ __forceinline__ decode_result result_find(const decode_place &at, uint32_t rows,
                                                            uint32_t c0)
{
    uint32_t lane = threadIdx.x % WARP;
    decode_result r = {false, blockIdx.y * ROWS + lane / DECODE_OUTPUTS, c0 + lane % DECODE_OUTPUTS,
                       0};
    r.here = lane < DECODE_OUTPUTS * ROWS && r.output < at.outputs && r.row < rows;
    if (r.here)
        r.added = product_added(at, r.row, r.output);
    return r;
}

/* `by`: what all are multiplied by. */
template <int ROWS>
static __device__ __forceinline__ void sums_store(const decode_place &at, const decode_result &to,
                                                  float by, float (*sums)[ROWS])
{
    float own = 0;
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++)
#pragma unroll
        for (uint32_t o = 0; o < DECODE_OUTPUTS; o++) {
            float sum = warp_sum(sums[o][r]);
            own = threadIdx.x % WARP == r * DECODE_OUTPUTS + o ? sum : own;
        }
    if (to.here)
        at.out.data[to.row * at.out.stride + to.output] = own * by + to.added;
}

#endif
