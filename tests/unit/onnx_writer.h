/* ONNX models written by hand, for tests: a graph of nodes, one after the other, as the bytes of a
 * file. Weights are drawn by a fixed rule. */
#ifndef HP_TESTS_UNIT_ONNX_WRITER_H
#define HP_TESTS_UNIT_ONNX_WRITER_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "model/files/onnx.h"
#include "tests/test.h"

struct onnx_writer {
    struct buffer graph;
    struct buffer node; /* the one that is open */
    uint32_t random;
};

static inline void ow_varint(struct buffer *b, uint64_t v)
{
    do {
        uint8_t byte = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
        buffer_append(b, &byte, 1);
        v >>= 7;
    } while (v);
}

static inline void ow_number(struct buffer *b, unsigned field, int64_t v)
{
    ow_varint(b, field << 3);
    ow_varint(b, (uint64_t)v);
}

static inline void ow_bytes(struct buffer *b, unsigned field, const void *data, size_t n)
{
    ow_varint(b, field << 3 | 2);
    ow_varint(b, n);
    buffer_append(b, data, n);
}

static inline void ow_text(struct buffer *b, unsigned field, const char *text)
{
    ow_bytes(b, field, text, strlen(text));
}

/* Words of `list`, apart by spaces ("-": an empty one), as fields. */
static inline void ow_words(struct buffer *b, unsigned field, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, " ");
        ow_bytes(b, field, list, n == 1 && *list == '-' ? 0 : n);
        list += n + (list[n] == ' ');
    }
}

/* ---- weights and ends ---- */

static inline float ow_random(struct onnx_writer *w)
{
    w->random = w->random * 1664525u + 1013904223u;
    return (float)(w->random >> 8) / (float)(1 << 24) - 0.5f;
}

static inline void ow_array(struct onnx_writer *w, const char *name, int type, int n_dims,
                            const int64_t *dims, const void *data, size_t bytes)
{
    struct buffer t = {0};
    for (int d = 0; d < n_dims; d++)
        ow_number(&t, 1, dims[d]);
    ow_number(&t, 2, type);
    ow_text(&t, 8, name);
    ow_bytes(&t, 9, data, bytes);
    ow_bytes(&w->graph, 5, t.data, t.size);
    buffer_free(&t);
}

/* A weight whose bytes lie in a file beside the model's, from `offset` on. */
static inline void ow_external(struct onnx_writer *w, const char *name, int type, int n_dims,
                               const int64_t *dims, const char *file, uint64_t offset)
{
    struct buffer t = {0}, entry = {0};
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)offset);
    const char *const pairs[][2] = {{"location", file}, {"offset", number}};
    for (int d = 0; d < n_dims; d++)
        ow_number(&t, 1, dims[d]);
    ow_number(&t, 2, type);
    ow_text(&t, 8, name);
    for (int i = 0; i < 2; i++) {
        ow_text(&entry, 1, pairs[i][0]);
        ow_text(&entry, 2, pairs[i][1]);
        ow_bytes(&t, 13, entry.data, entry.size);
        buffer_free(&entry);
    }
    ow_number(&t, 14, 1);
    ow_bytes(&w->graph, 5, t.data, t.size);
    buffer_free(&t);
}

/* A weight of random numbers, `shift` in the middle. */
static inline void ow_weight(struct onnx_writer *w, const char *name, float shift, int n_dims,
                             const int64_t *dims)
{
    int64_t n = 1;
    for (int d = 0; d < n_dims; d++)
        n *= dims[d];
    float *data = calloc((size_t)n, sizeof *data);
    double scale = n_dims > 1 ? 2 / sqrt((double)n / (double)dims[0]) : 1;
    for (int64_t i = 0; i < n; i++)
        data[i] = shift + (float)scale * ow_random(w);
    ow_array(w, name, 1, n_dims, dims, data, (size_t)n * sizeof *data);
    free(data);
}

static inline void ow_integers(struct onnx_writer *w, const char *name, int n, const int64_t *v)
{
    int64_t dims[] = {n};
    ow_array(w, name, 7, 1, dims, v, (size_t)n * sizeof *v);
}

