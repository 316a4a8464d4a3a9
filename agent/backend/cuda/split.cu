/* Attention of single tokens over keys and values in f16 or q8_0: a block takes a row, the heads
 * that share keys, and a part of the positions that the row sees, so that one long sequence keeps a
 * whole GPU busy (Dao et al., Flash-Decoding). Lanes have 8 elements of a token each (of f16 16
 * bytes), 8, 16 or 32 lanes a token: those past the end of a head have zeros. What parts found is
 * joined by a second kernel. */
#include "agent/backend/cuda/async.cuh"
#include "agent/backend/cuda/attention.cuh"
#include "agent/backend/cuda/forms.cuh"

static constexpr uint32_t SPLIT_WARPS = 4, SPLIT_THREADS = SPLIT_WARPS * WARP, EACH = 8;

/* What some positions of one head came to. */
struct split_sum {
    float greatest, total;
    float values[EACH];
};

static __device__ __forceinline__ void halves_widen(const uint8_t *from, float *out)
{
    uint4 four = *(const uint4 *)from;
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
        halves_widen(head + at * 2, out);
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

/* Warps' sums, one head after the other, to where the second kernel finds them. */
template <int LANES, int GROUP>
static __device__ __forceinline__ void sums_write(const gpu_attention &a, uint32_t head0,
                                                  uint32_t heads, split_sum *sums)
{
    __shared__ float greatests[SPLIT_WARPS], totals[SPLIT_WARPS], values[SPLIT_WARPS][LANES * EACH];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, dim = a.head_dim;
#pragma unroll
    for (uint32_t g = 0; g < GROUP; g++) {
        if (g >= heads)
            break;
        lanes_join<LANES>(sums[g]);
        __syncthreads();
        if (lane < LANES)
#pragma unroll
            for (uint32_t i = 0; i < EACH; i++)
                values[warp][lane * EACH + i] = sums[g].values[i];
        if (lane == 0) {
            greatests[warp] = sums[g].greatest;
            totals[warp] = sums[g].total;
        }
        __syncthreads();
        float most = -INFINITY, total = 0;
        for (uint32_t w = 0; w < SPLIT_WARPS; w++)
            most = fmaxf(most, greatests[w]);
        float from = most == -INFINITY ? 0 : most,
              *to = a.parts_found +
                    (((uint64_t)blockIdx.x * a.heads + head0 + g) * a.splits + blockIdx.z) *
                        (dim + 2);
        for (uint32_t w = 0; w < SPLIT_WARPS; w++)
            total += totals[w] * expf(greatests[w] - from);
        for (uint32_t i = threadIdx.x; i < dim; i += SPLIT_THREADS) {
            float sum = 0;
            for (uint32_t w = 0; w < SPLIT_WARPS; w++)
                sum += values[w][i] * expf(greatests[w] - from);
            to[2 + i] = sum;
        }
        if (threadIdx.x == 0) {
            to[0] = most;
            to[1] = total;
        }
    }
}

/* Positions of a part: as many as all parts need, and no fewer than are worth one. What the row
 * sees may take fewer parts than there is room for. */
static __device__ __forceinline__ uint32_t part_tokens(const gpu_attention &a, uint32_t seen)
{
    uint32_t each = (seen + a.splits - 1) / a.splits;
    return each < GPU_SPLIT_LEAST ? (uint32_t)GPU_SPLIT_LEAST : each;
}

/* Rows along x, heads that share keys along y, parts along z. */
template <int FORMAT, int LANES, int GROUP>
__global__ void __launch_bounds__(SPLIT_THREADS, GROUP == 1 ? 4 : 3) split_kernel(gpu_attention a)
{
    constexpr uint32_t step = SPLIT_THREADS / LANES, ahead = GROUP == 1 ? 4 : 2;
    earlier_wait();
    gpu_attention_row row = a.rows[a.n_tiled + blockIdx.x];
    uint32_t of_group = a.heads / a.kv_heads, groups = (of_group + GROUP - 1) / GROUP,
             kv_head = blockIdx.y / groups,
             head0 = kv_head * of_group + blockIdx.y % groups * GROUP,
             heads = (kv_head + 1) * of_group - head0, seen = row.last - row.first + 1,
             each = part_tokens(a, seen), first = row.first + blockIdx.z * each,
             end = first + each < row.last + 1 ? first + each : row.last + 1,
             at = threadIdx.x % LANES * EACH;
    bool has = at < a.head_dim;
    float q[GROUP][EACH];
    split_sum sums[GROUP];
    if (first > row.last)
        return;
#pragma unroll
    for (uint32_t g = 0; g < GROUP; g++) {
        const float *query =
            a.q.data + row.row * a.q.stride + (uint64_t)(head0 + (g < heads ? g : 0)) * a.head_dim;
        sums[g].greatest = -INFINITY;
        sums[g].total = 0;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            q[g][i] = has ? query[at + i] : 0;
            sums[g].values[i] = 0;
        }
    }
    for (uint32_t p0 = first; p0 < end; p0 += ahead * step) {
        uint64_t offset = kv_head * a.head_bytes;
        float keys[ahead][EACH], values[ahead][EACH];
        uint32_t there = 0;
#pragma unroll
        for (uint32_t k = 0; k < ahead; k++) {
            uint32_t p = p0 + k * step + threadIdx.x / LANES;
            there |= (p < end ? 1u : 0u) << k;
            p = p < end ? p : row.last;
            elements_read<FORMAT>(kv_at(a, row, 0, p) + offset, at, has, keys[k]);
            elements_read<FORMAT>(kv_at(a, row, 1, p) + offset, at, has, values[k]);
        }
#pragma unroll
        for (uint32_t g = 0; g < GROUP; g++)
            positions_add<LANES, ahead>(a, there, keys, values, q[g], sums[g]);
    }
    sums_write<LANES, GROUP>(a, head0, heads, sums);
}

