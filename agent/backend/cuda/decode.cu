/* Products of at most GPU_DECODE_ROWS rows: a warp two outputs, whose weights are read once, 16
 * bytes at a time, as the file has them. Quantised ones go through shared memory, since their
 * blocks begin anywhere, and are multiplied as integers by rows that are made integers of 32 at a
 * time, each with a scale of its own. Others are multiplied as float32. */
#include "agent/backend/cuda/decode_tasks.cuh"

static constexpr uint32_t DECODE_AHEAD = 4;

/* ---- rows as integers ---- */

/* A warp a block of 32; rows past the last are zero. */
__global__ void decode_input_kernel(gpu_rows in, uint8_t *out, uint32_t rows, uint32_t width,
                                    gpu_form form)
{
    uint32_t lane = threadIdx.x % WARP, n = width / INPUT_BLOCK,
             block = blockIdx.x * DECODE_WARPS + threadIdx.x / WARP;
    earlier_wait();
    if (block >= n)
        return;
    float value =
        blockIdx.y < rows ? in.data[blockIdx.y * in.stride + block * INPUT_BLOCK + lane] : 0;
    form_put({out, form, gridDim.y}, blockIdx.y, width, block * INPUT_BLOCK + lane, value);
}

/* ---- integers ---- */

/* PAIRS: a row along y is one of a pair. Several rows are multiplied by tensor cores where a GPU
 * has them (decode_tensor.cu), and not here. */
template <int DTYPE, int ROWS, bool PAIRS>
__global__ void __launch_bounds__(DECODE_WARPS *WARP, ROWS == 1 ? 1 : 2)
    decode_kernel(gpu_product p)
{
#if !defined(CUDA_ON_CPU) && __CUDA_ARCH__ >= 800
    if constexpr (ROWS > 1)
        return;
#endif
    using format = decode_format<DTYPE>;
    const uint32_t room = format::PIECE_BYTES / 16 + 1,
                   each = format::TASK_BLOCKS * INPUT_BLOCK_PART; /* of a task's heads */
    __shared__ uint4 pieces[DECODE_WARPS][2][DECODE_OUTPUTS][room];
    shared_at own = shared_at_of(pieces[threadIdx.x / WARP]);
    const uint32_t turn = DECODE_OUTPUTS * room * 16;
    const decode_place place = place_find<DECODE_WARPS * DECODE_OUTPUTS>(p, blockIdx.x);
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP,
             c0 = (place.block * DECODE_WARPS + warp) * DECODE_OUTPUTS,
             n_tasks = p.inputs / format::ELEMENTS,
             n = (n_tasks + format::PIECE_TASKS - 1) / format::PIECE_TASKS;
    const uint8_t *x = p.numbers, *weight = place.weight;
    const decode_tables tables = tables_make(own);
    gpu_pair pair = {};
    const uint8_t *from[DECODE_OUTPUTS];
    uint32_t lead[DECODE_OUTPUTS];
    const auto fetch = [&](uint32_t piece) {
        if (piece < n)
#pragma unroll
            for (uint32_t o = 0; o < DECODE_OUTPUTS; o++)
                piece_fetch<DTYPE>(own + piece % 2 * turn + o * room * 16, from[o], lead[o],
                                   (uint32_t)p.row_bytes, piece);
        async_group_end();
    };
    float sums[DECODE_OUTPUTS][ROWS] = {};
    if (c0 >= place.outputs) {
        earlier_wait();
        return;
    }
    if (PAIRS) {
        uint64_t bytes = p.inputs / INPUT_BLOCK * INPUT_BLOCK_BYTES;
        earlier_wait(); /* what was chosen says which weights */
        pair = pair_of(p, blockIdx.y);
        if (!pair.here)
            return;
        weight = pair.weight;
        x += (p.pairs.step == 0 ? pair.row : blockIdx.y) * bytes;
    }
    x += task_block<DTYPE>(lane) * INPUT_BLOCK_PART;
#pragma unroll
    for (uint32_t o = 0; o < DECODE_OUTPUTS; o++) {
        const uint8_t *row = weight + (c0 + o < place.outputs ? c0 + o : c0) * p.row_bytes;
        lead[o] = (uint32_t)((uintptr_t)row & 15);
        from[o] = row - lead[o];
    }
    fetch(0);
    fetch(1);
    decode_result result = {};
    if (!PAIRS) {
        earlier_wait();
        result = result_find<ROWS>(place, p.rows, c0);
    }
    for (uint32_t i = 0; i < n; i++) {
        async_groups_wait<1>();
        __syncwarp();
#pragma unroll
        for (uint32_t k = 0; k < format::EACH; k++) {
            uint32_t j = k * WARP + lane;
            if (i * format::PIECE_TASKS + j >= n_tasks)
                break;
#pragma unroll
            for (uint32_t o = 0; o < DECODE_OUTPUTS; o += TOGETHER<ROWS>) {
                decode_task tasks[TOGETHER<ROWS>];
#pragma unroll
                for (uint32_t t = 0; t < TOGETHER<ROWS>; t++)
                    task_unpack<DTYPE>(tables,
                                       own + i % 2 * turn + (o + t) * room * 16 + lead[o + t], k,
                                       tasks[t]);
                task_multiply<DTYPE, ROWS>(x + k * WARP * each, p.inputs / INPUT_BLOCK, tasks,
                                           sums + o);
                together_end<ROWS>();
            }
        }
        x += format::PIECE_TASKS * each;
        __syncwarp();
        fetch(i + 2);
    }
    if (PAIRS) {
#pragma unroll
        for (uint32_t o = 0; o < DECODE_OUTPUTS; o++) {
            float sum = warp_sum(sums[o][0]) * BY<DTYPE>;
            if (lane == 0 && c0 + o < p.outputs)
                pair_store(p, pair, c0 + o, sum);
        }
        return;
    }
    sums_store<ROWS>(place, result, BY<DTYPE>, sums);
}

