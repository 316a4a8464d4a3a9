#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/infer.h"

/* A body while it is read. */
struct infer_reading {
    const struct infer_model *m;
    struct infer_request *r;
    struct reader tensors; /* behind the JSON */
    bool *seen;            /* [n_inputs] */
    uint64_t bytes;        /* of inputs so far */
};

uint64_t infer_body_limit(const struct infer_model *m)
{
    return m->limit_bytes + INFER_JSON_BYTES;
}

/* ---- one input ---- */

static int type_of_name(const char *name)
{
    for (int t = 0; name && t < ND_TYPE_COUNT; t++) {
        const char *known = infer_type_name((enum ndarray_type)t);
        if (known && strcmp(known, name) == 0)
            return t;
    }
    return -1;
}

static const char *shape_text(const struct infer_tensor *t, char out[ND_SHAPE_TEXT])
{
    size_t used = 0;
    out[0] = '\0';
    for (int d = 0; d < t->n_dims; d++)
        used += (size_t)snprintf(out + used, ND_SHAPE_TEXT - used, "%s%" PRId64, d ? "," : "",
                                 t->dims[d]);
    return out;
}

/* The shape that was sent, against the model's. */
static int shape_read(struct infer_reading *b, const struct infer_tensor *t, const json_t *shape,
                      struct ndarray *a, struct err *e)
{
    char wanted[ND_SHAPE_TEXT];
    int64_t dims[ND_DIMS_MAX];
    size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > ND_DIMS_MAX)
        return err_set(e, HP_EINVAL, "inputs: %s: shape must be a list of at most %d sizes",
                       t->name, ND_DIMS_MAX);
    bool fits = t->n_dims < 0 || (size_t)t->n_dims == n;
    for (size_t d = 0; d < n; d++) {
        const json_t *size = json_array_get(shape, d);
        if (!json_is_integer(size) || json_integer_value(size) < 1)
            return err_set(e, HP_EINVAL, "inputs: %s: shape[%zu] must be a whole number from 1 on",
                           t->name, d);
        dims[d] = json_integer_value(size);
        fits = fits && (t->n_dims < 0 || t->dims[d] < 0 || t->dims[d] == dims[d]);
    }
    if (!fits)
        return err_set(e, HP_EINVAL,
                       "inputs: %s: shape is not what the model takes: [%s] (-1: any size)",
                       t->name, shape_text(t, wanted));
    int rc = ndarray_shape(a, a->type, (int)n, dims, e);
    if (rc < 0)
        return err_at(e, "inputs: %s: shape", t->name);
    if (ndarray_bytes(a) > b->m->limit_bytes - b->bytes)
        return err_set(e, HP_ELIMIT,
                       "inputs: %s: shape: %" PRIu64 " bytes with the inputs before it are more "
                       "than the %" PRIu64 " that a request to this model may bring",
                       t->name, b->bytes + ndarray_bytes(a), b->m->limit_bytes);
    b->bytes += ndarray_bytes(a);
    return 0;
}

static int value_wrong(const struct infer_tensor *t, int64_t i, enum ndarray_type type,
                       struct err *e)
{
    return err_set(e, HP_EINVAL, "inputs: %s: data[%" PRId64 "] is no %s", t->name, i,
                   infer_type_name(type));
}

/* Whether a whole number is one of this type. */
static bool whole_fits(enum ndarray_type type, json_int_t v)
{
    switch (type) {
    case ND_BOOL: return v == 0 || v == 1;
    case ND_U8: return v >= 0 && v <= UINT8_MAX;
    case ND_I8: return v >= INT8_MIN && v <= INT8_MAX;
    case ND_U16: return v >= 0 && v <= UINT16_MAX;
    case ND_I16: return v >= INT16_MIN && v <= INT16_MAX;
    case ND_I32: return v >= INT32_MIN && v <= INT32_MAX;
    case ND_U32: return v >= 0 && v <= (json_int_t)UINT32_MAX;
    case ND_U64: return v >= 0;
    default: return true;
    }
}

static int value_read(const struct infer_tensor *t, struct ndarray *a, int64_t i,
                      const json_t *value, struct err *e)
{
    if (a->type == ND_BOOL && json_is_boolean(value)) {
        ndarray_set_i64(a, i, json_is_true(value));
        return 0;
    }
    if (!ndarray_type_is_float(a->type)) {
        if (!json_is_integer(value) || !whole_fits(a->type, json_integer_value(value)))
            return value_wrong(t, i, a->type, e);
        ndarray_set_i64(a, i, json_integer_value(value));
        return 0;
    }
    double most = a->type == ND_F16 ? 65504 : a->type == ND_F32 ? 3.4028234663852886e38 : INFINITY;
    if (!json_is_number(value) || fabs(json_number_value(value)) > most)
        return value_wrong(t, i, a->type, e);
    ndarray_set_f64(a, i, json_number_value(value));
    return 0;
}

