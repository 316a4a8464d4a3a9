/* Attention of tokens that are their sequences' only ones of a batch, over keys and values in f16:
 * a block takes a row and the heads that share keys, rotates queries and key where that is still to
 * be done, writes key and value, and sees all positions, so that nothing has to be joined. */
#include "agent/backend/cuda/rope.cuh"
#include "agent/backend/cuda/split.cuh"

static constexpr uint32_t ALONE_GROUP = 4, FEW_BLOCKS = 256;

/* Eight numbers as f16. */
static __device__ __forceinline__ uint4 halves_pack(const float *v)
{
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        words[i] = __half_as_ushort(__float2half_rn(v[i * 2])) |
                   (unsigned)__half_as_ushort(__float2half_rn(v[i * 2 + 1])) << 16;
    return {words[0], words[1], words[2], words[3]};
}

/* A lane's elements of a head of queries (`which` 0) or keys, rotated. */
static __device__ __forceinline__ void turned_read(const gpu_turn &t, uint32_t which, uint32_t row,
                                                   uint32_t head, uint32_t at, float *out)
{
    const gpu_rope &how = t.how[which];
    const float *in = t.in[which].data + row * t.in[which].stride + (uint64_t)head * how.head_dim,
                *angles = t.angles[which].data + row * t.angles[which].stride;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        out[i] = rope_element(how, in, angles, at + i);
}

static __device__ __forceinline__ void plain_read(const gpu_rows &rows, uint32_t row, uint64_t at,
                                                  float *out)
{
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        out[i] = rows.data[row * rows.stride + at + i];
}

static __device__ __forceinline__ void plain_write(const gpu_rows &rows, uint32_t row, uint64_t at,
                                                   const float *v)
{
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        rows.data[row * rows.stride + at + i] = v[i];
}

/* What a lane has of its row: of queries, and of the token's own key and value, as the cache keeps
 * them. */
template <int GROUP> struct alone_row {
    float q[GROUP][EACH], k[EACH];
    uint4 key, value;

    __device__ __forceinline__ void read(const gpu_attention &a, const gpu_turn &t, bool turns,
                                         uint32_t row, uint32_t at, bool has)
    {
        uint32_t heads = a.heads / a.kv_heads, kv_head = blockIdx.y, dim = a.head_dim;
        float v[EACH] = {};
#pragma unroll
        for (uint32_t g = 0; g < GROUP; g++) {
            uint32_t head = kv_head * heads + (g < heads ? g : 0);
#pragma unroll
            for (uint32_t i = 0; i < EACH; i++)
                q[g][i] = 0;
            if (has && turns)
                turned_read(t, 0, row, head, at, q[g]);
            else if (has)
                plain_read(a.q, row, head * dim + at, q[g]);
        }
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            k[i] = 0;
        if (has && turns)
            turned_read(t, 1, row, kv_head, at, k);
        else if (has)
            plain_read(a.k, row, kv_head * dim + at, k);
        if (has)
            plain_read(a.v, row, kv_head * dim + at, v);
        key = halves_pack(k);
        value = halves_pack(v);
    }

    /* By lanes that have all elements once. */
    __device__ __forceinline__ void write(const gpu_attention &a, const gpu_turn &t, bool turns,
                                          const gpu_attention_row &row, uint32_t at) const
    {
        uint32_t heads = a.heads / a.kv_heads, kv_head = blockIdx.y, dim = a.head_dim;
        uint64_t to = kv_head * a.head_bytes + at * 2;
        *(uint4 *)(kv_at(a, row, 0, row.position) + to) = key;
        *(uint4 *)(kv_at(a, row, 1, row.position) + to) = value;
        if (!turns)
            return;
        plain_write(t.out[1], row.row, kv_head * dim + at, k);
#pragma unroll
        for (uint32_t g = 0; g < GROUP; g++)
            if (g < heads)
                plain_write(t.out[0], row.row, (kv_head * heads + g) * dim + at, q[g]);
    }
};

/* Keys and values of some positions before the token's own, as the cache has them; zeros from that
 * on. */
template <int LANES, int WARPS, int AHEAD> struct alone_tokens {
    static constexpr uint32_t STEP = WARPS * WARP / LANES;
    uint4 keys[AHEAD], values[AHEAD];

    __device__ __forceinline__ void read(const gpu_attention &a, const gpu_attention_row &row,
                                         uint32_t p0, uint32_t at, bool has)
    {
        uint64_t offset = blockIdx.y * a.head_bytes + at * 2;
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) {
            uint32_t p = p0 + k * STEP + threadIdx.x / LANES;
            bool there = p < row.position && has;
            keys[k] = there ? *(const uint4 *)(kv_at(a, row, 0, p) + offset) : uint4{};
            values[k] = there ? *(const uint4 *)(kv_at(a, row, 1, p) + offset) : uint4{};
        }
    }
};

/* What the token sees of itself, by the first of the lanes that have all elements; nothing by the
 * others. */
