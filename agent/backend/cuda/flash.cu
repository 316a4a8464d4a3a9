/* Attention of many tokens of one sequence: a block takes 64 of them and one head, and goes through
 * the pages that they see. Scores and their products with values are tensor cores' work on f16,
 * with float32 sums; greatest score and sum of weights are carried from turn to turn (Dao,
 * FlashAttention-2, section 3.1). A turn's values come while its scores are computed, the next
 * one's keys while these are weighed. A warp has 16 tokens; where heads are large two warps share
 * them, each with one half of the head's elements, whose scores are added up. */
#include "agent/backend/cuda/attention.cuh"
#include "agent/backend/cuda/tensor.cuh"

static constexpr uint32_t FLASH_WARPS = 4; /* of 16 tokens each */
static constexpr float LOG2_E = 1.44269504f;

/* Tokens at a time, of one page; warps that share tokens; elements of a head that each has. */
template <int DIM> static constexpr uint32_t TURN = DIM > 128 ? 32 : 64;
template <int DIM> static constexpr uint32_t SHARING = DIM > 128 ? 2 : 1;
template <int DIM> static constexpr uint32_t OWN = DIM / SHARING<DIM>;
template <int DIM> static constexpr uint32_t FLASH_THREADS = FLASH_WARPS *SHARING<DIM> *WARP;

/* Bytes of a token in shared memory: 16 more than its numbers, so that rows lie in other banks. */
template <int DIM> static constexpr uint32_t flash_row = DIM * 2 + 16;

/* Eight numbers of a block of Q8_0 as f16. */
static __device__ __forceinline__ uint4 q8_halves(const uint8_t *head, uint32_t i)
{
    const uint8_t *block = head + i / KV_Q8_ELEMENTS * KV_Q8_BYTES;
    float scale = half_at(block);
    unsigned words[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const uint8_t *two = block + 2 + i % KV_Q8_ELEMENTS + k * 2;
        words[k] = halves_of(scale * (float)(int8_t)two[0], scale * (float)(int8_t)two[1]);
    }
    return {words[0], words[1], words[2], words[3]};
}

/* Keys or values of a turn's tokens on their way; those that nobody sees are zero. */
template <int FORMAT, int DIM>
static __device__ __forceinline__ void page_fetch(shared_at to, const gpu_attention &a,
                                                  const gpu_attention_row &row, uint32_t part,
                                                  uint32_t turn, uint32_t first, uint32_t last)
{
    const uint32_t chunks = DIM / 8;
    const uint8_t *from =
        kv_at(a, row, part, turn * TURN<DIM>) + blockIdx.y / (a.heads / a.kv_heads) * a.head_bytes;
    for (uint32_t i = threadIdx.x; i < TURN<DIM> * chunks; i += FLASH_THREADS<DIM>) {
        uint32_t token = i / chunks, chunk = i % chunks, position = turn * TURN<DIM> + token;
        shared_at there = to + token * flash_row<DIM> + chunk * 16;
        const uint8_t *head = from + token * a.token_bytes;
        if (position < first || position > last)
            shared_quad_put(there, uint4{});
        else if (FORMAT == KV_F16)
            async_copy_16(there, head + chunk * 16);
        else
            shared_quad_put(there, q8_halves(head, chunk * 8));
    }
}

/* The first of a warp's elements of a head. */
template <int DIM> static __device__ __forceinline__ uint32_t own_first()
{
    return SHARING<DIM> == 1 ? 0 : threadIdx.x / WARP / FLASH_WARPS * OWN<DIM>;
}

/* What a lane knows of two rows, 8 apart. */
struct flash_rows {
    uint32_t first[2], last[2];
    float greatest[2], total[2];
};

/* A turn's scores become weights; sums of values so far are made smaller where a greater score has
 * come. */
template <int DIM>
static __device__ __forceinline__ void scores_weigh(const gpu_attention &a, uint32_t turn,
                                                    flash_rows &r, float (*scores)[4],
                                                    float (*sums)[4])
{
    uint32_t column = turn * TURN<DIM> + threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = r.greatest[h], total = 0;
#pragma unroll
        for (uint32_t n = 0; n < TURN<DIM> / 8; n++)
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                uint32_t position = column + n * 8 + k;
                float score = scores[n][h * 2 + k] * a.scale;
                if (a.cap != 0)
                    score = a.cap * tanhf(score / a.cap);
                score = position < r.first[h] || position > r.last[h] ? -INFINITY : score * LOG2_E;
                scores[n][h * 2 + k] = score;
                most = fmaxf(most, score);
            }
        most = fmaxf(most, __shfl_xor_sync((unsigned)ALL_LANES, most, 1));
        most = fmaxf(most, __shfl_xor_sync((unsigned)ALL_LANES, most, 2));
        float from = most == -INFINITY ? 0 : most, keep = exp2f(r.greatest[h] - from);