/* The numbers of a list, in rows or not: *at is how many there were before. The JSON is at most
 * BODY_MAX_DEPTH deep. */
static int values_read(const struct infer_tensor *t, struct ndarray *a, const json_t *list,
                       int64_t *at, struct err *e)
{
    const json_t *open[BODY_MAX_DEPTH + 1] = {list};
    size_t next[BODY_MAX_DEPTH + 1] = {0}, depth = 0;
    for (;;) {
        if (next[depth] == json_array_size(open[depth])) {
            if (depth == 0)
                return 0;
            depth--;
            continue;
        }
        const json_t *value = json_array_get(open[depth], next[depth]++);
        if (json_is_array(value) && depth < BODY_MAX_DEPTH) {
            open[++depth] = value;
            next[depth] = 0;
            continue;
        }
        if (*at >= a->count)
            return err_set(e, HP_EINVAL,
                           "inputs: %s: data has more than the %" PRId64 " values of its shape",
                           t->name, a->count);
        int rc = value_read(t, a, *at, value, e);
        if (rc < 0)
            return rc;
        ++*at;
    }
}

static int data_read(struct infer_reading *b, const struct infer_tensor *t, const json_t *data,
                     struct ndarray *a, struct err *e)
{
    int64_t n = 0, dims[ND_DIMS_MAX];
    /* What a list of so few values cannot fill is not allocated either. */
    if (!json_is_array(data))
        return err_set(e, HP_EINVAL, "inputs: %s: data must be a list", t->name);
    if (a->count > BODY_MAX_VALUES)
        return err_set(e, HP_EINVAL, "inputs: %s: more than %d values must come as binary data",
                       t->name, BODY_MAX_VALUES);
    memcpy(dims, a->dims, sizeof dims);
    int rc = ndarray_make(a, a->type, a->n_dims, dims, b->m->limit_bytes, e);
    rc = rc < 0 ? rc : values_read(t, a, data, &n, e);
    if (rc == 0 && n != a->count)
        rc = err_set(e, HP_EINVAL, "inputs: %s: data has %" PRId64 " values and its shape %" PRId64,
                     t->name, n, a->count);
    return rc;
}

/* In place where it lies aligned. */
static int binary_read(struct infer_reading *b, const struct infer_tensor *t, const json_t *size,
                       struct ndarray *a, struct err *e)
{
    uint64_t bytes = ndarray_bytes(a);
    if (!json_is_integer(size) || json_integer_value(size) < 0 ||
        (uint64_t)json_integer_value(size) != bytes)
        return err_set(e, HP_EINVAL,
                       "inputs: %s: binary_data_size must be %" PRIu64
                       ", the bytes of its shape and datatype",
                       t->name, bytes);
    const uint8_t *data = reader_take(&b->tensors, bytes);
    if (!data)
        return err_set(e, HP_EINVAL,
                       "inputs: %s: binary_data_size is %" PRIu64
                       " and the body has %zu bytes left behind the JSON",
                       t->name, bytes, b->tensors.size - b->tensors.at);
    if (a->type == ND_BOOL)
        for (uint64_t i = 0; i < bytes; i++)
            if (data[i] > 1)
                return value_wrong(t, (int64_t)i, a->type, e);
    if ((uintptr_t)data % ndarray_type_bytes(a->type) == 0) {
        a->data = (void *)(uintptr_t)data;
        return 0;
    }
    int64_t dims[ND_DIMS_MAX];
    memcpy(dims, a->dims, sizeof dims);
    int rc = ndarray_make(a, a->type, a->n_dims, dims, b->m->limit_bytes, e);
    if (rc == 0)
        memcpy(a->data, data, bytes);
    return rc;
}

static int tensor_find(const struct infer_tensor *t, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(t[i].name, name) == 0)
            return i;
    return -1;
}

