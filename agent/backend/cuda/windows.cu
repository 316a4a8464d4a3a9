/* Convolutions and poolings of networks (agent/backend/arrays.h), channels innermost. */
#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/kernels.h"
#include "agent/backend/cuda/tiles.cuh"

enum {
    EACH_THREADS = 256,
    FEW_COLUMNS = 8 /* outputs of a group that are worth no tile */
};

/* ---- convolutions ---- */

/* A place of the output: of which sample, and where its window begins in the input. */
struct conv_place {
    const float *x; /* the sample's; NULL: there is no such place */
    int64_t at[NN_AXES];
};

static __device__ __forceinline__ conv_place place_of(const array_conv &c, int64_t row)
{
    conv_place p;
    int64_t places = c.out[0] * c.out[1] * c.out[2], i = row % places, sample = row / places;
    p.x = sample < c.batch ? c.x + sample * c.in[0] * c.in[1] * c.in[2] * c.in_channels : nullptr;
    for (int d = NN_AXES - 1; d >= 0; d--) {
        p.at[d] = i % c.out[d] * c.stride[d] - c.before[d];
        i /= c.out[d];
    }
    return p;
}

/* The element of the input that tap `tap` of a window meets, of a group's channel; 0 beside it. */
static __device__ __forceinline__ float tap_read(const array_conv &c, const conv_place &p,
                                                 int64_t tap, int64_t channel)
{
    int64_t offset = 0, at[NN_AXES];
    bool inside = p.x != nullptr;
    for (int d = NN_AXES - 1; d >= 0; d--) {
        at[d] = p.at[d] + tap % c.kernel[d] * c.dilation[d];
        tap /= c.kernel[d];
        inside = inside && at[d] >= 0 && at[d] < c.in[d];
    }
    for (int d = 0; d < NN_AXES; d++)
        offset = offset * c.in[d] + at[d];
    return inside ? p.x[offset * c.in_channels + channel] : 0.0f;
}

/* A tile of places and of a group's outputs from `first` on, as a product whose rows are windows.
 */
__global__ void conv_kernel(array_conv c, int64_t first)
{
    __shared__ float xs[TILE_INNER][TILE + 1], ws[TILE_INNER][TILE + 1];
    uint32_t own = threadIdx.x % TILE_INNER; /* of TILE_INNER, as it fills the tiles */
    int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2], inputs = c.in_channels / c.groups,
            outputs = c.out_channels / c.groups, inner = taps * inputs, group = blockIdx.z,
            row = (int64_t)blockIdx.x * TILE, column = first + (int64_t)blockIdx.y * TILE,
            rows = c.batch * c.out[0] * c.out[1] * c.out[2];
    const float *w = c.w + group * outputs * inner;
    conv_place places[TILE_SIDE];
    float sums[TILE_SIDE][TILE_SIDE] = {};
    for (uint32_t j = 0; j < TILE_SIDE; j++)
        places[j] = place_of(c, row + tile_row(j));
    for (int64_t k0 = 0; k0 < inner; k0 += TILE_INNER) {
        int64_t k = k0 + own, tap = k / inputs, channel = k % inputs;
        for (uint32_t j = 0; j < TILE_SIDE; j++) {
            int64_t output = column + tile_row(j);
            xs[own][tile_row(j)] =
                k < inner ? tap_read(c, places[j], tap, group * inputs + channel) : 0.0f;
            ws[own][tile_row(j)] =
                k < inner && output < outputs ? w[output * inner + channel * taps + tap] : 0.0f;
        }
        __syncthreads();
        tile_multiply(xs, ws, sums);
        __syncthreads();
    }
    for (uint32_t a = 0; a < TILE_SIDE; a++)
        for (uint32_t b = 0; b < TILE_SIDE; b++) {
            int64_t r = row + tile_row(a), o = column + tile_column(b), all = group * outputs + o;
            if (r < rows && o < outputs)
                c.y[r * c.out_channels + all] = sums[a][b] + (c.bias ? c.bias[all] : 0.0f);
        }
}

/* Of few outputs a group, a channel by itself among them: a thread an element. */
__global__ void conv_few_kernel(array_conv c, uint64_t n)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2], inputs = c.in_channels / c.groups,
            outputs = c.out_channels / c.groups;
    if (i >= n)
        return;
    int64_t output = (int64_t)(i % c.out_channels), group = output / outputs;
    const conv_place p = place_of(c, (int64_t)(i / c.out_channels));
    const float *w = c.w + output * inputs * taps;
    float sum = c.bias ? c.bias[output] : 0.0f;
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t k = 0; k < inputs; k++)
            sum += tap_read(c, p, tap, group * inputs + k) * w[k * taps + tap];
    c.y[i] = sum;
}

/* The place of the input from which tap `tap` reaches the output's place `o` along an axis; -1:
 * none. */
static __device__ __forceinline__ int64_t turned_place(const array_conv &c, int d, int64_t o,
                                                       int64_t tap)
{
    int64_t at = o + c.before[d] - tap * c.dilation[d];
    if (at < 0 || at % c.stride[d] || at / c.stride[d] >= c.in[d])
        return -1;
    return at / c.stride[d];
}

