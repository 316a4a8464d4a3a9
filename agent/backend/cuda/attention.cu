/* Keys and values in pages, [block][part][token][kv head][head dim] as they cross links, and
 * attention over them: a block a row and head, whose warps take positions in turn and carry
 * greatest score and sum of weights from one to the next. */
#include "agent/backend/cuda/attention.cuh"
#include "agent/backend/cuda/rope.cuh"

enum { ATTEND_WARPS = 4, WRITE_THREADS = 128 };

/* A warp writes 32 elements as a block of Q8_0. */
static __device__ void q8_write(uint8_t *block, uint32_t lane, float value)
{
    unsigned short half = __half_as_ushort(__float2half_rn(warp_max(fabsf(value)) / 127));
    float scale = __half2float(__ushort_as_half(half)), inverse = scale > 0 ? 1 / scale : 0;
    float x = rintf(value * inverse);
    x = x < 127 ? x : 127;
    x = x > -127 ? x : -127;
    block[2 + lane] = (uint8_t)(int8_t)x;
    if (lane < 2)
        block[lane] = (uint8_t)(half >> lane * 8);
}

/* A row's keys or values, of heads from `first` to `end`. */
static __device__ __forceinline__ void part_write(const gpu_attention &a,
                                                  const gpu_attention_row &row, uint32_t part,
                                                  uint32_t first, uint32_t end)
{
    gpu_rows from = part ? a.v : a.k;
    uint8_t *to = kv_at(a, row, part, row.position);
    for (uint32_t i = first * a.head_dim + threadIdx.x; i < end * a.head_dim; i += blockDim.x) {
        float value = from.data[row.row * from.stride + i];
        if (a.kv_format == KV_Q8_0)
            q8_write(to + i / KV_Q8_ELEMENTS * KV_Q8_BYTES, i % KV_Q8_ELEMENTS, value);
        else if (a.kv_format == KV_F32)
            ((float *)to)[i] = value;
        else
            ((unsigned short *)to)[i] = __half_as_ushort(__float2half_rn(value));
    }
}

/* Blocks: rows along x, parts along y, some of the heads along z. */
__global__ void kv_write_kernel(gpu_attention a)
{
    earlier_wait();
    part_write(a, a.rows[blockIdx.x], blockIdx.y, a.kv_heads * blockIdx.z / gridDim.z,
               a.kv_heads * (blockIdx.z + 1) / gridDim.z);
}

/* The same of keys that are rotated first, as queries are, by the last blocks along y. */
__global__ void turn_write_kernel(gpu_attention a, gpu_turn t)
{
    uint32_t which = blockIdx.y == 0, part = blockIdx.y;
    earlier_wait();
    gpu_attention_row row = a.rows[blockIdx.x];
    if (part == 0 || part == a.parts)
        rope_row(t.how[which], t.in[which].data + row.row * t.in[which].stride,
                 t.angles[which].data + row.row * t.angles[which].stride,
                 t.out[which].data + row.row * t.out[which].stride,
                 t.how[which].heads * blockIdx.z / gridDim.z,
                 t.how[which].heads * (blockIdx.z + 1) / gridDim.z);
    __syncthreads();
    if (part < a.parts)
        part_write(a, row, part, a.kv_heads * blockIdx.z / gridDim.z,
                   a.kv_heads * (blockIdx.z + 1) / gridDim.z);
}

/* Parts into which the heads of so few rows are cut. */
static uint32_t heads_cut(const gpu_attention &a)
{
    const uint32_t blocks = 512;
    uint32_t parts = blocks / a.n_rows;
    parts = parts < a.heads ? parts : a.heads;
    return parts ? parts : 1;
}

/* Element i of a head; lanes read neighbours. */
template <int FORMAT>
static __device__ __forceinline__ float kv_read(const uint8_t *head, uint32_t i)
{
    if (FORMAT == KV_F32)
        return ((const float *)head)[i];
    if (FORMAT == KV_F16)
        return __half2float(__ushort_as_half(((const unsigned short *)head)[i]));
    const uint8_t *block = head + i / KV_Q8_ELEMENTS * KV_Q8_BYTES;
    return half_at(block) * (float)(int8_t)block[2 + i % KV_Q8_ELEMENTS];
}