static int input_read(struct infer_reading *b, size_t at, const json_t *input, struct err *e)
{
    const char *name = json_string_value(json_object_get(input, "name"));
    const char *type = json_string_value(json_object_get(input, "datatype"));
    const json_t *parameters = json_object_get(input, "parameters");
    const json_t *size = json_object_get(parameters, "binary_data_size");
    const json_t *data = json_object_get(input, "data");
    int k = name ? tensor_find(b->m->inputs, b->m->n_inputs, name) : -1;
    if (!name)
        return err_set(e, HP_EINVAL, "inputs[%zu]: has no name", at);
    if (k < 0)
        return err_set(e, HP_EINVAL, "inputs[%zu]: the model has no input \"%.200s\"", at, name);
    const struct infer_tensor *t = &b->m->inputs[k];
    struct ndarray *a = &b->r->inputs[k];
    if (b->seen[k])
        return err_set(e, HP_EINVAL, "inputs: %s: is there twice", t->name);
    b->seen[k] = true;
    int given = type_of_name(type);
    if (given < 0 || (t->type != 0 && given != (int)t->type))
        return err_set(e, HP_EINVAL, "inputs: %s: datatype is \"%.40s\"; the model takes %s",
                       t->name, type ? type : "", t->type ? infer_type_name(t->type) : "numbers");
    if (json_object_get(parameters, "shared_memory_region"))
        return err_set(e, HP_EUNSUPPORTED, "inputs: %s: shared memory is not taken here", t->name);
    if (!size == !data)
        return err_set(e, HP_EINVAL, "inputs: %s: needs either data or binary_data_size", t->name);
    a->type = (enum ndarray_type)given;
    int rc = shape_read(b, t, json_object_get(input, "shape"), a, e);
    if (rc == 0)
        rc = size ? binary_read(b, t, size, a, e) : data_read(b, t, data, a, e);
    return rc;
}

static int inputs_read(struct infer_reading *b, const json_t *inputs, struct err *e)
{
    int rc = 0;
    if (!json_is_array(inputs))
        return err_set(e, HP_EINVAL, "inputs: must be a list of tensors");
    for (size_t i = 0; i < json_array_size(inputs) && rc == 0; i++)
        rc = input_read(b, i, json_array_get(inputs, i), e);
    for (int k = 0; k < b->m->n_inputs && rc == 0; k++)
        if (!b->seen[k])
            rc = err_set(e, HP_EINVAL, "inputs: %s is missing", b->m->inputs[k].name);
    if (rc == 0 && b->tensors.at < b->tensors.size)
        rc = err_set(e, HP_EINVAL,
                     "the body goes on for %zu bytes behind the tensors that its JSON names",
                     b->tensors.size - b->tensors.at);
    return rc;
}

/* ---- what is asked for ---- */

static int output_read(struct infer_reading *b, size_t at, const json_t *output, bool binary,
                       struct err *e)
{
    struct infer_request *r = b->r;
    const char *name = json_string_value(json_object_get(output, "name"));
    const json_t *parameters = json_object_get(output, "parameters");
    const json_t *own = json_object_get(parameters, "binary_data");
    int k = name ? tensor_find(b->m->outputs, b->m->n_outputs, name) : -1;
    if (k < 0)
        return err_set(e, HP_EINVAL, "outputs[%zu]: the model has no output \"%.200s\"", at,
                       name ? name : "");
    if (json_object_get(parameters, "classification") ||
        json_object_get(parameters, "shared_memory_region"))
        return err_set(e, HP_EUNSUPPORTED,
                       "outputs: %s: classification and shared memory are not given here", name);
    for (int i = 0; i < r->n_outputs; i++)
        if (r->outputs[i] == k)
            return err_set(e, HP_EINVAL, "outputs: %s: is there twice", name);
    if (own && !json_is_boolean(own))
        return err_set(e, HP_EINVAL, "outputs: %s: binary_data must be true or false", name);
    r->outputs[r->n_outputs] = k;
    r->binary[r->n_outputs++] = own ? json_is_true(own) : binary;
    return 0;
}

static int outputs_read(struct infer_reading *b, const json_t *root, struct err *e)
{
    struct infer_request *r = b->r;
    const json_t *outputs = json_object_get(root, "outputs");
    const json_t *all = json_object_get(json_object_get(root, "parameters"), "binary_data_output");
    int rc = 0;
    if (all && !json_is_boolean(all))
        return err_set(e, HP_EINVAL, "parameters: binary_data_output must be true or false");
    if (outputs && !json_is_array(outputs))
        return err_set(e, HP_EINVAL, "outputs: must be a list");
    for (size_t i = 0; i < json_array_size(outputs) && rc == 0; i++)
        rc = output_read(b, i, json_array_get(outputs, i), json_is_true(all), e);
    if (rc < 0 || json_array_size(outputs) > 0)
        return rc;
    for (; r->n_outputs < b->m->n_outputs; r->n_outputs++) {
        r->outputs[r->n_outputs] = r->n_outputs;
        r->binary[r->n_outputs] = json_is_true(all);
    }
    return 0;
}

