/* Operators that go row by row, or element by element: spread over the device's threads where that
 * pays. */
#ifndef HP_AGENT_BACKEND_CPU_ROWS_H
#define HP_AGENT_BACKEND_CPU_ROWS_H

#include "agent/backend/cpu/cpu_int.h"

struct rows_job {
    struct stream *stream;
    const struct device_op *op;
    const struct tensor *in, *out;
    const struct op_batch *batch; /* may be NULL */
    void (*run)(const struct rows_job *job, size_t begin, size_t end);
    struct parts parts;
    size_t n, grain, elements; /* rows (or elements), of which parts are multiples; in all */
};

/* `run` on all rows of the result. */
void rows_spread(struct stream *s, const struct device_op *op, const struct tensor *in,
                 const struct tensor *out, const struct op_batch *batch,
                 void (*run)(const struct rows_job *job, size_t begin, size_t end));
/* `run` on all elements where rows follow each other, else row by row: on elements [begin, end) of
 * the first row of the job's tensors. */
void elements_spread(struct stream *s, const struct device_op *op, const struct tensor *in,
                     const struct tensor *out,
                     void (*run)(const struct rows_job *job, size_t begin, size_t end));

/* One row of a norm, of either kind. */
void norm_row_make(const struct cpu_kernels *k, const struct device_op *op, const float *in,
                   size_t width, float *out);
/* `heads` heads of a row, rotated by the row's angles, from `in` to `out`, which may be the same.
 */
void rope_row_make(const struct cpu_kernels *k, const struct op_rope *rope, const float *angles,
                   size_t heads, const float *in, float *out);

#endif
