/* Operators of networks (agent/backend/arrays.h): element by element, along axes, by rows, products
 * of stacks of matrices. */
#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/kernels.h"
#include "agent/backend/cuda/tiles.cuh"

enum {
    EACH_THREADS = 256,
    ROW_FEW = 1024, /* elements of a row that a warp does alone */
    ROW_THREADS = 256,
};

/* ---- walks ---- */

static uint64_t walk_count(const nn_loop &l)
{
    uint64_t n = 1;
    for (int d = 0; d < l.n_dims; d++)
        n *= (uint64_t)l.dims[d];
    return n;
}

/* Where element i of a walk lies in each of its views. */
static __device__ __forceinline__ void walk_find(const nn_loop &l, uint64_t i,
                                                 int64_t (&at)[LOOP_VIEWS])
{
    for (int v = 0; v < LOOP_VIEWS; v++)
        at[v] = 0;
    for (int d = l.n_dims - 1; d >= 0; d--) {
        uint64_t n = (uint64_t)l.dims[d], k = d ? i % n : i;
        i = d ? i / n : 0;
        for (int v = 0; v < LOOP_VIEWS; v++)
            at[v] += (int64_t)k * l.strides[v][d];
    }
}

/* ---- element by element ---- */

static __device__ float soft_plus(float x)
{
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

static __device__ float function_value(int f, float x, float a, float b)
{
    switch (f) {
    case NN_RELU: return x < 0 ? a * x : x;
    case NN_CLIP: return fminf(fmaxf(x, a), b);
    case NN_SIGMOID: return 1.0f / (1.0f + expf(-x));
    case NN_TANH: return tanhf(x);
    case NN_ELU: return x < 0 ? a * expm1f(x) : x;
    case NN_GELU_ERF: return 0.5f * x * (1.0f + erff(0.707106781f * x));
    case NN_GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.797884561f * (x + 0.044715f * x * x * x)));
    case NN_SWISH: return x / (1.0f + expf(-a * x));
    case NN_HARD_SWISH: return x * fminf(fmaxf(x / 6.0f + 0.5f, 0.0f), 1.0f);
    case NN_MISH: return x * tanhf(soft_plus(x));
    default: return a * x + b; /* NN_LINEAR */
    }
}

static __device__ float unary_value(int f, float x, float a, float b)
{
    switch (f) {
    case NN_ABS: return fabsf(x);
    case NN_NEG: return -x;
    case NN_SQRT: return sqrtf(x);
    case NN_RECIPROCAL: return 1.0f / x;
    case NN_LEAKY: return x < 0 ? a * x : x;
    case NN_BOUND: return fminf(fmaxf(x, a), b);
    case NN_HARD_SIGMOID: return fminf(fmaxf(a * x + b, 0.0f), 1.0f);
    case NN_HARD_SWISHED: return x * fminf(fmaxf(x / 6.0f + 0.5f, 0.0f), 1.0f);
    case NN_SQUARE: return x * x;
    case NN_EXPONENT: return expf(x);
    case NN_SOFTPLUS: return soft_plus(x);
    default: return a * x + b; /* NN_SCALE */
    }
}

static __device__ float binary_value(int f, float x, float y)
{
    switch (f) {
    case NN_SUB: return x - y;
    case NN_TIMES: return x * y;
    case NN_DIVIDE: return x / y;
    case NN_MAX: return fmaxf(x, y);
    case NN_MIN: return fminf(x, y);
    case NN_PRELU: return x < 0 ? x * y : x;
    default: return x + y; /* NN_ADD */
    }
}

__global__ void elements_kernel(array_elements c, uint64_t n)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t at[LOOP_VIEWS];
    if (i >= n)
        return;
    walk_find(c.loop, i, at);
    switch (c.rule) {
    case ARRAY_COPY: ((uint32_t *)c.out)[at[0]] = ((const uint32_t *)c.x)[at[1]]; break;
    case ARRAY_FILL: c.out[at[0]] = c.a; break;
    case ARRAY_FUNCTION: c.out[at[0]] = function_value(c.f, c.x[at[1]], c.a, c.b); break;
    case ARRAY_UNARY: c.out[at[0]] = unary_value(c.f, c.x[at[1]], c.a, c.b); break;
    case ARRAY_BINARY: c.out[at[0]] = binary_value(c.f, c.x[at[1]], c.y[at[2]]); break;
    }
}

void gpu_array_elements(struct CUstream_st *s, const struct array_elements *c)
{
    uint64_t n = walk_count(c->loop);
    if (n)
        CUDA_LAUNCH(elements_kernel, blocks_for(n, EACH_THREADS), EACH_THREADS, s)(*c, n);
}

/* ---- along axes, and by rows ---- */