/* EACH elements of a head to a lane. */
template <int FORMAT, int EACH> __global__ void attend_kernel(gpu_attention a)
{
    __shared__ float greatests[ATTEND_WARPS], totals[ATTEND_WARPS];
    __shared__ float sums[ATTEND_WARPS][EACH * WARP];
    gpu_attention_row row = a.rows[a.n_tiled + blockIdx.x];
    uint32_t head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads), warp = threadIdx.x / WARP,
             lane = threadIdx.x % WARP;
    const float *query = a.q.data + row.row * a.q.stride + (uint64_t)head * a.head_dim;
    float q[EACH], sum[EACH], greatest = -INFINITY, total = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        q[i] = lane + i * WARP < a.head_dim ? query[lane + i * WARP] : 0;
        sum[i] = 0;
    }
    for (uint32_t p = row.first + warp; p <= row.last; p += ATTEND_WARPS) {
        const uint8_t *key = kv_at(a, row, 0, p) + kv_head * a.head_bytes,
                      *value = kv_at(a, row, a.parts - 1, p) + kv_head * a.head_bytes;
        float score = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (lane + i * WARP < a.head_dim)
                score += q[i] * kv_read<FORMAT>(key, lane + i * WARP);
        score = warp_sum(score) * a.scale;
        if (a.cap != 0)
            score = a.cap * tanhf(score / a.cap);
        float most = fmaxf(score, greatest), keep = expf(greatest - most),
              weight = expf(score - most);
        total = total * keep + weight;
        greatest = most;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (lane + i * WARP < a.value_dim)
                sum[i] = sum[i] * keep + weight * kv_read<FORMAT>(value, lane + i * WARP);
    }
    if (lane == 0) {
        greatests[warp] = greatest;
        totals[warp] = total;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        sums[warp][lane + i * WARP] = sum[i];
    __syncthreads();
    float most = a.sinks ? a.sinks[head] : -INFINITY, all = 0;
    for (uint32_t w = 0; w < ATTEND_WARPS; w++)
        most = fmaxf(most, greatests[w]);
    all = a.sinks ? expf(a.sinks[head] - most) : 0;
    for (uint32_t w = 0; w < ATTEND_WARPS; w++)
        all += totals[w] * expf(greatests[w] - most);
    float *out = a.out.data + row.row * a.out.stride + (uint64_t)head * a.value_dim;
    for (uint32_t i = threadIdx.x; i < a.value_dim; i += blockDim.x) {
        float value = 0;
        for (uint32_t w = 0; w < ATTEND_WARPS; w++)
            value += sums[w][i] * expf(greatests[w] - most);
        out[i] = value / all;
    }
}

template <int FORMAT> static void attend_launch(struct CUstream_st *s, const gpu_attention &a)
{
    dim3 grid(a.n_rows - a.n_tiled, a.heads);
    uint32_t most = a.head_dim > a.value_dim ? a.head_dim : a.value_dim;
    if (most <= 64)
        CUDA_LAUNCH((attend_kernel<FORMAT, 2>), grid, ATTEND_WARPS * WARP, s)(a);
    else if (most <= 128)
        CUDA_LAUNCH((attend_kernel<FORMAT, 4>), grid, ATTEND_WARPS * WARP, s)(a);
    else if (most <= 256)
        CUDA_LAUNCH((attend_kernel<FORMAT, 8>), grid, ATTEND_WARPS * WARP, s)(a);
    else
        CUDA_LAUNCH((attend_kernel<FORMAT, GPU_HEAD_DIM_MAX / WARP>), grid, ATTEND_WARPS * WARP, s)
    (a);
}

void gpu_attend(struct CUstream_st *s, const struct gpu_attention *a, const struct gpu_turn *turn)
{
    if (a->n_rows == 0)
        return;
    if (a->alone && a->splits == 1 && gpu_alone_knows(a)) {
        gpu_attend_alone(s, a, turn);
        return;
    }
    uint32_t cut = heads_cut(*a);
    dim3 grid(a->n_rows, a->parts, cut), both(a->n_rows, a->parts + 1, cut);
    if (turn)
        CUDA_LAUNCH_EARLY(turn_write_kernel, both, WRITE_THREADS, s)(*a, *turn);
    else
        CUDA_LAUNCH_EARLY(kv_write_kernel, grid, WRITE_THREADS, s)(*a);
    if (a->hopper)
        gpu_flash_hopper(s, a);
    else
        gpu_flash(s, a);
    if (a->n_rows == a->n_tiled)
        return;
    if (a->splits) {
        gpu_split(s, a);
        return;
    }
    if (a->kv_format == KV_F32)
        attend_launch<KV_F32>(s, *a);
    else if (a->kv_format == KV_F16)
        attend_launch<KV_F16>(s, *a);
    else
        attend_launch<KV_Q8_0>(s, *a);
}