static int id_read(struct infer_request *r, const json_t *id, struct err *e)
{
    if (!id || json_is_null(id))
        return 0;
    if (!json_is_string(id) || json_string_length(id) >= INFER_ID_BYTES)
        return err_set(e, HP_EINVAL, "id: must be a text of less than %d bytes", INFER_ID_BYTES);
    memcpy(r->id, json_string_value(id), json_string_length(id) + 1);
    return 0;
}

/* As Triton's clients say it, in microseconds. */
static int timeout_read(struct infer_request *r, const json_t *timeout, struct err *e)
{
    if (timeout && (!json_is_integer(timeout) || json_integer_value(timeout) < 0))
        return err_set(e, HP_EINVAL,
                       "parameters: timeout must be a number of microseconds, 0 for none");
    r->timeout_us = (uint64_t)json_integer_value(timeout);
    return 0;
}

static int timings_read(struct infer_request *r, const json_t *timings, struct err *e)
{
    if (timings && !json_is_boolean(timings))
        return err_set(e, HP_EINVAL, "parameters: timings must be true or false");
    r->timings = json_is_true(timings);
    return 0;
}

/* ---- the body ---- */

static int root_read(struct infer_reading *b, const json_t *root, struct err *e)
{
    const json_t *parameters = json_object_get(root, "parameters");
    if (!json_is_object(root))
        return err_set(e, HP_EINVAL, "the body must be a JSON object");
    if (json_is_true(json_object_get(parameters, "sequence_start")) ||
        json_integer_value(json_object_get(parameters, "sequence_id")) != 0)
        return err_set(e, HP_EUNSUPPORTED, "parameters: sequences are not kept here");
    int rc = id_read(b->r, json_object_get(root, "id"), e);
    rc = rc < 0 ? rc : timeout_read(b->r, json_object_get(parameters, "timeout"), e);
    rc = rc < 0 ? rc : timings_read(b->r, json_object_get(parameters, "timings"), e);
    rc = rc < 0 ? rc : outputs_read(b, root, e);
    return rc < 0 ? rc : inputs_read(b, json_object_get(root, "inputs"), e);
}

static int body_split(struct infer_reading *b, size_t *json_bytes, struct err *e)
{
    size_t size = b->r->body.size;
    if (*json_bytes == SIZE_MAX)
        *json_bytes = size;
    if (*json_bytes > size)
        return err_set(e, HP_EINVAL,
                       "Inference-Header-Content-Length is %zu and the body has %zu bytes",
                       *json_bytes, size);
    if (*json_bytes > INFER_JSON_BYTES)
        return err_set(e, HP_ELIMIT,
                       "the JSON has %zu bytes; up to %d are read: send large tensors as binary "
                       "data",
                       *json_bytes, INFER_JSON_BYTES);
    b->tensors = reader_of(b->r->body.data + *json_bytes, size - *json_bytes);
    return 0;
}

static int request_make(struct infer_reading *b, struct err *e)
{
    struct infer_request *r = b->r;
    size_t n_in = (size_t)b->m->n_inputs + 1, n_out = (size_t)b->m->n_outputs + 1;
    r->inputs = calloc(n_in, sizeof *r->inputs);
    r->n_inputs = r->inputs ? b->m->n_inputs : 0;
    r->outputs = calloc(n_out, sizeof *r->outputs);
    r->binary = calloc(n_out, sizeof *r->binary);
    b->seen = calloc(n_in, sizeof *b->seen);
    return r->inputs && r->outputs && r->binary && b->seen ? 0 : err_no_memory(e, "a request");
}

int infer_request_read(const struct infer_model *m, struct buffer *body, size_t json_bytes,
                       struct infer_request *out, struct err *e)
{
    struct infer_reading b = {.m = m, .r = out};
    json_t *root = NULL;
    *out = (struct infer_request){.body = *body};
    *body = (struct buffer){0};
    int rc = request_make(&b, e);
    if (rc == 0 && out->body.size == 0)
        rc = err_set(e, HP_EINVAL, "the request has no body");
    rc = rc < 0 ? rc : body_split(&b, &json_bytes, e);
    rc = rc < 0 ? rc : body_measure_load((const char *)out->body.data, json_bytes, &root, e);
    rc = rc < 0 ? rc : root_read(&b, root, e);
    json_decref(root);
    free(b.seen);
    if (rc < 0)
        infer_request_free(out);
    return rc;
}

void infer_request_free(struct infer_request *r)
{
    for (int i = 0; i < r->n_inputs; i++)
        ndarray_free(&r->inputs[i]);
    free(r->inputs);
    free(r->outputs);
    free(r->binary);
    free(r->times);
    buffer_free(&r->body);
    *r = (struct infer_request){0};
}
