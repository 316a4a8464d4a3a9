/* Rotation of a row's heads by a block. */
#ifndef HP_AGENT_BACKEND_CUDA_ROPE_CUH
#define HP_AGENT_BACKEND_CUDA_ROPE_CUH

#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/kernels.h"

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
        to[a] = x * c - y * sine;
        to[b] = x * sine + y * c;
    }
}

#endif
