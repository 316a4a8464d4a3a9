/* ONNX files (https://onnx.ai, onnx.proto of IR version 3 to 10): a graph of nodes in the order in
 * which they can be run, with its weights, which stay where they lie in the file or in files of
 * external data beside it. What is wrong with a file is said when it is opened: of values nobody
 * makes, of two makers, of cycles, of weights whose bytes are not what type and shape need.
 *
 * Values are rows of one table; nodes name them by number. */
#ifndef HP_MODEL_FILES_ONNX_H
#define HP_MODEL_FILES_ONNX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "model/ndarray.h"

enum onnx_attribute_type {
    ONNX_FLOAT = 1,
    ONNX_INT = 2,
    ONNX_STRING = 3,
    ONNX_TENSOR = 4,
    ONNX_GRAPH = 5,
    ONNX_FLOATS = 6,
    ONNX_INTS = 7,
    ONNX_STRINGS = 8,
};

struct onnx_attribute {
    const char *name;
    enum onnx_attribute_type type;
    union {
        float f;
        int64_t i;
        const char *s;
        const struct ndarray *tensor;
        const float *floats;
        const int64_t *ints;
    } u;
    int n; /* of floats and ints */
};

struct onnx_node {
    const char *op, *name, *domain; /* domain "": ONNX's own */
    const int *inputs;              /* [n_inputs] values; -1: left out */
    const int *outputs;             /* [n_outputs]; -1: nobody wants it */
    int n_inputs, n_outputs;
    const struct onnx_attribute *attributes;
    int n_attributes;
};

/* A size of a graph's input or output: a number, or free to choose. */
struct onnx_dim {
    int64_t size;       /* -1: any */
    const char *symbol; /* of those that are free, what the file calls it; may be "" */
};

struct onnx_value {
    const char *name;
    const struct ndarray *weight; /* NULL: it is made, or enters */
    int maker;                    /* node; -1: it enters, or is a weight */
    enum ndarray_type type;       /* of inputs and outputs of the graph; 0: not said */
    int n_dims;                   /* of these; -1: not said */
    const struct onnx_dim *dims;
};

struct onnx {
    int64_t ir_version, opset; /* of ONNX's own operators */
    const char *producer;
    const struct onnx_value *values;
    int n_values;
    const struct onnx_node *nodes;
    int n_nodes;
    const int *inputs, *outputs; /* values; inputs without those that are weights */
    int n_inputs, n_outputs;
    uint64_t weight_bytes;
};

enum { ONNX_OPSET_MAX = 23 };

/* HP_ENOENT, HP_EIO; HP_EPARSE for what is no such file or contradicts itself; HP_EUNSUPPORTED for
 * what is one and not for us: other numbers than ndarray.h has, sparse weights, functions, newer
 * opsets. Texts name file and node or tensor. Data outside of the file's folder is never opened, by
 * a link neither, but beside the file that `path` itself is a link to. Close with onnx_close;
 * arrays and names live as long. */
int onnx_open(const char *path, const struct onnx **out, struct err *e);
/* The same of bytes; external data is looked for in `folder` (NULL: none is allowed). */
int onnx_parse(const char *name, const char *folder, const uint8_t *data, size_t size,
               const struct onnx **out, struct err *e);
void onnx_close(const struct onnx **o);
/* HP_EIO when bytes of the mapped files could not be read since (mapped_file.h). */
int onnx_check(const struct onnx *o, struct err *e);

/* The i-th file that it is read from, as the model's folder names it; the first is the model's own
 * (of onnx_parse: the name that was given). NULL: there are no more. */
const char *onnx_file_name(const struct onnx *o, int i);

/* NULL: the node has none of that name. */
const struct onnx_attribute *onnx_attribute(const struct onnx_node *n, const char *name);

#endif