/* ---- float32 ---- */

/* What 16 bytes of weights hold: 4 or 8 elements. */
template <int DTYPE> static __device__ __forceinline__ void plain_unpack(uint4 bytes, float *out)
{
    const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (DTYPE == DTYPE_F32) {
            out[i] = __uint_as_float(words[i]);
        } else if (DTYPE == DTYPE_BF16) {
            out[i * 2] = __uint_as_float(words[i] << 16);
            out[i * 2 + 1] = __uint_as_float(words[i] & 0xffff0000u);
        } else {
            out[i * 2] = __half2float(__ushort_as_half((unsigned short)words[i]));
            out[i * 2 + 1] = __half2float(__ushort_as_half((unsigned short)(words[i] >> 16)));
        }
    }
}

/* A lane's weights from element k0 on, `each` in 16 bytes. */
static __device__ __forceinline__ void plain_load(uint4 (*to)[DECODE_OUTPUTS],
                                                  const uint8_t *const *from, uint32_t k0,
                                                  uint32_t each, uint32_t inputs)
{
#pragma unroll
    for (uint32_t j = 0; j < DECODE_AHEAD; j++)
#pragma unroll
        for (uint32_t o = 0; o < DECODE_OUTPUTS; o++) {
            uint32_t k = k0 + j * WARP * each;
            to[j][o] = k < inputs ? *(const uint4 *)(from[o] + k * (16 / each)) : uint4{};
        }
}

template <int DTYPE, int ROWS>
__global__ void __launch_bounds__(DECODE_WARPS *WARP) decode_plain_kernel(gpu_product p)
{
    const uint32_t each = DTYPE == DTYPE_F32 ? 4 : 8, step = DECODE_AHEAD * WARP * each;
    uint4 ahead[DECODE_AHEAD][DECODE_OUTPUTS];
    const decode_place place = place_find<DECODE_WARPS * DECODE_OUTPUTS>(p, blockIdx.x);
    uint32_t lane = threadIdx.x % WARP,
             c0 = (place.block * DECODE_WARPS + threadIdx.x / WARP) * DECODE_OUTPUTS,
             n = p.rows - blockIdx.y * ROWS < ROWS ? p.rows - blockIdx.y * ROWS : ROWS;
    float sums[DECODE_OUTPUTS][ROWS] = {};
    const uint8_t *from[DECODE_OUTPUTS];
    if (c0 >= place.outputs) {
        earlier_wait();
        return;
    }
#pragma unroll
    for (uint32_t o = 0; o < DECODE_OUTPUTS; o++)
        from[o] = place.weight + (c0 + o < place.outputs ? c0 + o : c0) * p.row_bytes;
    plain_load(ahead, from, lane * each, each, p.inputs);
    earlier_wait();
    const decode_result result = result_find<ROWS>(place, p.rows, c0);
    for (uint32_t k0 = lane * each; k0 < p.inputs; k0 += step) {
        uint4 bytes[DECODE_AHEAD][DECODE_OUTPUTS];
#pragma unroll
        for (uint32_t j = 0; j < DECODE_AHEAD; j++)
#pragma unroll
            for (uint32_t o = 0; o < DECODE_OUTPUTS; o++)
                bytes[j][o] = ahead[j][o];
        plain_load(ahead, from, k0 + step, each, p.inputs);
#pragma unroll
        for (uint32_t j = 0; j < DECODE_AHEAD; j++) {
            uint32_t k = k0 + j * WARP * each;
            float w[DECODE_OUTPUTS][each];
            if (k >= p.inputs)
                break;
#pragma unroll
            for (uint32_t o = 0; o < DECODE_OUTPUTS; o++)
                plain_unpack<DTYPE>(bytes[j][o], w[o]);
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++) {
                const float4 *x =
                    (const float4 *)(p.in.data +
                                     (blockIdx.y * ROWS + (r < n ? r : 0)) * p.in.stride + k);
#pragma unroll
                for (uint32_t i = 0; i < each; i += 4) {
                    float4 four = x[i / 4];
#pragma unroll
                    for (uint32_t o = 0; o < DECODE_OUTPUTS; o++) {
                        sums[o][r] += four.x * w[o][i];
                        sums[o][r] += four.y * w[o][i + 1];
                        sums[o][r] += four.z * w[o][i + 2];
                        sums[o][r] += four.w * w[o][i + 3];
                    }
                }
            }
        }
    }
    sums_store<ROWS>(place, result, 1, sums);
}

