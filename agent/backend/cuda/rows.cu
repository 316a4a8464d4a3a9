/* Operators on rows: element by element, norms, gathering, rotation. */
#include "agent/backend/cuda/formats.cuh"
#include "agent/backend/cuda/forms.cuh"
#include "agent/backend/cuda/rope.cuh"

enum { ROW_THREADS = 256, WIDE = 4, NORM_THREADS = 1024, NORM_FEW = 512, NORM_EACH = 4 };

/* Rows whose elements may be read and written four at a time. */
static bool is_wide(const gpu_rows &r)
{
    return r.stride % WIDE == 0 && (uintptr_t)r.data % sizeof(float4) == 0;
}

/* ---- element by element ---- */

static __device__ float rowwise_value(gpu_rowwise what, float a, float b, float p)
{
    switch (what) {
    case GPU_ADD: return a + b;
    case GPU_MUL: return a * b;
    case GPU_SILU_MUL: return a / (1.0f + expf(-a)) * b;
    case GPU_SCALE: return a * p;
    case GPU_SOFT_CAP: return p * tanhf(a / p);
    case GPU_GELU_MUL:
    case GPU_GELU: return 0.5f * a * (1.0f + tanhf(0.797884561f * (a + 0.044715f * a * a * a)));
    case GPU_GELU_EXACT_MUL:
    case GPU_GELU_EXACT: return 0.5f * a * (1.0f + erff(0.707106781f * a));
    case GPU_GATE: return a * (1.0f / (1.0f + expf(-b)));
    }
    return 0;
}

/* Rows that are formed, and are as many as a product takes at once. */
static uint32_t rows_with(const gpu_formed &f, uint32_t rows)
{
    return f.form != GPU_FORM_NONE && f.rows > rows ? f.rows : rows;
}

/* Rows lie along x, a row's parts along y, a thread has four elements. */
__global__ void rowwise_wide_kernel(gpu_rowwise_call c, uint32_t rows, uint32_t width)
{
    uint64_t r = blockIdx.x;
    uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * WIDE;
    bool there = i < width;
    float values[WIDE] = {};
    earlier_wait();
    if (there && r < rows) {
        float4 a = *(const float4 *)(c.a.data + r * c.a.stride + i),
               b = c.b.data ? *(const float4 *)(c.b.data + r * c.b.stride + i) : float4{};
        const float first[WIDE] = {a.x, a.y, a.z, a.w}, second[WIDE] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (uint32_t k = 0; k < WIDE; k++)
            values[k] = rowwise_value(c.what, first[k], second[k], c.p);
        if (c.first.data)
            *(float4 *)(c.first.data + r * c.first.stride + i) = {values[0], values[1], values[2],
                                                                  values[3]};
#pragma unroll
        for (uint32_t k = 0; k < WIDE; k++)
            if (c.what == GPU_GELU_MUL || c.what == GPU_GELU_EXACT_MUL)
                values[k] *= second[k];
        *(float4 *)(c.out.data + r * c.out.stride + i) = {values[0], values[1], values[2],
                                                          values[3]};
    }
    form_put_4(c.formed, r, width, i, {values[0], values[1], values[2], values[3]}, there);
}

/* The same of rows that begin anywhere. */
__global__ void rowwise_kernel(gpu_rowwise_call c, uint32_t rows, uint32_t width)
{
    uint64_t r = blockIdx.x;
    uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
    float value = 0;
    earlier_wait();
    if (i >= width)
        return;
    if (r < rows) {
        float second = c.b.data ? c.b.data[r * c.b.stride + (c.what == GPU_GATE ? 0 : i)] : 0;
        value = rowwise_value(c.what, c.a.data[r * c.a.stride + i], second, c.p);
        if (c.first.data)
            c.first.data[r * c.first.stride + i] = value;
        if (c.what == GPU_GELU_MUL || c.what == GPU_GELU_EXACT_MUL)
            value *= second;
        c.out.data[r * c.out.stride + i] = value;
    }
    form_put(c.formed, r, width, i, value);
}