/* Of all threads of a block; `parts` has room for one a warp, and may be used again. */
static __device__ float block_all(float x, float *parts, bool is_max)
{
    float all = is_max ? warp_max(x) : warp_sum(x);
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = all;
    __syncthreads();
    all = parts[0];
    for (unsigned i = 1; i < blockDim.x / WARP; i++)
        all = is_max ? fmaxf(all, parts[i]) : all + parts[i];
    __syncthreads();
    return all;
}

static unsigned row_threads(uint64_t n)
{
    return n > ROW_FEW ? (unsigned)ROW_THREADS : (unsigned)WARP;
}

/* A block a number. */
__global__ void reduce_kernel(nn_reduction r, float *out, const float *x, uint64_t n)
{
    __shared__ float parts[ROW_THREADS / WARP];
    int64_t at[LOOP_VIEWS], in[LOOP_VIEWS];
    float all = r.is_max ? -INFINITY : 0.0f;
    walk_find(r.stays, blockIdx.x, at);
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
        walk_find(r.gone, i, in);
        float value = x[at[1] + in[1]];
        all = r.is_max ? fmaxf(all, value) : all + value;
    }
    all = block_all(all, parts, r.is_max);
    if (threadIdx.x == 0)
        out[at[0]] = all * r.scale;
}

void gpu_array_reduce(struct CUstream_st *s, const struct nn_reduction *r, float *out,
                      const float *x)
{
    uint64_t n = walk_count(r->gone);
    CUDA_LAUNCH(reduce_kernel, (unsigned)walk_count(r->stays), row_threads(n), s)(*r, out, x, n);
}

/* A block a row. */
__global__ void softmax_kernel(array_softmax c)
{
    __shared__ float parts[ROW_THREADS / WARP];
    const float *x = c.x + blockIdx.x * c.n;
    float *out = c.out + blockIdx.x * c.n, most = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < c.n; i += blockDim.x)
        most = fmaxf(most, x[i]);
    most = block_all(most, parts, true);
    for (int64_t i = threadIdx.x; i < c.n; i += blockDim.x)
        sum += expf(x[i] - most);
    sum = block_all(sum, parts, false);
    float log_sum = logf(sum);
    for (int64_t i = threadIdx.x; i < c.n; i += blockDim.x)
        out[i] = c.is_log ? x[i] - most - log_sum : expf(x[i] - most) / sum;
}

void gpu_array_softmax(struct CUstream_st *s, const struct array_softmax *c)
{
    CUDA_LAUNCH(softmax_kernel, (unsigned)c->rows, row_threads((uint64_t)c->n), s)(*c);
}

__global__ void array_norm_kernel(array_norm c)
{
    __shared__ float parts[ROW_THREADS / WARP];
    const float *x = c.x + blockIdx.x * c.n;
    float *out = c.out + blockIdx.x * c.n, sum = 0, squares = 0;
    int64_t channel = c.channels ? blockIdx.x % c.channels : 0;
    for (int64_t i = threadIdx.x; i < c.n; i += blockDim.x)
        sum += x[i];
    float mean = block_all(sum, parts, false) / (float)c.n;
    for (int64_t i = threadIdx.x; i < c.n; i += blockDim.x)
        squares += (x[i] - mean) * (x[i] - mean);
    squares = block_all(squares, parts, false);
    float by = 1.0f / sqrtf(squares / (float)c.n + c.epsilon);
    for (int64_t i = threadIdx.x; i < c.n; i += blockDim.x) {
        int64_t k = c.channels ? channel : i;
        out[i] = (x[i] - mean) * by * (c.scale ? c.scale[k] : 1.0f) + (c.shift ? c.shift[k] : 0.0f);
    }
}

void gpu_array_norm(struct CUstream_st *s, const struct array_norm *c)
{
    CUDA_LAUNCH(array_norm_kernel, (unsigned)c->rows, row_threads((uint64_t)c->n), s)(*c);
}

/* What a token does not see, and where there are sinks a column more. */
__global__ void causal_kernel(array_causal c)
{
    int64_t row = blockIdx.x, own = row % c.tokens, columns = c.tokens + (c.sinks ? 1 : 0),
            first = c.window > 0 && own >= c.window ? own - c.window + 1 : 0;
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x)
        c.out[row * columns + i] = i == c.tokens          ? c.sinks[row / c.tokens % c.heads]
                                   : i < first || i > own ? c.hidden
                                                          : c.x[row * c.tokens + i];
}

void gpu_array_causal(struct CUstream_st *s, const struct array_causal *c)
{
    CUDA_LAUNCH(causal_kernel, (unsigned)c->rows, row_threads((uint64_t)c->tokens), s)(*c);
}