/* Rows along x, heads along y, a thread an element. */
__global__ void split_join_kernel(gpu_attention a)
{
    earlier_wait();
    if (blockIdx.x >= a.n_rows - a.n_tiled) { /* rows that are made ready past the last */
        form_put(a.formed, blockIdx.x, a.heads * a.head_dim, blockIdx.y * a.head_dim + threadIdx.x,
                 0);
        return;
    }
    gpu_attention_row row = a.rows[a.n_tiled + blockIdx.x];
    uint32_t dim = a.head_dim, i = threadIdx.x, head = blockIdx.y, seen = row.last - row.first + 1,
             each = part_tokens(a, seen), parts = (seen + each - 1) / each;
    const float *from =
        a.parts_found + ((uint64_t)blockIdx.x * a.heads + head) * a.splits * (dim + 2);
    float most = a.sinks ? a.sinks[head] : -INFINITY, sum = 0, total;
    for (uint32_t z = 0; z < parts; z++)
        most = fmaxf(most, from[z * (dim + 2)]);
    total = a.sinks ? expf(a.sinks[head] - most) : 0;
    for (uint32_t z = 0; z < parts; z++) {
        const float *part = from + z * (dim + 2);
        float by = expf(part[0] - most);
        total += part[1] * by;
        sum += part[2 + i] * by;
    }
    a.out.data[row.row * a.out.stride + (uint64_t)head * dim + i] = sum / total;
    form_put(a.formed, row.row, a.heads * dim, head * dim + i, sum / total);
}

bool gpu_split_knows(const struct gpu_attention *a)
{
    bool f16 = a->kv_format == KV_F16 && a->head_dim % EACH == 0,
         q8 = a->kv_format == KV_Q8_0 && a->head_dim % KV_Q8_ELEMENTS == 0;
    return (f16 || q8) && a->parts == 2 && a->head_dim == a->value_dim &&
           a->head_dim <= WARP * EACH && a->token_bytes % (f16 ? 16 : 2) == 0;
}

uint64_t gpu_split_bytes(const struct gpu_attention *a)
{
    return (uint64_t)(a->n_rows - a->n_tiled) * a->heads * a->splits * (a->head_dim + 2) *
           sizeof(float);
}

template <int FORMAT, int LANES, int GROUP>
static void split_launch(struct CUstream_st *s, const gpu_attention &a)
{
    uint32_t of_group = a.heads / a.kv_heads;
    dim3 grid(a.n_rows - a.n_tiled, a.kv_heads * blocks_for(of_group, GROUP), a.splits);
    CUDA_LAUNCH_EARLY((split_kernel<FORMAT, LANES, GROUP>), grid, SPLIT_THREADS, s)(a);
}

template <int FORMAT, int LANES>
static void split_group_launch(struct CUstream_st *s, const gpu_attention &a)
{
    if (a.heads == a.kv_heads)
        split_launch<FORMAT, LANES, 1>(s, a);
    else
        split_launch<FORMAT, LANES, 4>(s, a);
}

template <int FORMAT> static void split_format_launch(struct CUstream_st *s, const gpu_attention &a)
{
    if (a.head_dim <= 8 * EACH)
        split_group_launch<FORMAT, 8>(s, a);
    else if (a.head_dim <= 16 * EACH)
        split_group_launch<FORMAT, 16>(s, a);
    else
        split_group_launch<FORMAT, 32>(s, a);
}

void gpu_split(struct CUstream_st *s, const struct gpu_attention *a)
{
    uint32_t rows = a->n_rows - a->n_tiled;
    dim3 grid(a->formed.form != GPU_FORM_NONE && a->formed.rows > rows ? a->formed.rows : rows,
              a->heads);
    if (a->kv_format == KV_F16)
        split_format_launch<KV_F16>(s, *a);
    else
        split_format_launch<KV_Q8_0>(s, *a);
    CUDA_LAUNCH_EARLY(split_join_kernel, grid, a->head_dim, s)(*a);
}