void gpu_rowwise_run(struct CUstream_st *s, const struct gpu_rowwise_call *c,
                     struct gpu_shape shape)
{
    bool wide = shape.width % WIDE == 0 && c->what != GPU_GATE && is_wide(c->a) && is_wide(c->b) &&
                is_wide(c->first) && is_wide(c->out);
    dim3 grid(rows_with(c->formed, shape.rows),
              blocks_for(shape.width, wide ? ROW_THREADS * WIDE : ROW_THREADS));
    if (shape.rows == 0 || shape.width == 0)
        return;
    if (wide)
        CUDA_LAUNCH_EARLY(rowwise_wide_kernel, grid, ROW_THREADS, s)(*c, shape.rows, shape.width);
    else
        CUDA_LAUNCH_EARLY(rowwise_kernel, grid, ROW_THREADS, s)(*c, shape.rows, shape.width);
}

/* ---- norms ---- */

static __device__ __forceinline__ float sum_of_4(float4 v)
{
    return v.x + v.y + (v.z + v.w);
}

/* A thread keeps EACH times four elements of a row. */
template <int EACH>
__global__ void __launch_bounds__(NORM_THREADS) norm_wide_kernel(gpu_norm n, uint32_t rows)
{
    __shared__ float means[NORM_THREADS / WARP], squares[NORM_THREADS / WARP];
    uint64_t r = blockIdx.x, part = (uint64_t)blockIdx.y * n.part;
    const float *in = n.in.data + r * n.in.stride + part;
    float4 x[EACH], weight[EACH];
    float sum = 0, mean = 0;
#pragma unroll
    for (uint32_t k = 0; k < EACH; k++) {
        uint32_t i = (k * blockDim.x + threadIdx.x) * WIDE;
        weight[k] = i < n.part ? *(const float4 *)(n.weight + i) : float4{};
    }
    earlier_wait();
#pragma unroll
    for (uint32_t k = 0; k < EACH; k++) {
        uint32_t i = (k * blockDim.x + threadIdx.x) * WIDE;
        bool there = i < n.part && r < rows;
        x[k] = there ? *(const float4 *)(in + i) : float4{};
        if (there && n.addend.data) {
            float4 y = *(const float4 *)(n.addend.data + r * n.addend.stride + i);
            x[k] = {x[k].x + y.x, x[k].y + y.y, x[k].z + y.z, x[k].w + y.w};
            *(float4 *)(n.sum.data + r * n.sum.stride + i) = x[k];
        }
        sum += sum_of_4(x[k]);
    }
    if (n.bias)
        mean = block_sum(sum, means) / (float)n.part;
    sum = 0;
#pragma unroll
    for (uint32_t k = 0; k < EACH; k++) {
        if ((k * blockDim.x + threadIdx.x) * WIDE >= n.part)
            continue;
        x[k] = {x[k].x - mean, x[k].y - mean, x[k].z - mean, x[k].w - mean};
        sum += sum_of_4({x[k].x * x[k].x, x[k].y * x[k].y, x[k].z * x[k].z, x[k].w * x[k].w});
    }
    float scale = 1.0f / sqrtf(block_sum(sum, squares) / (float)n.part + n.epsilon);
#pragma unroll
    for (uint32_t k = 0; k < EACH; k++) {
        uint32_t i = (k * blockDim.x + threadIdx.x) * WIDE;
        bool there = i < n.part;
        float4 w = weight[k], bias = there && n.bias ? *(const float4 *)(n.bias + i) : float4{};
        float4 value = {x[k].x * scale * w.x + bias.x, x[k].y * scale * w.y + bias.y,
                        x[k].z * scale * w.z + bias.z, x[k].w * scale * w.w + bias.w};
        if (r >= rows)
            value = {};
        else if (there)
            *(float4 *)(n.out.data + r * n.out.stride + part + i) = value;
        form_put_4(n.formed, r, n.part, i, value, there);
    }
}