#pragma unroll
        for (uint32_t n = 0; n < TURN<DIM> / 8; n++)
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                float weight = exp2f(scores[n][h * 2 + k] - from);
                scores[n][h * 2 + k] = weight;
                total += weight;
            }
        r.greatest[h] = most;
        r.total[h] = r.total[h] * keep + total;
#pragma unroll
        for (uint32_t n = 0; n < OWN<DIM> / 8; n++) {
            sums[n][h * 2] *= keep;
            sums[n][h * 2 + 1] *= keep;
        }
    }
}

/* scores[16 x TURN] of a warp's rows with a turn's keys, by its elements. */
template <int DIM>
static __device__ __forceinline__ void keys_multiply(shared_at keys, const unsigned (*q)[4],
                                                     float (*scores)[4])
{
    uint32_t lane = threadIdx.x % WARP;
    /* matrices: two groups of 8 tokens, each at 8 and the next 8 columns */
    shared_at own = keys + (lane / 16 * 8 + lane % 8) * flash_row<DIM> + lane / 8 % 2 * 16 +
                    own_first<DIM>() * 2;
#pragma unroll
    for (uint32_t n = 0; n < TURN<DIM> / 8; n++)
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            scores[n][k] = 0;
#pragma unroll
    for (uint32_t k = 0; k < OWN<DIM> / 16; k++)
#pragma unroll
        for (uint32_t n = 0; n < TURN<DIM> / 8; n += 2) {
            unsigned b[4];
            matrices_read<false>(own + n * 8 * flash_row<DIM> + k * 32, b);
            tensor_multiply(scores[n], q[k], b[0], b[1]);
            tensor_multiply(scores[n + 1], q[k], b[2], b[3]);
        }
}

/* Scores by a warp's elements and those of the warp that shares its rows become both's sums. `room`
 * is that of the keys, which all have read. */
template <int DIM>
static __device__ __forceinline__ void scores_join(shared_at room, float (*scores)[4])
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    shared_at own = room + (warp * (TURN<DIM> / 8) * WARP + lane) * 16,
              other = room + ((warp ^ FLASH_WARPS) * (TURN<DIM> / 8) * WARP + lane) * 16;
#pragma unroll
    for (uint32_t n = 0; n < TURN<DIM> / 8; n++)
        shared_quad_put(own + n * WARP * 16,
                        {__float_as_uint(scores[n][0]), __float_as_uint(scores[n][1]),
                         __float_as_uint(scores[n][2]), __float_as_uint(scores[n][3])});
    __syncthreads();
#pragma unroll
    for (uint32_t n = 0; n < TURN<DIM> / 8; n++) {
        uint4 more = shared_quad(other + n * WARP * 16);
        scores[n][0] += __uint_as_float(more.x);
        scores[n][1] += __uint_as_float(more.y);
        scores[n][2] += __uint_as_float(more.z);
        scores[n][3] += __uint_as_float(more.w);
    }
    __syncthreads();
}

/* sums[16 x OWN] += weights · values */
template <int DIM>
static __device__ __forceinline__ void values_multiply(shared_at values, const float (*weights)[4],
                                                       float (*sums)[4])
{
    uint32_t lane = threadIdx.x % WARP;
    /* matrices: 8 tokens and the next 8, each at 8 and the next 8 columns */
    shared_at own = values + lane % 16 * flash_row<DIM> + lane / 16 * 16 + own_first<DIM>() * 2;
#pragma unroll
    for (uint32_t k = 0; k < TURN<DIM> / 16; k++) {
        const unsigned a[4] = {halves_of(weights[k * 2][0], weights[k * 2][1]),
                               halves_of(weights[k * 2][2], weights[k * 2][3]),
                               halves_of(weights[k * 2 + 1][0], weights[k * 2 + 1][1]),
                               halves_of(weights[k * 2 + 1][2], weights[k * 2 + 1][3])};
#pragma unroll
        for (uint32_t n = 0; n < OWN<DIM> / 8; n += 2) {
            unsigned b[4];
            matrices_read<true>(own + k * 16 * flash_row<DIM> + n * 16, b);
            tensor_multiply(sums[n], a, b[0], b[1]);
            tensor_multiply(sums[n + 1], a, b[2], b[3]);
        }
    }
}

/* A warp's 16 queries as f16; rows past the tile's are its last one. */
template <int DIM>
static __device__ __forceinline__ void queries_read(const gpu_attention &a, const uint32_t *rows,
                                                    unsigned (*q)[4])
{
    uint32_t column = blockIdx.y * DIM + own_first<DIM>() + threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const float *row = a.q.data + rows[h] * a.q.stride + column;
#pragma unroll
        for (uint32_t k = 0; k < OWN<DIM> / 16; k++) {
            q[k][h] = halves_of(row[k * 16], row[k * 16 + 1]);
            q[k][h + 2] = halves_of(row[k * 16 + 8], row[k * 16 + 9]);
        }
    }
}

