#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/infer.h"
#include "coordinator/gateway/infer_reading.h"

/* A body while it is read. */
struct json_reading {
    struct infer_reading *common;
    struct reader tensors; /* behind the JSON */
};

/* ---- one input ---- */

static int shape_read(struct json_reading *b, const struct infer_tensor *t, const json_t *shape,
                      struct ndarray *a, struct err *e)
{
    int64_t sizes[ND_DIMS_MAX];
    size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > ND_DIMS_MAX)
        return infer_input_shape(b->common, t, sizes, ND_DIMS_MAX + 1, a, e);
    for (size_t d = 0; d < n; d++) {
        const json_t *size = json_array_get(shape, d);
        sizes[d] = json_is_integer(size) ? json_integer_value(size) : 0;
    }
    return infer_input_shape(b->common, t, sizes, n, a, e);
}

static int value_read(const struct infer_tensor *t, struct ndarray *a, int64_t i,
                      const json_t *value, struct err *e)
{
    if (a->type == ND_BOOL && json_is_boolean(value))
        return infer_value_whole(t, a, i, json_is_true(value), e);
    if (!ndarray_type_is_float(a->type))
        return json_is_integer(value) ? infer_value_whole(t, a, i, json_integer_value(value), e)
                                      : infer_value_wrong(t, i, a->type, e);
    return json_is_number(value) ? infer_value_float(t, a, i, json_number_value(value), e)
                                 : infer_value_wrong(t, i, a->type, e);
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
            return infer_values_beyond(t, a, e);
        int rc = value_read(t, a, *at, value, e);
        if (rc < 0)
            return rc;
        ++*at;
    }
}

static int data_read(struct json_reading *b, const struct infer_tensor *t, const json_t *data,
                     struct ndarray *a, struct err *e)
{
    int64_t n = 0;
    /* What a list of so few values cannot fill is not allocated either. */
    if (!json_is_array(data))
        return err_set(e, HP_EINVAL, "inputs: %s: data must be a list", t->name);
    if (a->count > BODY_MAX_COST)
        return err_set(e, HP_EINVAL, "inputs: %s: more than %d values must come as binary data",
                       t->name, BODY_MAX_COST);
    int rc = infer_input_room(b->common, a, e);
    rc = rc < 0 ? rc : values_read(t, a, data, &n, e);
    return rc == 0 && n != a->count ? infer_values_missing(t, a, n, e) : rc;
}

static int binary_read(struct json_reading *b, const struct infer_tensor *t, const json_t *size,
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
    return infer_input_bytes(b->common, t, data, a, e);
}

static int input_read(struct json_reading *b, size_t at, const json_t *input, struct err *e)
{
    const char *name = json_string_value(json_object_get(input, "name"));
    const char *type = json_string_value(json_object_get(input, "datatype"));
    const json_t *parameters = json_object_get(input, "parameters");
    const json_t *size = json_object_get(parameters, "binary_data_size");
    const json_t *data = json_object_get(input, "data");
    const struct infer_tensor *t;
    struct ndarray *a;
    int rc = infer_input_open(b->common, at, name, type, &t, &a, e);
    if (rc < 0)
        return rc;
    if (json_object_get(parameters, "shared_memory_region"))
        return infer_region_refuse(t, e);
    if (!size == !data)
        return err_set(e, HP_EINVAL, "inputs: %s: needs either data or binary_data_size", t->name);
    rc = shape_read(b, t, json_object_get(input, "shape"), a, e);
    if (rc == 0)
        rc = size ? binary_read(b, t, size, a, e) : data_read(b, t, data, a, e);
    return rc;
}

static int inputs_read(struct json_reading *b, const json_t *inputs, struct err *e)
{
    int rc = 0;
    if (!json_is_array(inputs))
        return err_set(e, HP_EINVAL, "inputs: must be a list of tensors");
    for (size_t i = 0; i < json_array_size(inputs) && rc == 0; i++)
        rc = input_read(b, i, json_array_get(inputs, i), e);
    rc = rc < 0 ? rc : infer_inputs_whole(b->common, e);
    if (rc == 0 && b->tensors.at < b->tensors.size)
        rc = err_set(e, HP_EINVAL,
                     "the body goes on for %zu bytes behind the tensors that its JSON names",
                     b->tensors.size - b->tensors.at);
    return rc;
}

/* ---- what is asked for ---- */