template <int LANES, int GROUP>
static __device__ __forceinline__ void own_add(const gpu_attention &a, const alone_row<GROUP> &own,
                                               split_sum *sums)
{
    float key[1][EACH], value[1][EACH];
    quad_widen(own.key, key[0]);
    quad_widen(own.value, value[0]);
#pragma unroll
    for (uint32_t g = 0; g < GROUP; g++) {
        sums[g].greatest = -INFINITY;
        sums[g].total = 0;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            sums[g].values[i] = 0;
        if (threadIdx.x < WARP)
            positions_add<LANES, 1>(a, threadIdx.x < LANES ? 1 : 0, key, value, own.q[g], sums[g]);
    }
}

/* Rows along x, those that are made ready past the last too, heads of keys along y. */
template <int LANES, int GROUP, int WARPS>
__global__ void __launch_bounds__(WARPS *WARP, GROUP > 1    ? 1
                                               : WARPS == 4 ? 4
                                                            : 2)
    attend_alone_kernel(gpu_attention a, gpu_turn t, bool turns)
{
    __shared__ warps_found<LANES, WARPS> found;
    constexpr uint32_t ahead = GROUP == 1 ? 4 : 2;
    using tokens = alone_tokens<LANES, WARPS, ahead>;
    uint32_t heads = a.heads / a.kv_heads, head0 = blockIdx.y * heads,
             at = threadIdx.x % LANES * EACH;
    bool has = at < a.head_dim;
    split_sum sums[GROUP];
    alone_row<GROUP> own;
    gpu_attention_row row = {};
    tokens now;
    /* Kernels of earlier steps, whose tables have other positions, wrote what lies before the
     * token: since then the row's own table has been copied (tables.c: whenever it is not the last
     * one, and before each start of kept steps), which waits for all before it. */
    if (blockIdx.x < a.n_rows) {
        row = a.rows[blockIdx.x];
        now.read(a, row, row.first, at, has);
    }
    earlier_wait();
    if (blockIdx.x >= a.n_rows) {
        zeros_make(a, head0, heads);
        return;
    }
    own.read(a, t, turns, row.row, at, has);
    __syncthreads(); /* what is rotated may take the place of what is read */
    if (threadIdx.x < LANES && has)
        own.write(a, t, turns, row, at);
    own_add<LANES>(a, own, sums); /* while the others' are on their way */
    for (uint32_t p0 = row.first; p0 < row.position; p0 += ahead * tokens::STEP) {
        float keys[ahead][EACH], values[ahead][EACH];
        uint32_t there = 0;
        tokens next;
        next.read(a, row, p0 + ahead * tokens::STEP, at, has);
#pragma unroll
        for (uint32_t k = 0; k < ahead; k++) {
            uint32_t p = p0 + k * tokens::STEP + threadIdx.x / LANES;
            there |= (p < row.position ? 1u : 0u) << k;
            quad_widen(now.keys[k], keys[k]);
            quad_widen(now.values[k], values[k]);
        }
#pragma unroll
        for (uint32_t g = 0; g < GROUP; g++)
            positions_add<LANES, ahead>(a, there, keys, values, own.q[g], sums[g]);
        now = next;
    }
#pragma unroll
    for (uint32_t g = 0; g < GROUP; g++) {
        if (g >= heads)
            break;
        found_put(found, sums[g]);
        const float2 all = found_join(found, a.sinks ? a.sinks[head0 + g] : -INFINITY);
        for (uint32_t i = threadIdx.x; i < a.head_dim; i += WARPS * WARP)
            result_write(a, row.row, head0 + g, i, found_value(found, i, all.x) / all.y);
    }
}

bool gpu_alone_knows(const struct gpu_attention *a)
{
    return gpu_split_knows(a) && a->kv_format == KV_F16 && a->heads / a->kv_heads <= ALONE_GROUP;
}

template <int LANES, int GROUP>
static void alone_launch(struct CUstream_st *s, const gpu_attention &a, const gpu_turn *turn)
{
    bool more = a.formed.form != GPU_FORM_NONE && a.formed.rows > a.n_rows;
    dim3 grid(more ? a.formed.rows : a.n_rows, a.kv_heads);
    const gpu_turn t = turn ? *turn : gpu_turn{};
    if (a.n_rows * a.kv_heads <= FEW_BLOCKS)
        CUDA_LAUNCH_EARLY((attend_alone_kernel<LANES, GROUP, 8>), grid, 8 * WARP, s)
    (a, t, turn != NULL);
    else CUDA_LAUNCH_EARLY((attend_alone_kernel<LANES, GROUP, 4>), grid, 4 * WARP, s)(a, t,
                                                                                      turn != NULL);
}

template <int LANES>
static void alone_launch(struct CUstream_st *s, const gpu_attention &a, const gpu_turn *turn)
{
    if (a.heads == a.kv_heads)
        alone_launch<LANES, 1>(s, a, turn);
    else
        alone_launch<LANES, ALONE_GROUP>(s, a, turn);
}

void gpu_attend_alone(struct CUstream_st *s, const struct gpu_attention *a,
                      const struct gpu_turn *turn)
{
    if (a->head_dim <= 8 * EACH)
        alone_launch<8>(s, *a, turn);
    else if (a->head_dim <= 16 * EACH)
        alone_launch<16>(s, *a, turn);
    else
        alone_launch<32>(s, *a, turn);
}
