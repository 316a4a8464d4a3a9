/* Writes any model that opens as one GGUF file, in a number format of choice: what `hpctl model
 * convert` does. Keys, tokenizer, chat template and names of tensors are those that files of the
 * field have. The file is written beside its name, checked by opening it, made durable and renamed:
 * whoever reads sees the old file or the whole new one.
 *
 * Memory: a few hundred kilobytes a thread (a few MiB for matrices that are turned), whatever the
 * model's size. */
#ifndef HP_MODEL_CONVERT_CONVERT_H
#define HP_MODEL_CONVERT_CONVERT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/dtype/dtype.h"
#include "model/model.h"

/* Called now and then by the thread that converts; a return other than 0 stops with HP_ECANCELED.
 */
typedef int (*convert_progress_fn)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);

struct convert_options {
    const char *type; /* "q4_k_m": convert_types() */
    int threads;      /* at least 1 */
    bool overwrite;   /* take the place of a file that is there */
    convert_progress_fn progress;
    void *progress_ctx;
};

/* A tensor that did not get the format that the type's rule gives it. */
struct convert_exception {
    const char *tensor;
    enum dtype wanted, written;
    uint64_t columns; /* of its rows, which are no multiple of the block */
};

struct convert_result {
    uint64_t bytes;
    int count[DTYPE_WEIGHT_COUNT]; /* tensors by format */
    uint64_t format_bytes[DTYPE_WEIGHT_COUNT];
    struct convert_exception *exceptions; /* [n_exceptions] */
    int n_exceptions;
    int n_requantised; /* tensors that were quantised already, in another format */
};

/* The names of all types: "f32, f16, ..." in out[size]; returns `out`. */
const char *convert_types(char *out, size_t size);

/* Blocks until the file is there. HP_EINVAL (a type that is not known; `out` is one of the model's
 * own files), HP_EEXIST, HP_EUNSUPPORTED (a tokenizer or a setting that GGUF has no place for),
 * HP_EPARSE (a weight that is no number, or beyond the format, by tensor and row), HP_ENOSPACE,
 * HP_EIO, HP_ENOMEM, HP_ECANCELED; then nothing is left behind and what was at `out` is as it was.
 */
int model_convert(struct model *m, const char *out, const struct convert_options *o,
                  struct convert_result *result, struct err *e);
void convert_result_free(struct convert_result *r);

#endif
