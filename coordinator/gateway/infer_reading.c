#include "coordinator/gateway/infer_reading.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t infer_body_limit(const struct infer_model *m)
{
    return m->limit_bytes + INFER_JSON_BYTES;
}

/* ---- a request while it is read ---- */

int infer_reading_begin(struct infer_reading *b, const struct infer_model *m, struct buffer *body,
                        struct infer_request *r, struct err *e)
{
    size_t n_in = (size_t)m->n_inputs + 1, n_out = (size_t)m->n_outputs + 1;
    *b = (struct infer_reading){.m = m, .r = r};
    *r = (struct infer_request){.body = *body};
    *body = (struct buffer){0};
    r->inputs = calloc(n_in, sizeof *r->inputs);
    r->n_inputs = r->inputs ? m->n_inputs : 0;
    r->outputs = calloc(n_out, sizeof *r->outputs);
    r->binary = calloc(n_out, sizeof *r->binary);
    b->seen = calloc(n_in, sizeof *b->seen);
    if (!r->inputs || !r->outputs || !r->binary || !b->seen)
        return err_no_memory(e, "a request");
    return r->body.size > 0 ? 0 : err_set(e, HP_EINVAL, "the request has no body");
}

int infer_reading_end(struct infer_reading *b, int rc)
{
    free(b->seen);
    b->seen = NULL;
    if (rc < 0)
        infer_request_free(b->r);
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

static int tensor_find(const struct infer_tensor *t, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(t[i].name, name) == 0)
            return i;
    return -1;
}

