/* How a window slides: attributes of convolutions and poolings, checked, as three axes whatever
 * the number that there are (the first ones 1 long). */
#ifndef HP_MODEL_ONNX_WINDOW_H
#define HP_MODEL_ONNX_WINDOW_H

#include <stdbool.h>

#include "model/onnx/operator.h"

enum { WINDOW_AXES = 3 };
struct window {
    int n_axes; /* that there are, the last ones of three */
    int64_t in[WINDOW_AXES], out[WINDOW_AXES];
    int64_t kernel[WINDOW_AXES], stride[WINDOW_AXES], dilation[WINDOW_AXES];
    int64_t before[WINDOW_AXES], after[WINDOW_AXES]; /* pads */
};

/* Reads strides, dilations, pads and auto_pad for an input of these dimensions; `kernel` has the
 * sizes that the weights give, NULL where the attribute alone says them. Fills in `out` as a window
 * over the input has it. HP_EINVAL. */
int window_read(const struct onnx_call *c, const struct ndarray *x, const int64_t *kernel,
                struct window *w);
/* The same for what a transposed convolution makes. */
int window_read_turned(const struct onnx_call *c, const struct ndarray *x, const int64_t *kernel,
                       struct window *w);
/* Elements of a plane of the input, of the output, of the kernel. */
static inline int64_t window_size(const int64_t of[WINDOW_AXES])
{
    return of[0] * of[1] * of[2];
}
/* Output [batch, channels, ...] of a window. */
int window_make(struct onnx_call *c, int i, enum ndarray_type type, int64_t channels,
                const struct window *w);

#endif