/* ---- for the host ---- */

bool gpu_decode_by_integers(int dtype)
{
    switch (dtype) {
    case DTYPE_Q8_0:
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
    case DTYPE_Q6_K:
    case DTYPE_MXFP4: return true;
    default: return false;
    }
}

uint64_t gpu_decode_input_bytes(uint32_t inputs, uint32_t rows)
{
    return (uint64_t)inputs / INPUT_BLOCK * INPUT_BLOCK_BYTES * rows;
}

bool gpu_decode_fits(const struct gpu_product *p)
{
    if (p->turned || p->rows > GPU_DECODE_ROWS)
        return false;
    if (gpu_decode_by_integers(p->dtype))
        return p->numbers != NULL;
    return (p->dtype == DTYPE_F32 || p->dtype == DTYPE_F16 || p->dtype == DTYPE_BF16) &&
           p->row_bytes % 16 == 0 && p->in.stride % 4 == 0 && (uintptr_t)p->in.data % 16 == 0;
}

enum gpu_form gpu_decode_form(int dtype, uint32_t rows, bool tensor_cores)
{
    bool by_turns = dtype == DTYPE_MXFP4;
    if (!gpu_decode_by_integers(dtype))
        return GPU_FORM_NONE;
    if (tensor_cores && rows > 1)
        return by_turns ? GPU_FORM_FRAGMENTS_BY_TURNS : GPU_FORM_FRAGMENTS;
    return by_turns ? GPU_FORM_INTEGERS_BY_TURNS : GPU_FORM_INTEGERS;
}

/* A launch multiplies so many at once. */
static uint32_t rows_at_once(uint32_t rows)
{
    return rows == 1 ? 1 : rows <= 4 ? 4 : 8;
}

uint32_t gpu_form_rows(enum gpu_form form, uint32_t rows)
{
    switch (form) {
    case GPU_FORM_INTEGERS:
    case GPU_FORM_INTEGERS_BY_TURNS: return rows_at_once(rows);
    case GPU_FORM_FRAGMENTS:
    case GPU_FORM_FRAGMENTS_BY_TURNS: return FRAGMENT_ROWS;
    default: return rows;
    }
}

template <int DTYPE, bool INTEGERS, int ROWS>
static void decode_launch(struct CUstream_st *s, const gpu_product &p)
{
    dim3 grid(place_blocks(p, DECODE_WARPS * DECODE_OUTPUTS));
    if constexpr (INTEGERS)
        CUDA_LAUNCH_EARLY((decode_kernel<DTYPE, ROWS, false>), grid, DECODE_WARPS * WARP, s)(p);
    else
        CUDA_LAUNCH_EARLY((decode_plain_kernel<DTYPE, ROWS>), grid, DECODE_WARPS * WARP, s)(p);
}

template <int DTYPE, bool INTEGERS>
static void decode_rows_launch(struct CUstream_st *s, const gpu_product &p)
{
    if (rows_at_once(p.rows) == 1)
        decode_launch<DTYPE, INTEGERS, 1>(s, p);
    else if (rows_at_once(p.rows) == 4)
        decode_launch<DTYPE, INTEGERS, 4>(s, p);
    else
        decode_launch<DTYPE, INTEGERS, 8>(s, p);
}

static void numbers_make(struct CUstream_st *s, const gpu_product &p)
{
    dim3 grid(blocks_for(p.inputs / INPUT_BLOCK, DECODE_WARPS), gpu_form_rows(p.form, p.rows));
    CUDA_LAUNCH_EARLY(decode_input_kernel, grid, DECODE_WARPS * WARP, s)
    (p.in, p.numbers, p.rows, p.inputs, p.form);
}