/* Divides by the sums of weights, a sink among them, and writes the rows that are there. */
template <int DIM>
static __device__ __forceinline__ void rows_write(const gpu_attention &a, const flash_rows &r,
                                                  const uint32_t *rows, const bool *there,
                                                  float (*sums)[4])
{
    uint32_t column = blockIdx.y * DIM + own_first<DIM>() + threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        float total = r.total[h], by = 1;
        total += __shfl_xor_sync((unsigned)ALL_LANES, total, 1);
        total += __shfl_xor_sync((unsigned)ALL_LANES, total, 2);
        if (a.sinks) {
            float sink = a.sinks[blockIdx.y] * LOG2_E, most = fmaxf(r.greatest[h], sink);
            by = exp2f(r.greatest[h] - most);
            total = total * by + exp2f(sink - most);
        }
        by /= total;
        float *to = a.out.data + rows[h] * a.out.stride + column;
#pragma unroll
        for (uint32_t n = 0; n < OWN<DIM> / 8; n++)
            if (there[h]) {
                to[n * 8] = sums[n][h * 2] * by;
                to[n * 8 + 1] = sums[n][h * 2 + 1] * by;
            }
    }
}

/* Tiles along x, heads along y. */
template <int FORMAT, int DIM>
__global__ void __launch_bounds__(FLASH_THREADS<DIM>) flash_kernel(gpu_attention a)
{
    __shared__ uint4 kept[2][TURN<DIM> * flash_row<DIM> / 16];
    shared_at keys = shared_at_of(kept[0]), values = shared_at_of(kept[1]);
    gpu_attention_tile tile = a.tiles[blockIdx.x];
    gpu_attention_row top = a.rows[tile.first], end = a.rows[tile.first + tile.count - 1];
    uint32_t own = threadIdx.x / WARP % FLASH_WARPS * 16 + threadIdx.x % WARP / 4, rows[2];
    float scores[TURN<DIM> / 8][4], sums[OWN<DIM> / 8][4];
    unsigned q[OWN<DIM> / 16][4];
    flash_rows r;
    bool there[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        there[h] = own + h * 8 < tile.count;
        gpu_attention_row row = a.rows[tile.first + (there[h] ? own + h * 8 : tile.count - 1)];
        rows[h] = row.row;
        r.first[h] = row.first;
        r.last[h] = row.last;
        r.greatest[h] = -INFINITY;
        r.total[h] = 0;
    }
#pragma unroll
    for (uint32_t n = 0; n < OWN<DIM> / 8; n++)
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            sums[n][k] = 0;
    queries_read<DIM>(a, rows, q);
    uint32_t last_turn = end.last / TURN<DIM>;
    page_fetch<FORMAT, DIM>(keys, a, top, 0, top.first / TURN<DIM>, top.first, end.last);
    async_group_end();
    for (uint32_t turn = top.first / TURN<DIM>; turn <= last_turn; turn++) {
        page_fetch<FORMAT, DIM>(values, a, top, 1, turn, top.first, end.last);
        async_group_end();
        async_groups_wait<1>();
        __syncthreads();
        keys_multiply<DIM>(keys, q, scores);
        __syncthreads();
        if (OWN<DIM> != DIM)
            scores_join<DIM>(keys, scores);
        if (turn < last_turn)
            page_fetch<FORMAT, DIM>(keys, a, top, 0, turn + 1, top.first, end.last);
        async_group_end();
        scores_weigh<DIM>(a, turn, r, scores, sums);
        async_groups_wait<1>();
        __syncthreads();
        values_multiply<DIM>(values, scores, sums);
        __syncthreads();
    }
    rows_write<DIM>(a, r, rows, there, sums);
}

bool gpu_flash_knows(int kv_format, uint32_t head_dim, uint32_t value_dim, uint32_t parts)
{
    return (kv_format == KV_F16 || kv_format == KV_Q8_0) && parts == 2 && head_dim == value_dim &&
           (head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256);
}

template <int FORMAT> static void flash_launch(struct CUstream_st *s, const gpu_attention &a)
{
    dim3 grid(a.n_tiles, a.heads);
    if (a.head_dim == 64)
        CUDA_LAUNCH((flash_kernel<FORMAT, 64>), grid, FLASH_THREADS<64>, s)(a);
    else if (a.head_dim == 96)
        CUDA_LAUNCH((flash_kernel<FORMAT, 96>), grid, FLASH_THREADS<96>, s)(a);
    else if (a.head_dim == 128)
        CUDA_LAUNCH((flash_kernel<FORMAT, 128>), grid, FLASH_THREADS<128>, s)(a);
    else
        CUDA_LAUNCH((flash_kernel<FORMAT, 256>), grid, FLASH_THREADS<256>, s)(a);
}

void gpu_flash(struct CUstream_st *s, const struct gpu_attention *a)
{
    if (a->n_tiles == 0)
        return;
    if (a->kv_format == KV_F16)
        flash_launch<KV_F16>(s, *a);
    else
        flash_launch<KV_Q8_0>(s, *a);
}
