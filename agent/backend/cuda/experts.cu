/* Mixtures of experts: which experts a row takes, products with matrices that rows choose, and what
 * comes of them. A product takes each pair of row and expert by itself: a warp an output. */
#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/formats.cuh"
#include "agent/backend/cuda/products.cuh"

static constexpr uint32_t EXPERT_WARPS = 4, ROW_THREADS = 256, USED_MOST = 64;

/* ---- routers ---- */

/* The greatest score of those that are not taken yet, the first of equals; of a whole warp. */
static __device__ __forceinline__ uint32_t expert_next(const float *scores, uint32_t n,
                                                       const float *chosen, uint32_t n_chosen)
{
    uint32_t best = n;
    float greatest = -INFINITY;
    for (uint32_t i = threadIdx.x; i < n; i += WARP) {
        bool taken = false;
        for (uint32_t k = 0; k < n_chosen; k++)
            taken = taken || (uint32_t)chosen[k] == i;
        if (!taken && (best == n || scores[i] > greatest)) {
            best = i;
            greatest = scores[i] == scores[i] ? scores[i] : -INFINITY;
        }
    }
    for (int by = WARP / 2; by; by /= 2) {
        float other = __shfl_xor_sync((unsigned)ALL_LANES, greatest, by);
        uint32_t at = __shfl_xor_sync((unsigned)ALL_LANES, best, by);
        if (at < n && (best == n || other > greatest || (other == greatest && at < best))) {
            best = at;
            greatest = other;
        }
    }
    return __shfl_sync((unsigned)ALL_LANES, best, 0);
}

/* A warp a row. */
__global__ void route_kernel(gpu_route how, gpu_rows in, gpu_rows out)
{
    __shared__ float chosen[USED_MOST];
    const float *scores = in.data + blockIdx.x * in.stride;
    float *to = out.data + blockIdx.x * out.stride, greatest = 0, total = 0, of_chosen = 0;
    for (uint32_t k = 0; k < how.used; k++) {
        uint32_t expert = expert_next(scores, how.experts, chosen, k);
        if (threadIdx.x == 0)
            chosen[k] = (float)expert;
        __syncwarp();
    }
    greatest = scores[(uint32_t)chosen[0]];
    for (uint32_t i = threadIdx.x; i < how.experts; i += WARP)
        total += expf(scores[i] - greatest);
    total = warp_sum(total);
    for (uint32_t k = 0; k < how.used; k++)
        of_chosen += expf(scores[(uint32_t)chosen[k]] - greatest) / total;
    float scale = how.scale / (how.renormalised ? of_chosen : 1);
    for (uint32_t k = threadIdx.x; k < how.used; k += WARP) {
        uint32_t at = 0; /* they rise, as the plain backend's */
        for (uint32_t j = 0; j < how.used; j++)
            at += chosen[j] < chosen[k];
        to[at] = chosen[k];
        to[how.used + at] = expf(scores[(uint32_t)chosen[k]] - greatest) / total * scale;
    }
}

/* A number below `n` that follows from the other two, as the plain backend's lot. */
static __device__ uint32_t lot_number(uint64_t row, uint64_t turn, uint32_t n)
{
    uint64_t x = (row * USED_MOST + turn + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)(((x ^ (x >> 31)) >> 32) * n >> 32);
}

/* A thread a row: experts in the order of the lot, those before them stepped over. */
__global__ void route_by_lot_kernel(gpu_route how, gpu_rows out, uint32_t rows)
{
    uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float *to = out.data + row * out.stride;
    for (uint32_t k = 0; k < how.used; k++) {
        uint32_t expert = lot_number(row, k, how.experts - k), below = 0;
        for (;;) { /* as many of those that are taken as lie at or below it */
            uint32_t n = 0;
            for (uint32_t j = 0; j < k; j++)
                n += (uint32_t)to[j] <= expert + below;
            if (n == below)
                break;
            below = n;
        }
        to[k] = (float)(expert + below);
        to[how.used + k] = 1.0f / (float)how.used;
    }
}

void gpu_route_run(struct CUstream_st *s, const struct gpu_route *how, struct gpu_rows in,
                   struct gpu_rows out, uint32_t rows)
{
    if (how->by_lot)
        CUDA_LAUNCH(route_by_lot_kernel, blocks_for(rows, ROW_THREADS), ROW_THREADS, s)
    (*how, out, rows);
    else CUDA_LAUNCH(route_kernel, rows, WARP, s)(*how, in, out);
}

/* ---- products ---- */