/* Transposed: a thread an element. */
__global__ void conv_turned_kernel(array_conv c, uint64_t n)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2], inputs = c.in_channels / c.groups,
            outputs = c.out_channels / c.groups, o[NN_AXES];
    if (i >= n)
        return;
    int64_t output = (int64_t)(i % c.out_channels), first = output / outputs * inputs,
            rest = (int64_t)(i / c.out_channels);
    for (int d = NN_AXES - 1; d >= 0; d--) {
        o[d] = rest % c.out[d];
        rest /= c.out[d];
    }
    float sum = c.bias ? c.bias[output] : 0.0f;
    for (int64_t tap = 0; tap < taps; tap++) {
        int64_t t = tap, at[NN_AXES], offset = rest;
        for (int d = NN_AXES - 1; d >= 0; d--) {
            at[d] = turned_place(c, d, o[d], t % c.kernel[d]);
            t /= c.kernel[d];
        }
        for (int d = 0; d < NN_AXES; d++)
            offset = offset * c.in[d] + at[d];
        if (at[0] < 0 || at[1] < 0 || at[2] < 0)
            continue;
        for (int64_t k = first; k < first + inputs; k++)
            sum += c.x[offset * c.in_channels + k] *
                   c.w[(k * outputs + output % outputs) * taps + tap];
    }
    c.y[i] = sum;
}

void gpu_array_conv(struct CUstream_st *s, const struct array_conv *c)
{
    uint64_t rows = (uint64_t)(c->batch * c->out[0] * c->out[1] * c->out[2]),
             outputs = (uint64_t)(c->out_channels / c->groups), n = rows * c->out_channels,
             tiles = blocks_for(outputs, TILE);
    if (c->turned) {
        CUDA_LAUNCH(conv_turned_kernel, blocks_for(n, EACH_THREADS), EACH_THREADS, s)(*c, n);
        return;
    }
    if (outputs < FEW_COLUMNS || c->groups > UINT16_MAX) {
        CUDA_LAUNCH(conv_few_kernel, blocks_for(n, EACH_THREADS), EACH_THREADS, s)(*c, n);
        return;
    }
    for (uint64_t tile = 0; tile < tiles; tile += GRID_MOST) {
        dim3 grid(blocks_for(rows, TILE), grid_side(tiles - tile), (unsigned)c->groups);
        CUDA_LAUNCH(conv_kernel, grid, TILE_THREADS, s)(*c, (int64_t)tile * TILE);
    }
}

/* ---- poolings ---- */

/* Elements [first, end) of a window along an axis that lie in [least, most). */
static __device__ __forceinline__ void reach_find(const nn_pool &p, int d, int64_t at,
                                                  int64_t least, int64_t most, int64_t *first,
                                                  int64_t *end)
{
    int64_t step = p.dilation[d];
    *first = at >= least ? 0 : (least - at + step - 1) / step;
    *end = at >= most ? 0 : (most - at - 1) / step + 1;
    *end = *end > p.kernel[d] ? p.kernel[d] : *end;
}

/* A thread an element: the largest, the mean, or a sum of products of each channel by itself. */
__global__ void pool_kernel(nn_pool p, float *out, const float *x, uint64_t n)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x, rest = i / p.channels;
    int64_t at[NN_AXES], first[NN_AXES], end[NN_AXES], padded = 1, count = 1, k[NN_AXES];
    if (i >= n)
        return;
    int64_t channel = (int64_t)(i % p.channels);
    for (int d = NN_AXES - 1; d >= 0; d--) {
        int64_t a, b;
        at[d] = (int64_t)(rest % p.out[d]) * p.stride[d] - p.before[d];
        rest /= p.out[d];
        reach_find(p, d, at[d], -p.before[d], p.in[d] + p.after[d], &a, &b);
        padded *= b - a;
        reach_find(p, d, at[d], 0, p.in[d], &first[d], &end[d]);
        count *= end[d] > first[d] ? end[d] - first[d] : 0;
    }
    float all = p.is_max ? -INFINITY : p.bias ? p.bias[channel] : 0.0f;
    const float *sample = x + (int64_t)rest * p.in[0] * p.in[1] * p.in[2] * p.channels + channel;
    for (k[0] = first[0]; k[0] < end[0]; k[0]++)
        for (k[1] = first[1]; k[1] < end[1]; k[1]++)
            for (k[2] = first[2]; k[2] < end[2]; k[2]++) {
                int64_t offset = 0;
                for (int d = 0; d < NN_AXES; d++)
                    offset = offset * p.in[d] + at[d] + k[d] * p.dilation[d];
                float value = sample[offset * p.channels];
                if (p.weights)
                    value *=
                        p.weights[((k[0] * p.kernel[1] + k[1]) * p.kernel[2] + k[2]) * p.channels +
                                  channel];
                all = p.is_max ? fmaxf(all, value) : all + value;
            }
    if (!p.is_max && !p.weights && count)
        all /= (float)(p.counts_pads ? padded : count);
    out[i] = all;
}

void gpu_array_pool(struct CUstream_st *s, const struct nn_pool *p, float *out, const float *x)
{
    uint64_t n = (uint64_t)(p->batch * p->channels * p->out[0] * p->out[1] * p->out[2]);
    CUDA_LAUNCH(pool_kernel, blocks_for(n, EACH_THREADS), EACH_THREADS, s)(*p, out, x, n);
}

/* ---- resizing ---- */

__global__ void resize_kernel(array_resize c, uint64_t n)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int64_t k = (int64_t)(i % c.inner), row = (int64_t)(i / c.inner);
    const array_tap t = c.taps[row % c.out];
    const float *x = c.x + row / c.out * c.in * c.inner + k;
    float made = x[t.at[0] * c.inner] * t.weight[0];
    c.to[i] = t.weight[1] != 0.0f ? made + x[t.at[1] * c.inner] * t.weight[1] : made;
}

void gpu_array_resize(struct CUstream_st *s, const struct array_resize *c)
{
    uint64_t n = (uint64_t)(c->outer * c->out * c->inner);
    CUDA_LAUNCH(resize_kernel, blocks_for(n, EACH_THREADS), EACH_THREADS, s)(*c, n);
}
