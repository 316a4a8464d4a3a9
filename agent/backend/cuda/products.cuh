/* What all products end with. */
#ifndef HP_AGENT_BACKEND_CUDA_PRODUCTS_CUH
#define HP_AGENT_BACKEND_CUDA_PRODUCTS_CUH

#include "agent/backend/cuda/kernels.h"

static __device__ __forceinline__ void product_store(const gpu_product &p, uint32_t r, uint32_t c,
                                                     float sum)
{
    if (p.addend.data)
        sum += p.addend.data[r * p.addend.stride + c];
    if (p.bias)
        sum += p.bias[c];
    p.out.data[r * p.out.stride + c] = sum;
}

#endif