/* A row's sums, of which a thread reads its own alone again. */
static __device__ __forceinline__ const float *addend_add(const gpu_norm &n, const float *x)
{
    const float *y = n.addend.data + blockIdx.x * n.addend.stride;
    float *sums = n.sum.data + blockIdx.x * n.sum.stride;
    for (uint32_t i = threadIdx.x; i < n.part; i += blockDim.x)
        sums[i] = x[i] + y[i];
    return sums;
}

/* The same of rows that begin anywhere, and of wider ones. */
__global__ void norm_kernel(gpu_norm n, uint32_t rows)
{
    __shared__ float means[ROW_THREADS / WARP], squares[ROW_THREADS / WARP];
    const float *x = n.in.data + blockIdx.x * n.in.stride + (uint64_t)blockIdx.y * n.part;
    float *to = n.out.data + blockIdx.x * n.out.stride + (uint64_t)blockIdx.y * n.part;
    float sum = 0, mean = 0;
    earlier_wait();
    if (blockIdx.x >= rows) {
        for (uint32_t i = threadIdx.x; i < n.part; i += blockDim.x)
            form_put(n.formed, blockIdx.x, n.part, i, 0);
        return;
    }
    if (n.addend.data)
        x = addend_add(n, x);
    if (n.bias) {
        for (uint32_t i = threadIdx.x; i < n.part; i += blockDim.x)
            sum += x[i];
        mean = block_sum(sum, means) / (float)n.part;
    }
    sum = 0;
    for (uint32_t i = threadIdx.x; i < n.part; i += blockDim.x)
        sum += (x[i] - mean) * (x[i] - mean);
    float scale = 1.0f / sqrtf(block_sum(sum, squares) / (float)n.part + n.epsilon);
    for (uint32_t i = threadIdx.x; i < n.part; i += blockDim.x) {
        float value = (x[i] - mean) * scale * n.weight[i] + (n.bias ? n.bias[i] : 0);
        to[i] = value;
        form_put(n.formed, blockIdx.x, n.part, i, value);
    }
}

/* NORM_FEW where a thread can have so much of a row: they find room beside blocks of the product
 * before, and fewer take longer (of 4096 elements on an H100: bench/results/gpu.txt). */
static uint32_t norm_threads(uint32_t fours)
{
    uint32_t warps = blocks_for(fours, WARP), least = blocks_for(fours, WARP * NORM_EACH),
             few = NORM_FEW / WARP;
    return (warps < few ? warps : least > few ? least : few) * WARP;
}

void gpu_norm_run(struct CUstream_st *s, const struct gpu_norm *n, struct gpu_shape shape)
{
    dim3 grid(rows_with(n->formed, shape.rows), shape.width / n->part);
    uint32_t fours = n->part / WIDE, threads = norm_threads(fours),
             each = blocks_for(fours, threads ? threads : 1);
    bool wide = n->part % WIDE == 0 && threads <= NORM_THREADS && is_wide(n->in) &&
                is_wide(n->addend) && is_wide(n->sum) && is_wide(n->out) &&
                (uintptr_t)n->weight % sizeof(float4) == 0 &&
                (uintptr_t)n->bias % sizeof(float4) == 0;
    if (shape.rows == 0)
        return;
    if (!wide)
        CUDA_LAUNCH_EARLY(norm_kernel, grid, ROW_THREADS, s)(*n, shape.rows);
    else if (each == 1)
        CUDA_LAUNCH_EARLY(norm_wide_kernel<1>, grid, threads, s)(*n, shape.rows);
    else if (each == 2)
        CUDA_LAUNCH_EARLY(norm_wide_kernel<2>, grid, threads, s)(*n, shape.rows);
    else
        CUDA_LAUNCH_EARLY(norm_wide_kernel<NORM_EACH>, grid, threads, s)(*n, shape.rows);
}

/* ---- gathering ---- */

