/* A small network with most of what the engine fuses and lays out in its own way: convolutions with
 * batch normalization, gates, residuals, joined and shuffled channels, poolings, resizing, and a
 * head of matrices. Input [batch, 3, any, any], outputs pictures and [batch, 10]. */
#ifndef HP_TESTS_UNIT_AGENT_ENGINE_SMALL_NETWORK_H
#define HP_TESTS_UNIT_AGENT_ENGINE_SMALL_NETWORK_H

#include "agent/engine/network/network_engine.h"
#include "tests/unit/onnx_writer.h"

static inline struct buffer small_network_file(void)
{
    struct onnx_writer w = {.random = 7};
    static const int64_t input[] = {-1, 3, -1, -1}, output[] = {-1, 10}, channels[] = {24};
    static const int64_t split[] = {0, 2, 12}, back[] = {0, 24}, two[] = {2, 2};
    static const int64_t swap[] = {0, 2, 1, 3, 4}, last[] = {0, 2, 3, 1}, head[] = {24, 10};
    static const int64_t pads[] = {1, 1, 1, 1}, three[] = {3, 3}, axes[] = {2, 3};
    static const float scales[] = {1, 1, 2, 2};
    ow_end(&w, 11, "x", 4, input);
    ow_conv(&w, "x", "c0", 3, 24, 3, 2, 1);
    ow_weight(&w, "n0.s", 1, 1, channels);
    ow_weight(&w, "n0.b", 0, 1, channels);
    ow_weight(&w, "n0.m", 0, 1, channels);
    ow_weight(&w, "n0.v", 1, 1, channels);
    ow_node(&w, "BatchNormalization", "c0 n0.s n0.b n0.m n0.v", "n0");
    ow_node(&w, "Relu", "n0", "r0");
    ow_conv(&w, "r0", "d1", 24, 24, 3, 1, 24); /* depthwise, then x * sigmoid(x) */
    ow_node(&w, "Sigmoid", "d1", "s1");
    ow_node(&w, "Mul", "d1 s1", "g1");
    ow_node(&w, "GlobalAveragePool", "g1", "p1"); /* a gate of one number a channel */
    ow_conv(&w, "p1", "q1", 24, 8, 1, 1, 1);
    ow_node(&w, "Relu", "q1", "q2");
    ow_conv(&w, "q2", "q3", 8, 24, 1, 1, 1);
    ow_node(&w, "HardSigmoid", "q3", "q4");
    ow_node(&w, "Mul", "g1 q4", "e1");
    ow_conv(&w, "e1", "c2", 24, 24, 1, 1, 1);
    ow_node(&w, "Add", "r0 c2", "a2"); /* a residual, and a norm that follows no convolution */
    ow_node(&w, "BatchNormalization", "a2 n0.s n0.b n0.m n0.v", "n2");
    ow_node(&w, "Relu", "n2", "r2");
    ow_integers(&w, "split", 3, split);
    ow_integers(&w, "back", 2, back);
    ow_begin(&w, "Shape", "r2", "hw"); /* sizes that are worked out */
    ow_int(&w, "start", 2);
    ow_done(&w);
    ow_begin(&w, "Concat", "split hw", "split5");
    ow_int(&w, "axis", 0);
    ow_done(&w);
    ow_begin(&w, "Concat", "back hw", "back4");
    ow_int(&w, "axis", 0);
    ow_done(&w);
    ow_node(&w, "Reshape", "r2 split5", "h1"); /* shuffled channels */
    ow_begin(&w, "Transpose", "h1", "h2");
    ow_ints(&w, "perm", 5, swap);
    ow_done(&w);
    ow_node(&w, "Reshape", "h2 back4", "h3");
    ow_begin(&w, "MaxPool", "h3", "m1");
    ow_ints(&w, "kernel_shape", 2, three);
    ow_ints(&w, "strides", 2, two);
    ow_ints(&w, "pads", 4, pads);
    ow_done(&w);
    ow_begin(&w, "AveragePool", "h3", "m2");
    ow_ints(&w, "kernel_shape", 2, three);
    ow_ints(&w, "strides", 2, two);
    ow_ints(&w, "pads", 4, pads);
    ow_done(&w);
    ow_begin(&w, "Concat", "m1 m2", "j1");
    ow_int(&w, "axis", 1);
    ow_done(&w);
    ow_conv(&w, "j1", "c3", 48, 24, 3, 1, 2);
    ow_node(&w, "LeakyRelu", "c3", "l3");
    ow_array(&w, "scales", 1, 1, (int64_t[]){4}, scales, sizeof scales);
    ow_begin(&w, "Resize", "l3 - scales", "u3");
    ow_done(&w);
    ow_node(&w, "Erf", "u3", "y1");          /* for the reference */
    ow_begin(&w, "AveragePool", "l3", "w1"); /* windows larger than what they look at */
    ow_ints(&w, "kernel_shape", 2, three);
    ow_ints(&w, "strides", 2, three);
    ow_ints(&w, "pads", 4, pads);
    ow_done(&w);
    ow_conv(&w, "w1", "w2", 24, 24, 7, 1, 24);
    ow_weight(&w, "b1.w", 0, 4, (int64_t[]){24, 8, 2, 2});
    ow_begin(&w, "ConvTranspose", "w2 b1.w", "b1");
    ow_ints(&w, "strides", 2, two);
    ow_done(&w);
    ow_end(&w, 12, "b1", 4, (int64_t[]){-1, 8, -1, -1});
    ow_begin(&w, "ReduceMean", "u3", "v1");
    ow_ints(&w, "axes", 2, axes);
    ow_int(&w, "keepdims", 0);
    ow_done(&w);
    ow_begin(&w, "Transpose", "u3", "t1"); /* rows of channels, as transformers have them */
    ow_ints(&w, "perm", 4, last);
    ow_done(&w);
    ow_node(&w, "LayerNormalization", "t1 n0.s n0.b", "t2");
    ow_begin(&w, "Softmax", "t2", "t3");
    ow_int(&w, "axis", -1);
    ow_done(&w);
    ow_begin(&w, "ReduceMean", "t3", "v2");
    ow_ints(&w, "axes", 2, (int64_t[]){1, 2});
    ow_int(&w, "keepdims", 0);
    ow_done(&w);
    ow_node(&w, "Sub", "v1 v2", "v3");
    ow_weight(&w, "head", 0, 2, head);
    ow_weight(&w, "head.b", 0, 1, head + 1);
    ow_node(&w, "MatMul", "v3 head", "o1");
    ow_node(&w, "Add", "o1 head.b", "o2");
    ow_node(&w, "Tanh", "o2", "y0");
    ow_end(&w, 12, "y0", 2, output);
    ow_end(&w, 12, "y1", 4, (int64_t[]){-1, 24, -1, -1});
    return ow_finish(&w, 17);
}

/* A file's bytes as a network. */
static inline struct onnx_network *network_of(const struct buffer *file, uint64_t limit)
{
    const struct onnx *o;
    struct onnx_network *n = NULL;
    struct err e = {0};
    if (onnx_parse("test.onnx", NULL, file->data, file->size, &o, &e) < 0 ||
        network_make("test.onnx", &o, limit, &n, &e) < 0)
        fail_msg("%s", e.text);
    return n;
}

static inline struct ndarray random_picture(int64_t batch, int64_t rows, int64_t columns)
{
    struct onnx_writer w = {.random = (uint32_t)(batch * 7919 + rows * 31 + columns)};
    struct ndarray a = {0};
    int64_t dims[] = {batch, 3, rows, columns};
    assert_int_equal(ndarray_make(&a, ND_F32, 4, dims, UINT64_MAX, NULL), 0);
    for (int64_t i = 0; i < a.count; i++)
        ((float *)a.data)[i] = ow_random(&w);
    return a;
}

#endif
