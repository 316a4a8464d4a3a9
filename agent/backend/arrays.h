/* Operators of networks on arrays of float32: views of memory, functions of their elements, walks
 * over several of them, and what a backend may have of all that for memory of its device. The cpu
 * backend's are nn.h and nn_loops.h, which say what each means. */
#ifndef HP_AGENT_BACKEND_ARRAYS_H
#define HP_AGENT_BACKEND_ARRAYS_H

#include <stdbool.h>
#include <stdint.h>

enum { NN_DIMS = 12, NN_AXES = 3 };

/* Elements of float32: element i lies at the sum of i[d] * strides[d]. */
struct nn_view {
    int n_dims;
    int64_t dims[NN_DIMS], strides[NN_DIMS];
};

/* Functions of one number, with parameters a and b. */
enum nn_function {
    NN_RELU, /* x < 0 ? a * x : x */
    NN_CLIP, /* to [a, b] */
    NN_SIGMOID,
    NN_TANH,
    NN_ELU, /* a */
    NN_GELU_ERF,
    NN_GELU_TANH,
    NN_SWISH, /* x * sigmoid(a * x) */
    NN_HARD_SWISH,
    NN_MISH,
    NN_LINEAR, /* a * x + b */
};
enum nn_unary {
    NN_ABS,
    NN_NEG,
    NN_SQRT,
    NN_RECIPROCAL,
    NN_LEAKY,        /* x < 0 ? a * x : x */
    NN_BOUND,        /* to [a, b] */
    NN_HARD_SIGMOID, /* a * x + b, to [0, 1] */
    NN_HARD_SWISHED, /* x * (x / 6 + 1/2, to [0, 1]) */
    NN_SQUARE,
    NN_SCALE, /* a * x + b */
    NN_EXPONENT,
    NN_SOFTPLUS, /* log(1 + exp(x)), to the last bits where that is small, too */
};
/* And of two. */
enum nn_binary { NN_ADD, NN_SUB, NN_TIMES, NN_DIVIDE, NN_MAX, NN_MIN, NN_PRELU };

/* A walk over axes, the last innermost; strides of the output first. */
enum { LOOP_VIEWS = 3 };
struct nn_loop {
    int n_dims;
    int64_t dims[NN_DIMS], strides[LOOP_VIEWS][NN_DIMS];
};

/* out = the sum (or the largest) of x along axes that are gone, times `scale`: `stays` walks over
 * the output and x, `gone` over x for each (strides[0] unused). */
struct nn_reduction {
    struct nn_loop stays, gone;
    bool is_max;
    float scale;
};

/* Windows over three axes of x, channels innermost: [batch, axes .., channels] dense both.
 * Poolings, and convolutions of each channel by itself. */
struct nn_pool {
    int64_t batch, channels, in[NN_AXES], out[NN_AXES];
    int64_t kernel[NN_AXES], stride[NN_AXES], dilation[NN_AXES], before[NN_AXES], after[NN_AXES];
    bool is_max, counts_pads;
    const float *weights, *bias; /* not NULL: a sum of products, [kernel .., channels], [channels];
                                    bias may be NULL */
};
/* ---- of a device: all pointers are its memory, and what is written is none of what is read, but
 * for elements of one place ---- */

enum array_rule {
    ARRAY_COPY,     /* elements of 4 bytes, whatever they are */
    ARRAY_FILL,     /* with a */
    ARRAY_FUNCTION, /* enum nn_function */
    ARRAY_UNARY,    /* enum nn_unary */
    ARRAY_BINARY    /* enum nn_binary */
};
struct array_elements {
    enum array_rule rule;
    int f;
    float a, b;
    struct nn_loop loop; /* over out, x and y, as far as the rule has them */
    float *out;
    const float *x, *y;
};

struct array_softmax {
    const float *x; /* [rows, n], as `out` */
    float *out;
    int64_t rows, n;
    bool is_log;
};