static int output_read(struct json_reading *b, size_t at, const json_t *output, bool binary,
                       struct err *e)
{
    const char *name = json_string_value(json_object_get(output, "name"));
    const json_t *parameters = json_object_get(output, "parameters");
    const json_t *own = json_object_get(parameters, "binary_data");
    int rc = infer_output_add(b->common, at, name, own ? json_is_true(own) : binary, e);
    if (rc < 0)
        return rc;
    if (json_object_get(parameters, "classification") ||
        json_object_get(parameters, "shared_memory_region"))
        return infer_output_refuse(name, e);
    if (own && !json_is_boolean(own))
        return err_set(e, HP_EINVAL, "outputs: %s: binary_data must be true or false", name);
    return 0;
}

static int outputs_read(struct json_reading *b, const json_t *root, struct err *e)
{
    const json_t *outputs = json_object_get(root, "outputs");
    const json_t *all = json_object_get(json_object_get(root, "parameters"), "binary_data_output");
    int rc = 0;
    if (all && !json_is_boolean(all))
        return err_set(e, HP_EINVAL, "parameters: binary_data_output must be true or false");
    if (outputs && !json_is_array(outputs))
        return err_set(e, HP_EINVAL, "outputs: must be a list");
    for (size_t i = 0; i < json_array_size(outputs) && rc == 0; i++)
        rc = output_read(b, i, json_array_get(outputs, i), json_is_true(all), e);
    if (rc == 0 && json_array_size(outputs) == 0)
        infer_outputs_all(b->common, json_is_true(all));
    return rc;
}

static int id_read(struct infer_request *r, const json_t *id, struct err *e)
{
    if (!id || json_is_null(id))
        return 0;
    return json_is_string(id) ? infer_id_set(r, json_string_value(id), json_string_length(id), e)
                              : infer_id_wrong(e);
}

/* As Triton's clients say it, in microseconds. */
static int timeout_read(struct infer_request *r, const json_t *timeout, struct err *e)
{
    if (timeout && (!json_is_integer(timeout) || json_integer_value(timeout) < 0))
        return infer_timeout_wrong(e);
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

/* A sequence is named by a number or by a text. */
static bool sequence_is_named(const json_t *id)
{
    return json_is_string(id) ? json_string_length(id) > 0 : json_integer_value(id) != 0;
}

/* ---- the body ---- */

static int root_read(struct json_reading *b, const json_t *root, struct err *e)
{
    struct infer_request *r = b->common->r;
    const json_t *parameters = json_object_get(root, "parameters");
    if (!json_is_object(root))
        return err_set(e, HP_EINVAL, "the body must be a JSON object");
    if (json_is_true(json_object_get(parameters, "sequence_start")) ||
        sequence_is_named(json_object_get(parameters, "sequence_id")))
        return infer_sequence_refuse(e);
    int rc = id_read(r, json_object_get(root, "id"), e);
    rc = rc < 0 ? rc : timeout_read(r, json_object_get(parameters, "timeout"), e);
    rc = rc < 0 ? rc : timings_read(r, json_object_get(parameters, "timings"), e);
    rc = rc < 0 ? rc : outputs_read(b, root, e);
    return rc < 0 ? rc : inputs_read(b, json_object_get(root, "inputs"), e);
}

static int body_split(struct json_reading *b, size_t *json_bytes, struct err *e)
{
    const struct buffer *body = &b->common->r->body;
    if (*json_bytes == SIZE_MAX)
        *json_bytes = body->size;
    if (*json_bytes > body->size)
        return err_set(e, HP_EINVAL,
                       "Inference-Header-Content-Length is %zu and the body has %zu bytes",
                       *json_bytes, body->size);
    if (*json_bytes > INFER_JSON_BYTES)
        return err_set(e, HP_ELIMIT,
                       "the JSON has %zu bytes; up to %d are read: send large tensors as binary "
                       "data",
                       *json_bytes, INFER_JSON_BYTES);
    b->tensors = reader_of(body->data + *json_bytes, body->size - *json_bytes);
    return 0;
}

int infer_request_read(const struct infer_model *m, struct buffer *body, size_t json_bytes,
                       struct infer_request *out, struct err *e)
{
    struct infer_reading common;
    struct json_reading b = {.common = &common};
    json_t *root = NULL;
    int rc = infer_reading_begin(&common, m, body, out, e);
    rc = rc < 0 ? rc : body_split(&b, &json_bytes, e);
    rc =
        rc < 0 ? rc : body_measure_load_tensors((const char *)out->body.data, json_bytes, &root, e);
    rc = rc < 0 ? rc : root_read(&b, root, e);
    json_decref(root);
    return infer_reading_end(&common, rc);
}
