/* Bodies of the KServe v2 inference protocol: what a request brings to a model, and what it gets.
 * JSON, or JSON with binary tensors behind it (the extension "binary_tensor_data"). Pure: any
 * thread.
 *
 * Of the protocol: https://kserve.github.io/website/docs/concepts/architecture/data-plane and
 * Triton's extension of binary tensors. Not here: BYTES and BF16, classification, shared memory,
 * sequences. */
#ifndef HP_COORDINATOR_GATEWAY_INFER_H
#define HP_COORDINATOR_GATEWAY_INFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"
#include "coordinator/infer_model.h"
#include "coordinator/infer_times.h"

enum {
    INFER_ID_BYTES = 256,        /* of a request's id, with its NUL */
    INFER_JSON_BYTES = 32 << 20, /* of a body's JSON */
};

/* What runs the models, as the protocol calls it. */
#define INFER_PLATFORM "onnx_hodgepodge"

struct infer_request {
    char id[INFER_ID_BYTES]; /* "": none */
    uint64_t timeout_us;     /* from the request to its answer; 0: none */
    struct ndarray *inputs;  /* [n_inputs], in the model's order; some lie in `body` */
    int n_inputs;
    int *outputs; /* [n_outputs]: which of the model's, in the order of the answer */
    bool *binary; /* [n_outputs]: behind the JSON */
    int n_outputs;
    bool timings;              /* what it took is asked for ... */
    struct infer_times *times; /* ... and is told, where who ran it has said so; freed with it */
    struct buffer body;
};

/* "FP32"; NULL: the protocol has no word for it. */
const char *infer_type_name(enum ndarray_type type);

/* The most bytes that a body for this model may have. */
uint64_t infer_body_limit(const struct infer_model *m);

/* Reads a body, which it takes (also on failure): its first `json_bytes` are JSON (SIZE_MAX: all).
 * What stands in *out is freed with infer_request_free, and all zero on failure. HP_EINVAL names
 * the field and what is wrong with it; HP_EUNSUPPORTED what is asked and not done here; HP_ELIMIT,
 * HP_ENOMEM. */
int infer_request_read(const struct infer_model *m, struct buffer *body, size_t json_bytes,
                       struct infer_request *out, struct err *e);
void infer_request_free(struct infer_request *r);

/* The answer: all of a model's outputs are given, those that were asked for are written. Returns
 * how many bytes of it are JSON (the others are tensors); numbers that JSON has no word for (NaN,
 * infinities) are null there. Want of memory leaves `out` failed. */
size_t infer_answer_write(const struct infer_model *m, const struct infer_request *r,
                          const struct ndarray *outputs, struct buffer *out);
/* {"name", "versions", "platform", "inputs": [{"name", "datatype", "shape"}], "outputs"} */
void infer_metadata_write(const struct infer_model *m, struct buffer *out);
/* Triton's model configuration: {"name", "platform", "max_batch_size", "input": [{"name",
 * "data_type", "dims"}], "output"} */
void infer_config_write(const struct infer_model *m, struct buffer *out);

#endif
