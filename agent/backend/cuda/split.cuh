/* What attention of single tokens is made of: lanes have EACH elements of a token each (of f16 16
 * bytes), LANES lanes a token, and carry greatest score and sum of weights from one to the next. */
#ifndef HP_AGENT_BACKEND_CUDA_SPLIT_CUH
#define HP_AGENT_BACKEND_CUDA_SPLIT_CUH

#include "agent/backend/cuda/attention.cuh"
#include "agent/backend/cuda/forms.cuh"

static constexpr uint32_t EACH = 8;

/* What some positions of one head came to. */
struct split_sum {
    float greatest, total;
    float values[EACH];
};

static __device__ __forceinline__ void quad_widen(uint4 four, float *out)
{
    const unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[i * 2] = __half2float(__ushort_as_half((unsigned short)words[i]));
        out[i * 2 + 1] = __half2float(__ushort_as_half((unsigned short)(words[i] >> 16)));
    }
}

/* Of a block of Q8_0, whose bytes begin at a multiple of 2. */
static __device__ __forceinline__ void q8_widen(const uint8_t *head, uint32_t at, float *out)
{
    const uint16_t *block = (const uint16_t *)(head + at / KV_Q8_ELEMENTS * KV_Q8_BYTES),
                   *from = block + 1 + at % KV_Q8_ELEMENTS / 2;
    float scale = __half2float(__ushort_as_half(block[0]));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[i * 2] = scale * (float)(int8_t)from[i];
        out[i * 2 + 1] = scale * (float)(int8_t)(from[i] >> 8);
    }
}

/* A lane's elements of a token's keys or values. */
template <int FORMAT>
static __device__ __forceinline__ void elements_read(const uint8_t *head, uint32_t at, bool there,
                                                     float *out)
{
    if (!there)
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            out[i] = 0;
    else if (FORMAT == KV_F16)
        quad_widen(*(const uint4 *)(head + at * 2), out);
    else
        q8_widen(head, at, out);
}

/* a and what another found, whose greatest score and total are given; returns by what the other's
 * values are multiplied. */
static __device__ __forceinline__ float split_join(split_sum &a, float greatest, float total)
{
    float most = fmaxf(a.greatest, greatest), from = most == -INFINITY ? 0 : most,
          keep = expf(a.greatest - from), by = expf(greatest - from);
    a.greatest = most;
    a.total = a.total * keep + total * by;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        a.values[i] *= keep;
    return by;
}

/* Lanes that have the same elements of other tokens. */
template <int LANES> static __device__ __forceinline__ void lanes_join(split_sum &a)
{
    for (uint32_t by = LANES; by < WARP; by *= 2) {
        float greatest = __shfl_xor_sync((unsigned)ALL_LANES, a.greatest, (int)by),
              total = __shfl_xor_sync((unsigned)ALL_LANES, a.total, (int)by), others[EACH];
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            others[i] = __shfl_xor_sync((unsigned)ALL_LANES, a.values[i], (int)by);
        float of = split_join(a, greatest, total);
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            a.values[i] += others[i] * of;
    }
}

/* Some positions of each group of lanes, of which it sees those whose bits of `seen` are set. */
template <int LANES, int AHEAD>
static __device__ __forceinline__ void
positions_add(const gpu_attention &a, uint32_t seen, const float (*keys)[EACH],
              const float (*values)[EACH], const float *q, split_sum &sum)
{
    float scores[AHEAD], most = sum.greatest;
#pragma unroll
    for (uint32_t k = 0; k < AHEAD; k++) {
        scores[k] = 0;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            scores[k] += q[i] * keys[k][i];
    }
    for (uint32_t by = LANES / 2; by; by /= 2)
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++)
            scores[k] += __shfl_xor_sync((unsigned)ALL_LANES, scores[k], (int)by);
#pragma unroll
    for (uint32_t k = 0; k < AHEAD; k++) {
        scores[k] *= a.scale;
        if (a.cap != 0)
            scores[k] = a.cap * tanhf(scores[k] / a.cap);
        scores[k] = seen >> k & 1 ? scores[k] : -INFINITY;
        most = fmaxf(most, scores[k]);
    }
    float from = most == -INFINITY ? 0 : most, keep = expf(sum.greatest - from);
    sum.greatest = most;
    sum.total *= keep;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        sum.values[i] *= keep;
#pragma unroll
    for (uint32_t k = 0; k < AHEAD; k++) {
        float weight = expf(scores[k] - from);
        sum.total += weight;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            sum.values[i] += weight * values[k][i];
    }
}

/* Element `i` of a head of the block's row. */
static __device__ __forceinline__ void result_write(const gpu_attention &a, uint32_t row,
                                                    uint32_t head, uint32_t i, float value)
{
    a.out.data[row * a.out.stride + (uint64_t)head * a.head_dim + i] = value;
    form_put(a.formed, row, a.heads * a.head_dim, head * a.head_dim + i, value);
}

/* Rows that are made ready past the last are zero; a block has some heads of one. */
static __device__ __forceinline__ void zeros_make(const gpu_attention &a, uint32_t head0,
                                                  uint32_t heads)
{
    for (uint32_t i = threadIdx.x; i < heads * a.head_dim; i += blockDim.x)
        form_put(a.formed, blockIdx.x, a.heads * a.head_dim, head0 * a.head_dim + i, 0);
}

/* What warps of a block have found of one head. */
template <int LANES, int WARPS> struct warps_found {
    float greatests[WARPS], totals[WARPS], values[WARPS][LANES * EACH];
};

/* A warp's, there for all once this has returned; that of the head before has been read by all. */
template <int LANES, int WARPS>
static __device__ __forceinline__ void found_put(warps_found<LANES, WARPS> &f, split_sum &sum)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    lanes_join<LANES>(sum);
    __syncthreads();
    if (lane < LANES)
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            f.values[warp][lane * EACH + i] = sum.values[i];
    if (lane == 0) {
        f.greatests[warp] = sum.greatest;
        f.totals[warp] = sum.total;
    }
    __syncthreads();
}

/* Greatest score, and the sum of weights against it, from those of a sink on (-INFINITY: none). */
template <int LANES, int WARPS>
static __device__ __forceinline__ float2 found_join(const warps_found<LANES, WARPS> &f, float sink)
{
    float most = sink;
    for (uint32_t w = 0; w < WARPS; w++)
        most = fmaxf(most, f.greatests[w]);
    float from = most == -INFINITY ? 0 : most, total = expf(sink - from);
    for (uint32_t w = 0; w < WARPS; w++)
        total += f.totals[w] * expf(f.greatests[w] - from);
    return {most, total};
}

/* Element `i` of all warps' sums, against the greatest score. */
template <int LANES, int WARPS>
static __device__ __forceinline__ float found_value(const warps_found<LANES, WARPS> &f, uint32_t i,
                                                    float most)
{
    float from = most == -INFINITY ? 0 : most, sum = 0;
    for (uint32_t w = 0; w < WARPS; w++)
        sum += f.values[w][i] * expf(f.greatests[w] - from);
    return sum;
}

#endif
