/* What KServe's requests are held to, whether they came as JSON or as protobuf: the tensors that
 * the model has, each once, of its type and shape, and no more bytes than it takes. Whoever reads a
 * body calls these in its order. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_INFER_READING_H
#define HP_COORDINATOR_GATEWAY_INFER_READING_H

#include "coordinator/gateway/infer.h"

/* A body while it is read. */
struct infer_reading {
    const struct infer_model *m;
    struct infer_request *r;
    bool *seen;     /* [n_inputs] */
    uint64_t bytes; /* of inputs so far */
};

/* Takes the body, also on failure; infer_reading_end follows in either case, and frees the request
 * of a reading that failed. Returns `rc`. */
int infer_reading_begin(struct infer_reading *b, const struct infer_model *m, struct buffer *body,
                        struct infer_request *r, struct err *e);
int infer_reading_end(struct infer_reading *b, int rc);

/* Input number `at` of the request: *tensor is the model's of this name (NULL: it has none) and *a
 * the place for it, of the type that `type` says. */
int infer_input_open(struct infer_reading *b, size_t at, const char *name, const char *type,
                     const struct infer_tensor **tensor, struct ndarray **a, struct err *e);
/* The sizes that were sent, [n]; the array has no values yet. */
int infer_input_shape(struct infer_reading *b, const struct infer_tensor *t, const int64_t *sizes,
                      size_t n, struct ndarray *a, struct err *e);
/* Its values lie in the body, as many as its shape says: in place where they lie aligned, or need
 * not. */
int infer_input_bytes(struct infer_reading *b, const struct infer_tensor *t, const uint8_t *data,
                      struct ndarray *a, struct err *e);
/* Room for values that come one by one. */
int infer_input_room(struct infer_reading *b, struct ndarray *a, struct err *e);
/* A whole number that is none of the type's is refused as value `i` of the input; so is a number
 * that it cannot hold. */
int infer_value_whole(const struct infer_tensor *t, struct ndarray *a, int64_t i, int64_t value,
                      struct err *e);
int infer_value_float(const struct infer_tensor *t, struct ndarray *a, int64_t i, double value,
                      struct err *e);
int infer_value_wrong(const struct infer_tensor *t, int64_t i, enum ndarray_type type,
                      struct err *e);
/* There are `n` values where the shape says otherwise. */
int infer_values_missing(const struct infer_tensor *t, const struct ndarray *a, int64_t n,
                         struct err *e);
int infer_values_beyond(const struct infer_tensor *t, const struct ndarray *a, struct err *e);
/* All inputs of the model were there. */
int infer_inputs_whole(const struct infer_reading *b, struct err *e);

/* Output number `at` that is asked for, behind the JSON where it is `binary`. */
int infer_output_add(struct infer_reading *b, size_t at, const char *name, bool binary,
                     struct err *e);
/* No output was named: all are meant. */
void infer_outputs_all(struct infer_reading *b, bool binary);

/* ---- what is asked and not done here, or makes no sense ---- */

int infer_id_set(struct infer_request *r, const char *id, size_t n, struct err *e);
int infer_id_wrong(struct err *e);
int infer_timeout_wrong(struct err *e);
int infer_sequence_refuse(struct err *e);
int infer_region_refuse(const struct infer_tensor *t, struct err *e);
int infer_output_refuse(const char *name, struct err *e);

#endif