/* Outputs along x, pairs along y. */
template <int DTYPE> __global__ void expert_kernel(gpu_product p)
{
    uint32_t c = blockIdx.x * EXPERT_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float sum = 0, w[FORMAT_RUN];
    if (c >= p.outputs)
        return;
    gpu_pair pair = pair_of(p, blockIdx.y);
    if (!pair.here)
        return;
    const float *x = p.in.data + pair.row * p.in.stride + pair.first;
    if (p.turned) {
        const uint64_t bytes = DTYPE == DTYPE_F32 ? 4 : 2;
        for (uint32_t k = lane; k < p.inputs; k += WARP) {
            format_read<DTYPE>(pair.weight + ((uint64_t)k * p.outputs + c) * bytes, 0, 1, w);
            sum += x[k] * w[0];
        }
    } else {
        for (uint32_t k = lane * FORMAT_RUN; k < p.inputs; k += WARP * FORMAT_RUN) {
            uint32_t left = p.inputs - k < FORMAT_RUN ? p.inputs - k : FORMAT_RUN;
            format_read<DTYPE>(pair.weight + c * p.row_bytes, k, left, w);
            for (uint32_t i = 0; i < left; i++)
                sum += x[k + i] * w[i];
        }
    }
    sum = warp_sum(sum);
    if (lane == 0)
        pair_store(p, pair, c, sum);
}

void gpu_expert_product_run(struct CUstream_st *s, const struct gpu_product *p)
{
    dim3 grid(blocks_for(p->outputs, EXPERT_WARPS), p->rows * p->pairs.used);
#define EXPERT(d) CUDA_LAUNCH(expert_kernel<d>, grid, EXPERT_WARPS *WARP, s)(*p)
    FORMAT_SWITCH(p->dtype, EXPERT)
}

/* ---- what comes of them ---- */

__global__ void expert_sum_kernel(gpu_expert_sum how, gpu_rows in, gpu_rows route, gpu_rows base,
                                  gpu_rows out, uint32_t width)
{
    const float *x = in.data + blockIdx.x * in.stride,
                *chosen = route.data + blockIdx.x * route.stride, *weights = chosen + how.used;
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        float sum = base.data ? base.data[blockIdx.x * base.stride + i] : 0;
        for (uint32_t k = 0; k < how.used; k++)
            if (how.count == 0 || (uint32_t)chosen[k] - how.first < how.count)
                sum += weights[k] * x[k * width + i];
        out.data[blockIdx.x * out.stride + i] = sum;
    }
}

void gpu_expert_sum_run(struct CUstream_st *s, const struct gpu_expert_sum *how, struct gpu_rows in,
                        struct gpu_rows route, struct gpu_rows base, struct gpu_rows out,
                        struct gpu_shape shape)
{
    CUDA_LAUNCH(expert_sum_kernel, shape.rows, ROW_THREADS, s)
    (*how, in, route, base, out, shape.width);
}

__global__ void clamped_swiglu_kernel(gpu_rows gate, gpu_rows up, uint32_t step, float alpha,
                                      float limit, gpu_rows out, uint32_t width)
{
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        float g = fminf(gate.data[blockIdx.x * gate.stride + i * step], limit),
              u = up.data[blockIdx.x * up.stride + i * step];
        u = fmaxf(fminf(u, limit), -limit);
        out.data[blockIdx.x * out.stride + i] = (u + 1) * (g / (1.0f + expf(-alpha * g)));
    }
}

void gpu_clamped_swiglu(struct CUstream_st *s, struct gpu_rows gate, struct gpu_rows up,
                        uint32_t step, float alpha, float limit, struct gpu_rows out,
                        struct gpu_shape shape)
{
    CUDA_LAUNCH(clamped_swiglu_kernel, shape.rows, ROW_THREADS, s)
    (gate, up, step, alpha, limit, out, shape.width);
}

__global__ void heads_join_kernel(gpu_heads how, gpu_rows a, gpu_rows b, gpu_rows out,
                                  uint32_t width)
{
    uint32_t each = how.count[0] + how.count[1];
    for (uint32_t n = threadIdx.x; n < width; n += blockDim.x) {
        uint32_t head = n / each, i = n % each, which = i >= how.count[0];
        gpu_rows from = which ? b : a;
        out.data[blockIdx.x * out.stride + n] =
            from.data[blockIdx.x * from.stride + head * how.stride[which] + how.first[which] + i -
                      (which ? how.count[0] : 0)];
    }
}

void gpu_heads_join(struct CUstream_st *s, const struct gpu_heads *how, struct gpu_rows a,
                    struct gpu_rows b, struct gpu_rows out, struct gpu_shape shape)
{
    CUDA_LAUNCH(heads_join_kernel, shape.rows, ROW_THREADS, s)(*how, a, b, out, shape.width);
}