int infer_input_open(struct infer_reading *b, size_t at, const char *name, const char *type,
                     const struct infer_tensor **tensor, struct ndarray **a, struct err *e)
{
    int k = name ? tensor_find(b->m->inputs, b->m->n_inputs, name) : -1;
    if (!name)
        return err_set(e, HP_EINVAL, "inputs[%zu]: has no name", at);
    if (k < 0)
        return err_set(e, HP_EINVAL, "inputs[%zu]: the model has no input \"%.200s\"", at, name);
    const struct infer_tensor *t = &b->m->inputs[k];
    if (b->seen[k])
        return err_set(e, HP_EINVAL, "inputs: %s: is there twice", t->name);
    b->seen[k] = true;
    int given = type_of_name(type);
    if (given < 0 || (t->type != 0 && given != (int)t->type))
        return err_set(e, HP_EINVAL, "inputs: %s: datatype is \"%.40s\"; the model takes %s",
                       t->name, type ? type : "", t->type ? infer_type_name(t->type) : "numbers");
    *tensor = t;
    *a = &b->r->inputs[k];
    (*a)->type = (enum ndarray_type)given;
    return 0;
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

int infer_input_shape(struct infer_reading *b, const struct infer_tensor *t, const int64_t *sizes,
                      size_t n, struct ndarray *a, struct err *e)
{
    char wanted[ND_SHAPE_TEXT];
    if (n > ND_DIMS_MAX)
        return err_set(e, HP_EINVAL, "inputs: %s: shape must be a list of at most %d sizes",
                       t->name, ND_DIMS_MAX);
    bool fits = t->n_dims < 0 || (size_t)t->n_dims == n;
    for (size_t d = 0; d < n; d++) {
        if (sizes[d] < 1)
            return err_set(e, HP_EINVAL, "inputs: %s: shape[%zu] must be a whole number from 1 on",
                           t->name, d);
        fits = fits && (t->n_dims < 0 || t->dims[d] < 0 || t->dims[d] == sizes[d]);
    }
    if (!fits)
        return err_set(e, HP_EINVAL,
                       "inputs: %s: shape is not what the model takes: [%s] (-1: any size)",
                       t->name, shape_text(t, wanted));
    int rc = ndarray_shape(a, a->type, (int)n, sizes, e);
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

int infer_input_room(struct infer_reading *b, struct ndarray *a, struct err *e)
{
    int64_t dims[ND_DIMS_MAX];
    memcpy(dims, a->dims, sizeof dims);
    return ndarray_make(a, a->type, a->n_dims, dims, b->m->limit_bytes, e);
}

int infer_input_bytes(struct infer_reading *b, const struct infer_tensor *t, const uint8_t *data,
                      struct ndarray *a, struct err *e)
{
    uint64_t bytes = ndarray_bytes(a);
    if (a->type == ND_BOOL)
        for (uint64_t i = 0; i < bytes; i++)
            if (data[i] > 1)
                return infer_value_wrong(t, (int64_t)i, a->type, e);
    if (b->m->copies_inputs || (uintptr_t)data % ndarray_type_bytes(a->type) == 0) {
        a->data = (void *)(uintptr_t)data;
        return 0;
    }
    int rc = infer_input_room(b, a, e);
    if (rc == 0)
        memcpy(a->data, data, bytes);
    return rc;
}

int infer_inputs_whole(const struct infer_reading *b, struct err *e)
{
    for (int k = 0; k < b->m->n_inputs; k++)
        if (!b->seen[k])
            return err_set(e, HP_EINVAL, "inputs: %s is missing", b->m->inputs[k].name);
    return 0;
}

/* ---- one value ---- */

int infer_value_wrong(const struct infer_tensor *t, int64_t i, enum ndarray_type type,
                      struct err *e)
{
    return err_set(e, HP_EINVAL, "inputs: %s: data[%" PRId64 "] is no %s", t->name, i,
                   infer_type_name(type));
}

/* Whether a whole number is one of this type. */
static bool whole_fits(enum ndarray_type type, int64_t v)
{
    switch (type) {
    case ND_BOOL: return v == 0 || v == 1;
    case ND_U8: return v >= 0 && v <= UINT8_MAX;
    case ND_I8: return v >= INT8_MIN && v <= INT8_MAX;
    case ND_U16: return v >= 0 && v <= UINT16_MAX;
    case ND_I16: return v >= INT16_MIN && v <= INT16_MAX;
    case ND_I32: return v >= INT32_MIN && v <= INT32_MAX;
    case ND_U32: return v >= 0 && v <= (int64_t)UINT32_MAX;
    case ND_U64: return v >= 0;
    default: return true;
    }
}

int infer_value_whole(const struct infer_tensor *t, struct ndarray *a, int64_t i, int64_t value,
                      struct err *e)
{
    if (!whole_fits(a->type, value))
        return infer_value_wrong(t, i, a->type, e);
    ndarray_set_i64(a, i, value);
    return 0;
}

int infer_value_float(const struct infer_tensor *t, struct ndarray *a, int64_t i, double value,
                      struct err *e)
{
    double most = a->type == ND_F16 ? 65504 : a->type == ND_F32 ? 3.4028234663852886e38 : INFINITY;
    if (fabs(value) > most)
        return infer_value_wrong(t, i, a->type, e);
    ndarray_set_f64(a, i, value);
    return 0;
}

int infer_values_missing(const struct infer_tensor *t, const struct ndarray *a, int64_t n,
                         struct err *e)
{
    return err_set(e, HP_EINVAL, "inputs: %s: data has %" PRId64 " values and its shape %" PRId64,
                   t->name, n, a->count);
}

int infer_values_beyond(const struct infer_tensor *t, const struct ndarray *a, struct err *e)
{
    return err_set(e, HP_EINVAL,
                   "inputs: %s: data has more than the %" PRId64 " values of its shape", t->name,
                   a->count);
}

/* ---- what is asked for ---- */

int infer_output_add(struct infer_reading *b, size_t at, const char *name, bool binary,
                     struct err *e)
{
    struct infer_request *r = b->r;
    int k = name ? tensor_find(b->m->outputs, b->m->n_outputs, name) : -1;
    if (k < 0)
        return err_set(e, HP_EINVAL, "outputs[%zu]: the model has no output \"%.200s\"", at,
                       name ? name : "");
    for (int i = 0; i < r->n_outputs; i++)
        if (r->outputs[i] == k)
            return err_set(e, HP_EINVAL, "outputs: %s: is there twice", name);
    r->outputs[r->n_outputs] = k;
    r->binary[r->n_outputs++] = binary;
    return 0;
}

void infer_outputs_all(struct infer_reading *b, bool binary)
{
    struct infer_request *r = b->r;
    for (; r->n_outputs < b->m->n_outputs; r->n_outputs++) {
        r->outputs[r->n_outputs] = r->n_outputs;
        r->binary[r->n_outputs] = binary;
    }
}

int infer_id_wrong(struct err *e)
{
    return err_set(e, HP_EINVAL, "id: must be a text of less than %d bytes", INFER_ID_BYTES);
}

int infer_id_set(struct infer_request *r, const char *id, size_t n, struct err *e)
{
    if (n >= INFER_ID_BYTES)
        return infer_id_wrong(e);
    memcpy(r->id, id, n);
    r->id[n] = '\0';
    return 0;
}

int infer_timeout_wrong(struct err *e)
{
    return err_set(e, HP_EINVAL,
                   "parameters: timeout must be a number of microseconds, 0 for none");
}

int infer_sequence_refuse(struct err *e)
{
    return err_set(e, HP_EUNSUPPORTED, "parameters: sequences are not kept here");
}

int infer_region_refuse(const struct infer_tensor *t, struct err *e)
{
    return err_set(e, HP_EUNSUPPORTED, "inputs: %s: shared memory is not taken here", t->name);
}

int infer_output_refuse(const char *name, struct err *e)
{
    return err_set(e, HP_EUNSUPPORTED,
                   "outputs: %s: classification and shared memory are not given here", name);
}
