/* An operator of nn.h as data, and the parts into which its output can be cut for several threads.
 *
 * Parts are boxes over the outermost axes of the output: samples, then rows of a picture or of a
 * matrix. No sum is cut, so every element is the sum of the same products in the same order,
 * whoever computes it. Pure. */
#ifndef HP_AGENT_BACKEND_CPU_NN_TASK_H
#define HP_AGENT_BACKEND_CPU_NN_TASK_H

#include "agent/backend/cpu/nn.h"

enum { NN_SLOTS = NN_OTHER + NN_POSTS };

struct nn_softmax {
    struct nn_view x;
    int axis;
    bool is_log;
};

struct nn_elements {
    struct nn_view x;
    enum nn_function function;
    float a, b;
};

enum nn_task_kind { NN_TASK_CONV, NN_TASK_MATMUL, NN_TASK_SOFTMAX, NN_TASK_ELEMENTS };
struct nn_task {
    enum nn_task_kind kind;
    union {
        struct nn_conv conv;
        struct nn_matmul matmul;
        struct nn_softmax softmax;
        struct nn_elements elements;
    } u;
};

/* Axis d, of so many steps, goes in that many ranges; each combination of ranges is a part. */
struct nn_cut {
    int n_axes, n_parts;
    int64_t steps[NN_DIMS], ranges[NN_DIMS];
};

/* About how many operations it takes. */
double nn_task_work(const struct nn_task *t);
/* Parts that keep so many threads about equally busy; one part where it cannot be cut. */
struct nn_cut nn_task_cut(const struct nn_task *t, int threads);
/* The part as a task of its own, and how many elements after the whole's arrays its own begin, by
 * slot. False: the part cannot be told (it has nothing of the input). */
bool nn_task_part(const struct nn_task *t, const struct nn_cut *c, int part, struct nn_task *out,
                  int64_t offsets[NN_SLOTS]);

#endif