static __device__ __forceinline__ float score_value(const array_scores &c, int64_t at)
{
    float v = c.x[at] * c.scale;
    return c.cap != 0.0f ? c.cap * tanhf(v / c.cap) : v;
}

/* A block a row. */
__global__ void scores_kernel(array_scores c)
{
    __shared__ float parts[ROW_THREADS / WARP];
    int64_t row = blockIdx.x, from = row * c.n, best = c.n;
    float *out = c.out + row * 3, most = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < c.n; i += blockDim.x) {
        float v = score_value(c, from + i);
        best = v > most || best == c.n ? i : best;
        most = fmaxf(most, v);
    }
    float all = block_all(most, parts, true);
    /* Of those that have it the first: numbers of tokens are exact as floats. */
    float first = -block_all(most == all ? -(float)best : -INFINITY, parts, true);
    for (int64_t i = threadIdx.x; i < c.n; i += blockDim.x)
        sum += expf(score_value(c, from + i) - all);
    float log_sum = logf(block_all(sum, parts, false));
    if (threadIdx.x == 0) {
        bool wanted = c.wanted[row] != 0;
        out[0] = wanted ? score_value(c, from + c.ids[row]) - all - log_sum : 0.0f;
        out[1] = wanted ? first : 0.0f;
        out[2] = wanted ? -log_sum : 0.0f;
    }
}

void gpu_array_scores(struct CUstream_st *s, const struct array_scores *c)
{
    CUDA_LAUNCH(scores_kernel, (unsigned)c->rows, row_threads((uint64_t)c->n), s)(*c);
}

/* ---- products ---- */

struct product_tile {
    const float *x, *w;
    int64_t row, column; /* its first */
};

/* TILE rows of x and columns of w, TILE_INNER of each, to shared memory; threads that follow each
 * other read what lies side by side. */
static __device__ __forceinline__ void tile_load(const array_product &p, const product_tile &t,
                                                 int64_t k0, float (*xs)[TILE + 1],
                                                 float (*ws)[TILE + 1])
{
    for (uint32_t i = threadIdx.x; i < TILE * TILE_INNER; i += TILE_THREADS) {
        uint32_t k = p.x_inner == 1 ? i % TILE_INNER : i / TILE,
                 r = p.x_inner == 1 ? i / TILE_INNER : i % TILE;
        bool there = t.row + r < p.rows && k0 + k < p.inner;
        xs[k][r] = there ? t.x[(t.row + r) * p.x_row + (k0 + k) * p.x_inner] : 0.0f;
        uint32_t wk = p.w_column == 1 ? i / TILE : i % TILE_INNER,
                 c = p.w_column == 1 ? i % TILE : i / TILE_INNER;
        there = t.column + c < p.columns && k0 + wk < p.inner;
        ws[wk][c] = there ? t.w[(k0 + wk) * p.w_inner + (t.column + c) * p.w_column] : 0.0f;
    }
}

/* Matrices of a stack from `first` on, their columns from `column` on. */
__global__ void stack_product_kernel(array_product p, uint64_t first, int64_t column)
{
    __shared__ float xs[TILE_INNER][TILE + 1], ws[TILE_INNER][TILE + 1];
    int64_t at[LOOP_VIEWS];
    float sums[TILE_SIDE][TILE_SIDE] = {};
    walk_find(p.stack, first + blockIdx.z, at);
    const product_tile t = {p.x + at[1], p.w + at[2], (int64_t)blockIdx.x * TILE,
                            column + (int64_t)blockIdx.y * TILE};
    for (int64_t k0 = 0; k0 < p.inner; k0 += TILE_INNER) {
        tile_load(p, t, k0, xs, ws);
        __syncthreads();
        tile_multiply(xs, ws, sums);
        __syncthreads();
    }
    for (uint32_t a = 0; a < TILE_SIDE; a++)
        for (uint32_t b = 0; b < TILE_SIDE; b++) {
            int64_t r = t.row + tile_row(a), c = t.column + tile_column(b);
            if (r < p.rows && c < p.columns)
                p.y[at[0] + r * p.y_row + c] = sums[a][b] + (p.bias ? p.bias[c] : 0.0f);
        }
}

void gpu_array_product(struct CUstream_st *s, const struct array_product *p)
{
    uint64_t n = walk_count(p->stack), tiles = blocks_for((uint64_t)p->columns, TILE);
    for (uint64_t first = 0; first < n; first += GRID_MOST)
        for (uint64_t tile = 0; tile < tiles; tile += GRID_MOST) {
            dim3 grid(blocks_for((uint64_t)p->rows, TILE), grid_side(tiles - tile),
                      grid_side(n - first));
            CUDA_LAUNCH(stack_product_kernel, grid, TILE_THREADS, s)
            (*p, first, (int64_t)tile * TILE);
        }
}
