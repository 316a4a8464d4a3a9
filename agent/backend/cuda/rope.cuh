/* Rotation of a row's heads by a block. */
#ifndef HP_AGENT_BACKEND_CUDA_ROPE_CUH
#define HP_AGENT_BACKEND_CUDA_ROPE_CUH

#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/kernels.h"

/* The two elements of a pair, each rounded as everybody rounds it. */
static __device__ __forceinline__ float rope_first(float x, float y, float c, float sine)
{
    return fmaf(x, c, -__fmul_rn(y, sine));
}

static __device__ __forceinline__ float rope_second(float x, float y, float c, float sine)
{
    return fmaf(x, sine, __fmul_rn(y, c));
}

/* Element `e` of a head alone; all is read whatever it is, so that many may be on their way. */
static __device__ __forceinline__ float rope_element(const gpu_rope &how, const float *in,
                                                     const float *turn, uint32_t e)
{
    uint32_t own = e - how.first;
    bool turned = e >= how.first && own < 2 * how.pairs,
         second = how.step == 1 ? own >= how.pairs : own % 2 == 1;
    uint32_t i = !turned         ? 0
                 : how.step != 1 ? own / 2
                 : second        ? own - how.pairs
                                 : own,
             a = turned ? how.first + i * how.step : e;
    float x = in[a], y = in[turned ? a + how.partner : e], c = turn[i * 2], sine = turn[i * 2 + 1],
          value = second ? rope_second(x, y, c, sine) : rope_first(x, y, c, sine);
    return turned ? value : x;
}

/* Heads from `first` to `end`: elements that rotate are a thread's pair each; the others are one
 * thread's each. */
static __device__ __forceinline__ void rope_row(const gpu_rope &how, const float *in,
                                                const float *turn, float *out, uint32_t first,
                                                uint32_t end)
{
    uint32_t turned = 2 * how.pairs, each = how.head_dim - how.pairs;
    for (uint32_t n = first * each + threadIdx.x; n < end * each; n += blockDim.x) {
        uint32_t i = n % each, head = n / each * how.head_dim;
        const float *from = in + head;
        float *to = out + head;
        if (i >= how.pairs) {
            uint32_t rest = i - how.pairs, at = rest < how.first ? rest : rest + turned;
            to[at] = from[at];
            continue;
        }
        uint32_t a = how.first + i * how.step, b = a + how.partner;
        float c = turn[i * 2], sine = turn[i * 2 + 1], x = from[a], y = from[b];
        to[a] = rope_first(x, y, c, sine);
        to[b] = rope_second(x, y, c, sine);
    }
}

#endif
