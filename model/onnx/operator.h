/* ONNX's operators as plain loops over arrays in host memory: what they mean, opset by opset. The
 * reference that faster ones are held to, and what evaluates shapes and constants.
 * https://onnx.ai/onnx/operators */
#ifndef HP_MODEL_ONNX_OPERATOR_H
#define HP_MODEL_ONNX_OPERATOR_H

#include <stdbool.h>

#include "model/files/onnx.h"
#include "model/ndarray.h"

/* One run of a node. */
struct onnx_call {
    const struct onnx_node *node;
    int64_t opset;
    const struct ndarray *const *in; /* [n_in]; NULL: left out */
    int n_in;
    struct ndarray *out; /* [n_out], all zero; the operator makes them, data of their own */
    int n_out;
    uint64_t limit;   /* bytes that one output may have */
    bool shapes_only; /* outputs get type and sizes, no data, and the operator ends there */
    int n_shaped;
    const struct onnx_operator *op;
    struct err *e;
};

/* What an elementwise operator does to numbers; a and b are its two numbers, attributes or not. */
typedef double onnx_unary(double x, double a, double b);
typedef double onnx_binary_f64(double x, double y);
typedef int64_t onnx_binary_i64(int64_t x, int64_t y);

struct onnx_operator {
    const char *name;
    int least_inputs, most_inputs; /* the first `least` may not be left out; most -1: any number,
                                      none of which is */
    int most_outputs;              /* -1: any */
    /* 0, or the failure, whose text says what is wrong, not where. */
    int (*run)(struct onnx_call *c);
    onnx_unary *unary;
    double a, b; /* where no attribute (alpha or gamma or lambd, beta or bias) says so */
    onnx_binary_f64 *f64;
    onnx_binary_i64 *i64; /* NULL: has none for integers */
    int kind;             /* what else tells operators apart that have one function */
};

/* NULL: unknown. */
const struct onnx_operator *onnx_operator_find(const char *domain, const char *name);
/* What can be said of a node before it runs: the operator is known, inputs and outputs are as many
 * as it has, attributes are of its types. HP_EUNSUPPORTED, HP_EPARSE; the text names the node. */
int onnx_operator_check(const struct onnx_node *n, const char *made, struct err *e);

#endif
