/* Where keys and values lie. */
#ifndef HP_AGENT_BACKEND_CUDA_ATTENTION_CUH
#define HP_AGENT_BACKEND_CUDA_ATTENTION_CUH

#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/kernels.h"
#include "common/kv_format.h"

static __device__ __forceinline__ uint8_t *
kv_at(const gpu_attention &a, const gpu_attention_row &row, uint32_t part, uint32_t position)
{
    uint64_t page = a.pages[row.pages + position / a.page_tokens];
    return a.pool + page * a.page_bytes +
           ((uint64_t)(a.block * a.parts + part) * a.page_tokens + position % a.page_tokens) *
               a.token_bytes;
}

#endif