template <int DTYPE>
__global__ void embed_kernel(const uint8_t *table, uint64_t row_bytes, const uint32_t *ids,
                             uint32_t first, gpu_rows out, uint32_t width)
{
    uint64_t r = blockIdx.x, row = (uint64_t)first + (ids ? ids[r] : 0);
    uint32_t at = (blockIdx.y * blockDim.x + threadIdx.x) * FORMAT_RUN;
    float values[FORMAT_RUN];
    if (at >= width)
        return;
    format_read<DTYPE>(table + row * row_bytes, at, width - at, values);
    for (uint32_t i = 0; i < FORMAT_RUN && at + i < width; i++)
        out.data[r * out.stride + at + i] = values[i];
}

void gpu_embed(struct CUstream_st *s, int dtype, const void *table, uint64_t row_bytes,
               const uint32_t *ids, uint32_t first, struct gpu_rows out, struct gpu_shape shape)
{
    dim3 grid(shape.rows, blocks_for(shape.width, ROW_THREADS * FORMAT_RUN));
#define EMBED(d)                                                                                   \
    CUDA_LAUNCH(embed_kernel<d>, grid, ROW_THREADS, s)                                             \
    ((const uint8_t *)table, row_bytes, ids, first, out, shape.width)
    if (shape.rows)
        FORMAT_SWITCH(dtype, EMBED);
}

__global__ void gather_kernel(gpu_rows in, const uint32_t *index, gpu_rows out, uint32_t width)
{
    uint64_t r = blockIdx.x, from = index[r];
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x)
        out.data[r * out.stride + i] = in.data[from * in.stride + i];
}

void gpu_gather(struct CUstream_st *s, struct gpu_rows in, const uint32_t *index,
                struct gpu_rows out, struct gpu_shape shape)
{
    if (shape.rows)
        CUDA_LAUNCH(gather_kernel, shape.rows, ROW_THREADS, s)(in, index, out, shape.width);
}

/* ---- rotation ---- */

static const uint32_t position_long = 0x80000000u; /* GRAPH_POSITION_LONG */

__global__ void rope_angles_kernel(const double *frequencies, double magnitude, uint32_t pairs,
                                   const uint32_t *positions, gpu_rows out)
{
    uint32_t position = positions[blockIdx.x];
    float *to = out.data + blockIdx.x * out.stride;
    for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x) {
        double turn = (double)(position & ~position_long) *
                      frequencies[(position & position_long ? pairs : 0) + i];
        to[i * 2] = (float)(magnitude * cos(turn));
        to[i * 2 + 1] = (float)(magnitude * sin(turn));
    }
}

void gpu_rope_angles(struct CUstream_st *s, const double *frequencies, double magnitude,
                     uint32_t pairs, const uint32_t *positions, struct gpu_rows out, uint32_t rows)
{
    if (rows)
        CUDA_LAUNCH(rope_angles_kernel, rows, 64, s)(frequencies, magnitude, pairs, positions, out);
}

__global__ void rope_kernel(gpu_rope how, gpu_rows in, gpu_rows angles, gpu_rows out)
{
    rope_row(how, in.data + blockIdx.x * in.stride, angles.data + blockIdx.x * angles.stride,
             out.data + blockIdx.x * out.stride, 0, how.heads);
}

void gpu_rope_run(struct CUstream_st *s, const struct gpu_rope *how, struct gpu_rows in,
                  struct gpu_rows angles, struct gpu_rows out, uint32_t rows)
{
    if (rows)
        CUDA_LAUNCH(rope_kernel, rows, ROW_THREADS, s)(*how, in, angles, out);
}

/* ---- number formats of rows ---- */

enum { WIRE = 64, WIRE_BYTES = 72, WIRE_KEPT = -128 };

__global__ void narrow_half_kernel(int dtype, gpu_rows in, uint16_t *out, uint64_t out_stride,
                                   uint32_t width)
{
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        float v = in.data[blockIdx.x * in.stride + i];
        out[blockIdx.x * out_stride + i] = dtype == DTYPE_F16 ? narrow_f16(v) : narrow_bf16(v);
    }
}