void gpu_decode_run(struct CUstream_st *s, const struct gpu_product *p)
{
    if (gpu_decode_by_integers(p->dtype) && !p->numbers_made)
        numbers_make(s, *p);
    if (p->form == GPU_FORM_FRAGMENTS || p->form == GPU_FORM_FRAGMENTS_BY_TURNS) {
        gpu_decode_tensor_run(s, p);
        return;
    }
    if (p->persistent_blocks && gpu_decode_blocks(p)) {
        gpu_decode_persistent_run(s, p);
        return;
    }
    switch (p->dtype) {
    case DTYPE_F32: decode_rows_launch<DTYPE_F32, false>(s, *p); break;
    case DTYPE_F16: decode_rows_launch<DTYPE_F16, false>(s, *p); break;
    case DTYPE_BF16:
        if (p->tensor_cores && p->rows > 1)
            gpu_decode_bf16_run(s, p);
        else
            decode_rows_launch<DTYPE_BF16, false>(s, *p);
        break;
    case DTYPE_Q8_0: decode_rows_launch<DTYPE_Q8_0, true>(s, *p); break;
    case DTYPE_Q4_0: decode_rows_launch<DTYPE_Q4_0, true>(s, *p); break;
    case DTYPE_Q4_1: decode_rows_launch<DTYPE_Q4_1, true>(s, *p); break;
    case DTYPE_Q5_0: decode_rows_launch<DTYPE_Q5_0, true>(s, *p); break;
    case DTYPE_Q5_1: decode_rows_launch<DTYPE_Q5_1, true>(s, *p); break;
    case DTYPE_Q4_K: decode_rows_launch<DTYPE_Q4_K, true>(s, *p); break;
    case DTYPE_Q5_K: decode_rows_launch<DTYPE_Q5_K, true>(s, *p); break;
    case DTYPE_Q6_K: decode_rows_launch<DTYPE_Q6_K, true>(s, *p); break;
    case DTYPE_MXFP4: decode_rows_launch<DTYPE_MXFP4, true>(s, *p); break;
    default: break;
    }
}

/* ---- pairs ---- */

bool gpu_decode_pairs_fit(const struct gpu_product *p)
{
    bool apart = p->pairs.step != 0;
    return gpu_decode_by_integers(p->dtype) && !p->turned && p->pairs.first == 0 &&
           (!apart || (p->pairs.step == p->inputs &&
                       p->in.stride == (uint64_t)p->pairs.step * p->pairs.used));
}

template <int DTYPE> static void pairs_launch(struct CUstream_st *s, const gpu_product &p)
{
    dim3 grid(blocks_for(p.outputs, DECODE_WARPS * DECODE_OUTPUTS), p.rows * p.pairs.used);
    CUDA_LAUNCH_EARLY((decode_kernel<DTYPE, 1, true>), grid, DECODE_WARPS * WARP, s)(p);
}

void gpu_decode_pairs_run(struct CUstream_st *s, const struct gpu_product *p)
{
    bool apart = p->pairs.step != 0;
    uint32_t rows = apart ? p->rows * p->pairs.used : p->rows;
    gpu_rows in = {p->in.data, apart ? p->inputs : p->in.stride};
    dim3 grid(blocks_for(p->inputs / INPUT_BLOCK, DECODE_WARPS), rows);
    CUDA_LAUNCH_EARLY(decode_input_kernel, grid, DECODE_WARPS * WARP, s)
    (in, p->numbers, rows, p->inputs, gpu_decode_form(p->dtype, 1, false));
    switch (p->dtype) {
    case DTYPE_Q8_0: pairs_launch<DTYPE_Q8_0>(s, *p); break;
    case DTYPE_Q4_0: pairs_launch<DTYPE_Q4_0>(s, *p); break;
    case DTYPE_Q4_1: pairs_launch<DTYPE_Q4_1>(s, *p); break;
    case DTYPE_Q5_0: pairs_launch<DTYPE_Q5_0>(s, *p); break;
    case DTYPE_Q5_1: pairs_launch<DTYPE_Q5_1>(s, *p); break;
    case DTYPE_Q4_K: pairs_launch<DTYPE_Q4_K>(s, *p); break;
    case DTYPE_Q5_K: pairs_launch<DTYPE_Q5_K>(s, *p); break;
    case DTYPE_Q6_K: pairs_launch<DTYPE_Q6_K>(s, *p); break;
    case DTYPE_MXFP4: pairs_launch<DTYPE_MXFP4>(s, *p); break;
    default: break;
    }
}
