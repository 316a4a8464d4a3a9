/* What all products end with. */
#ifndef HP_AGENT_BACKEND_CUDA_PRODUCTS_CUH
#define HP_AGENT_BACKEND_CUDA_PRODUCTS_CUH

#include "agent/backend/cuda/kernels.h"

/* ---- several matrices ---- */

/* That of a block of all, and which of its own blocks it is. */
struct decode_place {
    const uint8_t *weight;
    uint32_t outputs, block;
    gpu_rows addend, out;
    const float *bias;
};

/* EACH: outputs of a block. */
template <uint32_t EACH>
static __device__ __forceinline__ decode_place place_find(const gpu_product &p, uint32_t block)
{
    decode_place at = {p.weight, p.outputs, block, p.addend, p.out, p.bias};
    uint32_t before = (p.outputs + EACH - 1) / EACH;
#pragma unroll
    for (uint32_t i = 0; i < GPU_PRODUCT_MORE; i++) {
        if (i >= p.n_more || block < before)
            break;
        at = {p.more[i].weight, p.more[i].outputs, block - before,
              p.more[i].addend, p.more[i].out,     p.more[i].bias};
        before += (p.more[i].outputs + EACH - 1) / EACH;
    }
    return at;
}

/* Of all its matrices. */
static inline unsigned place_blocks(const gpu_product &p, uint32_t each)
{
    unsigned n = blocks_for(p.outputs, each);
    for (uint32_t i = 0; i < p.n_more; i++)
        n += blocks_for(p.more[i].outputs, each);
    return n;
}

/* ---- pairs ---- */

/* Where a pair of a row and one of its matrices has its parts. */
struct gpu_pair {
    const uint8_t *weight;
    uint64_t row;
    uint32_t slot, matrix, first;
    bool here; /* the weight has its matrix */
};

static __device__ __forceinline__ gpu_pair pair_of(const gpu_product &p, uint32_t pair)
{
    gpu_pair at;
    at.row = pair / p.pairs.used;
    at.slot = pair % p.pairs.used;
    at.matrix =
        p.pairs.chosen ? (uint32_t)p.pairs.chosen[at.row * p.pairs.stride + at.slot] : at.slot;
    at.first = p.pairs.first + at.slot * p.pairs.step;
    uint32_t own = at.matrix - p.pairs.first_matrix;
    at.here = p.pairs.matrices == 0 || own < p.pairs.matrices;
    at.weight = p.weight + own * p.pairs.bytes;
    return at;
}

static __device__ __forceinline__ void pair_store(const gpu_product &p, const gpu_pair &at,
                                                  uint32_t c, float sum)
{
    if (p.bias)
        sum += p.bias[(uint64_t)at.matrix * p.outputs + c];
    p.out.data[at.row * p.out.stride + at.slot * p.outputs + c] = sum;
}

/* What is added to a result; `p`: a product, or one of several. */
template <typename P>
static __device__ __forceinline__ float product_added(const P &p, uint32_t r, uint32_t c)
{
    float added = p.addend.data ? p.addend.data[r * p.addend.stride + c] : 0;
    return p.bias ? added + p.bias[c] : added;
}

template <typename P>
static __device__ __forceinline__ void product_store(const P &p, uint32_t r, uint32_t c, float sum)
{
    p.out.data[r * p.out.stride + c] = sum + product_added(p, r, c);
}

#endif