/* (x - mean) / sqrt(variance + epsilon) * scale + shift of each row. */
struct array_norm {
    const float *x, *scale, *shift; /* [rows, n]; scale and shift may be NULL */
    float *out;
    int64_t rows, n;
    int64_t channels; /* 0: scale and shift are [n]; else row r has number r % channels of each */
    float epsilon;
};

/* y = x * w (+ bias): stacks of matrices, of which one each. Of y columns lie side by side. */
struct array_product {
    struct nn_loop stack; /* over y, x and w */
    int64_t rows, columns, inner;
    int64_t x_row, x_inner, w_inner, w_column, y_row; /* strides */
    const float *x, *w, *bias;                        /* bias: [columns], or NULL */
    float *y;
};

/* A convolution over the axes of x [batch, in .., in_channels], or a transposed one; y is [batch,
 * out .., out_channels], both dense. */
struct array_conv {
    bool turned;
    int64_t batch, groups, in_channels, out_channels, in[NN_AXES], out[NN_AXES];
    int64_t kernel[NN_AXES], stride[NN_AXES], dilation[NN_AXES], before[NN_AXES];
    const float *x, *w, *bias; /* w [out_channels, in_channels / groups, kernel ..], turned
                                  [in_channels, out_channels / groups, kernel ..]; bias may be NULL
                                */
    float *y;
};

/* Along the middle axis of x [outer, in, inner], to out [outer, out, inner]: what it makes of two
 * elements, x[first] * weight[0] + x[second] * weight[1]. */
struct array_tap {
    float weight[2];
    int32_t at[2];
};
struct array_resize {
    const float *x;
    const struct array_tap *taps; /* [out] */
    float *to;
    int64_t outer, in, out, inner;
};

/* As model/onnx/rows.h has it. */
struct array_causal {
    const float *x, *sinks; /* [rows, tokens]; [heads], or NULL */
    float *out;             /* [rows, tokens], with sinks [rows, tokens + 1] */
    int64_t rows, tokens, heads, window;
    float hidden; /* what is not seen becomes this */
};

/* The same's Scores, of what the product has given already. */
struct array_scores {
    const float *x;              /* [rows, n] */
    const int64_t *ids, *wanted; /* [rows] */
    float *out;                  /* [rows, 3] */
    int64_t rows, n;
    float scale, cap;
};

struct device;
struct stream;
struct err;
struct array_clock;

/* A thread that has entered as a loader may call these, and copy, op_run and stream_wait, on
 * streams that it has made, whatever the device's owner and others like it do meanwhile. Work is
 * put on a stream as all work is (backend.h). */
struct backend_arrays {
    /* Of part `part` of as many equal parts of the device. HP_EUNSUPPORTED: it has no such parts.
     * Destroyed as every stream is. */
    int (*stream_create)(struct device *d, int part, int parts, struct stream **out, struct err *e);
    void (*elements)(struct stream *s, const struct array_elements *c);
    void (*reduce)(struct stream *s, const struct nn_reduction *r, float *out, const float *x);
    void (*softmax)(struct stream *s, const struct array_softmax *c);
    void (*norm)(struct stream *s, const struct array_norm *c);
    void (*product)(struct stream *s, const struct array_product *c);
    void (*causal)(struct stream *s, const struct array_causal *c);
    void (*scores)(struct stream *s, const struct array_scores *c);
    void (*conv)(struct stream *s, const struct array_conv *c);
    void (*resize)(struct stream *s, const struct array_resize *c);
    /* The weights and bias that it may have are the device's, too. */
    void (*pool)(struct stream *s, const struct nn_pool *p, float *out, const float *x);
    /* When work on a stream was done: moments of 0 to n - 1. */
    int (*clock_create)(struct device *d, int n, struct array_clock **out, struct err *e);
    void (*clock_destroy)(struct array_clock **c);
    void (*clock_mark)(struct array_clock *c, int i, struct stream *s);
    /* Seconds between two moments that are over: the stream was waited for. HP_EDEVICE. */
    int (*clock_between)(const struct array_clock *c, int from, int to, double *seconds,
                         struct err *e);
};

#endif