/* An input (field 11) or output (12) of float32, sizes of -1 are free. */
static inline void ow_end(struct onnx_writer *w, unsigned field, const char *name, int n_dims,
                          const int64_t *dims)
{
    struct buffer shape = {0}, tensor = {0}, type = {0}, value = {0};
    for (int d = 0; d < n_dims; d++) {
        struct buffer dim = {0};
        if (dims[d] >= 0)
            ow_number(&dim, 1, dims[d]);
        ow_bytes(&shape, 1, dim.data, dim.size);
        buffer_free(&dim);
    }
    ow_number(&tensor, 1, 1);
    ow_bytes(&tensor, 2, shape.data, shape.size);
    ow_bytes(&type, 1, tensor.data, tensor.size);
    ow_text(&value, 1, name);
    ow_bytes(&value, 2, type.data, type.size);
    ow_bytes(&w->graph, field, value.data, value.size);
    buffer_free(&shape);
    buffer_free(&tensor);
    buffer_free(&type);
    buffer_free(&value);
}

/* ---- nodes ---- */

static inline void ow_begin(struct onnx_writer *w, const char *op, const char *in, const char *out)
{
    ow_words(&w->node, 1, in);
    ow_words(&w->node, 2, out);
    ow_text(&w->node, 4, op);
}

static inline void ow_done(struct onnx_writer *w)
{
    ow_bytes(&w->graph, 1, w->node.data, w->node.size);
    buffer_free(&w->node);
}

static inline void ow_node(struct onnx_writer *w, const char *op, const char *in, const char *out)
{
    ow_begin(w, op, in, out);
    ow_done(w);
}

static inline void ow_ints(struct onnx_writer *w, const char *name, int n, const int64_t *v)
{
    struct buffer a = {0};
    ow_text(&a, 1, name);
    for (int i = 0; i < n; i++)
        ow_number(&a, 8, v[i]);
    ow_number(&a, 20, ONNX_INTS);
    ow_bytes(&w->node, 5, a.data, a.size);
    buffer_free(&a);
}

static inline void ow_int(struct onnx_writer *w, const char *name, int64_t v)
{
    struct buffer a = {0};
    ow_text(&a, 1, name);
    ow_number(&a, 3, v);
    ow_number(&a, 20, ONNX_INT);
    ow_bytes(&w->node, 5, a.data, a.size);
    buffer_free(&a);
}

static inline void ow_string(struct onnx_writer *w, const char *name, const char *v)
{
    struct buffer a = {0};
    ow_text(&a, 1, name);
    ow_text(&a, 4, v);
    ow_number(&a, 20, ONNX_STRING);
    ow_bytes(&w->node, 5, a.data, a.size);
    buffer_free(&a);
}

/* Conv with weights of its own (and a bias) over squares. */
static inline void ow_conv(struct onnx_writer *w, const char *in, const char *out, int64_t from,
                           int64_t to, int64_t kernel, int64_t stride, int64_t groups)
{
    char weights[64], bias[64], inputs[256];
    int64_t dims[] = {to, from / groups, kernel, kernel},
            pads[] = {kernel / 2, kernel / 2, kernel / 2, kernel / 2};
    int64_t strides[] = {stride, stride};
    snprintf(weights, sizeof weights, "%s.w", out);
    snprintf(bias, sizeof bias, "%s.b", out);
    snprintf(inputs, sizeof inputs, "%s %s %s", in, weights, bias);
    ow_weight(w, weights, 0, 4, dims);
    ow_weight(w, bias, 0, 1, dims);
    ow_begin(w, "Conv", inputs, out);
    ow_ints(w, "pads", 4, pads);
    ow_ints(w, "strides", 2, strides);
    ow_int(w, "group", groups);
    ow_done(w);
}

/* The file's bytes; the writer is empty afterwards. */
static inline struct buffer ow_finish(struct onnx_writer *w, int64_t opset)
{
    struct buffer file = {0}, set = {0};
    ow_number(&file, 1, 8);
    ow_text(&w->graph, 2, "g");
    ow_bytes(&file, 7, w->graph.data, w->graph.size);
    ow_number(&set, 2, opset);
    ow_bytes(&file, 8, set.data, set.size);
    assert_false(file.failed);
    buffer_free(&set);
    buffer_free(&w->graph);
    return file;
}

#endif