__global__ void widen_half_kernel(int dtype, const uint16_t *in, uint64_t in_stride, gpu_rows out,
                                  uint32_t width)
{
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        unsigned short h = in[blockIdx.x * in_stride + i];
        out.data[blockIdx.x * out.stride + i] = dtype == DTYPE_F16
                                                    ? __half2float(__ushort_as_half(h))
                                                    : __uint_as_float((unsigned)h << 16);
    }
}

static __device__ unsigned magnitude_bits(float v)
{
    return __float_as_uint(v) & 0x7fffffff;
}

/* The first of the largest magnitudes but element `without`. */
static __device__ int wire_largest(const float *block, int without)
{
    int at = without == 0 ? 1 : 0;
    for (int i = at + 1; i < WIRE; i++)
        if (i != without && magnitude_bits(block[i]) > magnitude_bits(block[at]))
            at = i;
    return at;
}

/* A thread a block of 64. */
__global__ void narrow_wire_kernel(gpu_rows in, uint8_t *out, uint64_t row_bytes, uint32_t width)
{
    for (uint32_t n = threadIdx.x; n < width / WIRE; n += blockDim.x) {
        const float *block = in.data + blockIdx.x * in.stride + n * WIRE;
        uint8_t *to = out + blockIdx.x * row_bytes + n * WIRE_BYTES;
        int kept = wire_largest(block, -1);
        float most = __uint_as_float(magnitude_bits(block[wire_largest(block, kept)]));
        most = most < 3e38f ? most : 3e38f;
        float scale = most < 1e-30f ? 0 : most / 127, inverse = most < 1e-30f ? 0 : 127 / most;
        *(float *)to = scale;
        *(float *)(to + 4) = block[kept];
        for (int i = 0; i < WIRE; i++) {
            float v = block[i] < most ? block[i] : most;
            v = v > -most ? v : -most;
            to[8 + i] = (uint8_t)(int8_t)(i == kept ? WIRE_KEPT : (int)rintf(v * inverse));
        }
    }
}

__global__ void widen_wire_kernel(const uint8_t *in, uint64_t row_bytes, gpu_rows out,
                                  uint32_t width)
{
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        const uint8_t *block = in + blockIdx.x * row_bytes + i / WIRE * WIRE_BYTES;
        int code = (int8_t)block[8 + i % WIRE];
        out.data[blockIdx.x * out.stride + i] =
            code == WIRE_KEPT ? *(const float *)(block + 4) : *(const float *)block * (float)code;
    }
}

void gpu_narrow(struct CUstream_st *s, int dtype, struct gpu_rows in, void *out, uint64_t row_bytes,
                struct gpu_shape shape)
{
    if (shape.rows == 0)
        return;
    if (dtype == DTYPE_F16 || dtype == DTYPE_BF16)
        CUDA_LAUNCH(narrow_half_kernel, shape.rows, ROW_THREADS, s)
    (dtype, in, (uint16_t *)out, row_bytes / 2, shape.width);
    else CUDA_LAUNCH(narrow_wire_kernel, shape.rows, WARP, s)(in, (uint8_t *)out, row_bytes,
                                                              shape.width);
}

void gpu_widen(struct CUstream_st *s, int dtype, const void *in, uint64_t row_bytes,
               struct gpu_rows out, struct gpu_shape shape)
{
    if (shape.rows == 0)
        return;
    if (dtype == DTYPE_F16 || dtype == DTYPE_BF16)
        CUDA_LAUNCH(widen_half_kernel, shape.rows, ROW_THREADS, s)
    (dtype, (const uint16_t *)in, row_bytes / 2, out, shape.width);
    else CUDA_LAUNCH(widen_wire_kernel, shape.rows, ROW_THREADS, s)((const uint8_t *)in, row_bytes,
                                                                    out, shape.width);
}
