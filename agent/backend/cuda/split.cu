/* Attention of single tokens over keys and values in f16 or q8_0: a block takes a row, the heads
 * that share keys, and a part of the positions that the row sees, so that one long sequence keeps a
 * whole GPU busy (Dao et al., Flash-Decoding). Lanes have 8 elements of a token each (of f16 16
 * bytes), 8, 16 or 32 lanes a token: those past the end of a head have zeros. What parts found is
 * joined by a second kernel, where there is more than one. */
#include "agent/backend/cuda/split.cuh"

static constexpr uint32_t SPLIT_WARPS = 4, SPLIT_THREADS = SPLIT_WARPS * WARP;

/* Warps' sums, one head after the other, to where the second kernel finds them, or what they come
 * to where there is one part alone. */
template <int LANES, int GROUP>
static __device__ __forceinline__ void sums_write(const gpu_attention &a, uint32_t row,
                                                  uint32_t head0, uint32_t heads, split_sum *sums)
{
    __shared__ warps_found<LANES, SPLIT_WARPS> found;
    uint32_t dim = a.head_dim;
    bool alone = a.splits == 1;
#pragma unroll
    for (uint32_t g = 0; g < GROUP; g++) {
        if (g >= heads)
            break;
        found_put(found, sums[g]);
        const float2 all = found_join(found, alone && a.sinks ? a.sinks[head0 + g] : -INFINITY);
        float *to =
            a.parts_found +
            (((uint64_t)blockIdx.x * a.heads + head0 + g) * a.splits + blockIdx.z) * (dim + 2);
        for (uint32_t i = threadIdx.x; i < dim; i += SPLIT_THREADS) {
            float sum = found_value(found, i, all.x);
            if (alone)
                result_write(a, row, head0 + g, i, sum / all.y);
            else
                to[2 + i] = sum;
        }
        if (threadIdx.x == 0 && !alone) {
            to[0] = all.x;
            to[1] = all.y;
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

/* Rows along x, those that are made ready past the last too where there is one part, heads that
 * share keys along y, parts along z. */
template <int FORMAT, int LANES, int GROUP>
__global__ void __launch_bounds__(SPLIT_THREADS, GROUP == 1 ? 4 : 3) split_kernel(gpu_attention a)
{
    constexpr uint32_t step = SPLIT_THREADS / LANES, ahead = GROUP == 1 ? 4 : 2;
    uint32_t of_group = a.heads / a.kv_heads, groups = (of_group + GROUP - 1) / GROUP,
             kv_head = blockIdx.y / groups,
             head0 = kv_head * of_group + blockIdx.y % groups * GROUP,
             heads = (kv_head + 1) * of_group - head0;
    earlier_wait();
    if (blockIdx.x >= a.n_rows - a.n_tiled) {
        zeros_make(a, head0, heads < GROUP ? heads : GROUP);
        return;
    }
    gpu_attention_row row = a.rows[a.n_tiled + blockIdx.x];
    uint32_t seen = row.last - row.first + 1, each = part_tokens(a, seen),
             first = row.first + blockIdx.z * each,
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
    sums_write<LANES, GROUP>(a, row.row, head0, heads, sums);
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
    result_write(a, row.row, head, i, sum / total);
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

static uint32_t rows_split(const gpu_attention &a)
{
    return a.n_rows - a.n_tiled;
}

/* With those past the last. */
static uint32_t rows_made(const gpu_attention &a)
{
    bool more = a.formed.form != GPU_FORM_NONE && a.formed.rows > rows_split(a);
    return more ? a.formed.rows : rows_split(a);
}

template <int FORMAT, int LANES, int GROUP>
static void split_launch(struct CUstream_st *s, const gpu_attention &a)
{
    uint32_t of_group = a.heads / a.kv_heads, rows = a.splits == 1 ? rows_made(a) : rows_split(a);
    dim3 grid(rows, a.kv_heads * blocks_for(of_group, GROUP), a.splits);
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
    if (a->kv_format == KV_F16)
        split_format_launch<KV_F16>(s, *a);
    else
        split_format_launch<KV_Q8_0>(s, *a);
    if (a->splits > 1)
        CUDA_LAUNCH_EARLY(split_join_kernel, dim3(rows_made(*a), a->heads), a->head_dim, s)(*a);
}
