#include "coordinator/gateway/infer_message.h"

#include <inttypes.h>
#include <string.h>

#include "common/utf8.h"
#include "coordinator/gateway/infer_reading.h"
#include "model/files/protobuf.h"

/* Fields of one message that are looked at; more are no request of anybody's. */
enum { FIELDS_MAX = 65536 };

/* A message while it is read; `raw` goes on from one raw_input_contents to the next. */
struct message_reading {
    struct infer_reading *common;
    struct pb raw;
    bool has_raw;
};

struct parameter {
    const char *name;
    uint32_t kind; /* 1: bool, 2: int64, 3: string; 0: another, or none */
    int64_t number;
};

/* ---- fields ---- */

static int message_wrong(struct err *e, const char *where)
{
    return err_set(e, HP_EINVAL, "the message is no protobuf that this method takes: %s", where);
}

/* A name, or another short text. */
static int text_read(const struct pb_field *f, const char *what, char *out, size_t size,
                     struct err *e)
{
    size_t n = pb_size(&f->bytes);
    const char *text = (const char *)f->bytes.at;
    if (f->wire != PB_BYTES)
        return message_wrong(e, what);
    if (n >= size || memchr(text, 0, n) || utf8_valid_prefix(text, n) != n)
        return err_set(e, HP_EINVAL, "%s must be a text of less than %zu bytes", what, size);
    memcpy(out, text, n);
    out[n] = '\0';
    return 0;
}

int infer_message_head(const struct buffer *message, struct infer_message_head *out, struct err *e)
{
    int rc = 0;
    *out = (struct infer_message_head){{0}, {0}};
    if (message->size == 0)
        return 0;
    struct pb p = pb_of(message->data, message->size);
    struct pb_field f;
    for (int n = 0; rc == 0 && n < FIELDS_MAX && pb_next(&p, &f); n++) {
        if (f.number == 1)
            rc = text_read(&f, "model_name", out->model, sizeof out->model, e);
        else if (f.number == 2)
            rc = text_read(&f, "model_version", out->version, sizeof out->version, e);
    }
    if (rc == 0 && (p.failed || p.at != p.end))
        rc = message_wrong(e, "its fields do not end where it does");
    return rc;
}

/* An entry of a map of InferParameter; names that nobody knows are not looked at. */
static int parameter_read(const struct pb_field *entry, char name[INFER_NAME_BYTES],
                          struct parameter *out, struct err *e)
{
    struct pb p = entry->bytes, value = {0};
    struct pb_field f;
    int rc = entry->wire == PB_BYTES ? 0 : message_wrong(e, "parameters");
    name[0] = '\0';
    *out = (struct parameter){.name = name};
    while (rc == 0 && pb_next(&p, &f)) {
        if (f.number == 1)
            rc = text_read(&f, "parameters: a name", name, INFER_NAME_BYTES, e);
        else if (f.number == 2 && f.wire == PB_BYTES)
            value = f.bytes;
    }
    while (rc == 0 && pb_next(&value, &f)) {
        out->kind = f.number <= 2 && f.wire == PB_VARINT  ? f.number
                    : f.number == 3 && f.wire == PB_BYTES ? 3
                                                          : 0;
        out->number = (int64_t)f.value;
    }
    return rc == 0 && (p.failed || value.failed) ? message_wrong(e, "parameters") : rc;
}

/* ---- parameters of a request ---- */

static int timeout_read(struct infer_request *r, const struct parameter *p, struct err *e)
{
    if (p->kind != 2 || p->number < 0)
        return infer_timeout_wrong(e);
    r->timeout_us = (uint64_t)p->number;
    return 0;
}

static int request_parameter(struct infer_request *r, const struct parameter *p, struct err *e)
{
    if (strcmp(p->name, "timeout") == 0)
        return timeout_read(r, p, e);
    if (strcmp(p->name, "timings") == 0) {
        if (p->kind != 1)
            return err_set(e, HP_EINVAL, "parameters: timings must be true or false");
        r->timings = p->number != 0;
    }
    bool begins = strcmp(p->name, "sequence_start") == 0 && p->kind == 1 && p->number;
    bool is_in = strcmp(p->name, "sequence_id") == 0 && p->number != 0;
    return begins || is_in ? infer_sequence_refuse(e) : 0;
}

static int parameter_take(struct message_reading *b, const struct pb_field *f, struct err *e)
{
    char name[INFER_NAME_BYTES];
    struct parameter p;
    int rc = parameter_read(f, name, &p, e);
    return rc < 0 ? rc : request_parameter(b->common->r, &p, e);
}

/* ---- numbers of an input, one by one ---- */

/* Which field of InferTensorContents has the values of a type; 0: they come raw alone. */
static uint32_t contents_field(enum ndarray_type type)
{
    static const uint32_t fields[ND_TYPE_COUNT] = {
        [ND_BOOL] = 1, [ND_I8] = 2,  [ND_I16] = 2, [ND_I32] = 2, [ND_I64] = 3, [ND_U8] = 4,
        [ND_U16] = 4,  [ND_U32] = 4, [ND_U64] = 5, [ND_F32] = 6, [ND_F64] = 7};
    return (unsigned)type < ND_TYPE_COUNT ? fields[type] : 0;
}

static int value_put(const struct infer_tensor *t, struct ndarray *a, int64_t *at, uint64_t bits,
                     struct err *e)
{
    int rc = 0;
    if (*at >= a->count)
        return infer_values_beyond(t, a, e);
    if (a->type == ND_F32)
        rc = infer_value_float(t, a, *at, (double)pb_float((uint32_t)bits), e);
    else if (a->type == ND_F64)
        rc = infer_value_float(t, a, *at, pb_double(bits), e);
    else if (a->type == ND_U64)
        ((uint64_t *)a->data)[*at] = bits;
    else
        rc = infer_value_whole(t, a, *at, (int64_t)bits, e);
    ++*at;
    return rc;
}

static bool packed_next(struct pb *p, enum ndarray_type type, uint64_t *bits)
{
    uint32_t narrow = 0;
    if (type == ND_F64)
        return pb_next_fixed64(p, bits);
    if (type != ND_F32)
        return pb_next_varint(p, bits);
    bool is_there = pb_next_fixed32(p, &narrow);
    *bits = narrow;
    return is_there;
}

/* Values come packed or each as a field. */
static int values_put(const struct infer_tensor *t, struct ndarray *a, int64_t *at,
                      const struct pb_field *f, struct err *e)
{
    enum pb_wire alone = a->type == ND_F32   ? PB_FIXED32
                         : a->type == ND_F64 ? PB_FIXED64
                                             : PB_VARINT;
    struct pb packed = f->bytes;
    uint64_t bits;
    int rc = 0;
    if (f->wire == alone)
        return value_put(t, a, at, f->value, e);
    if (f->wire != PB_BYTES)
        return message_wrong(e, "contents");
    while (rc == 0 && packed_next(&packed, a->type, &bits))
        rc = value_put(t, a, at, bits, e);
    return rc == 0 && packed.failed ? message_wrong(e, "contents") : rc;
}

static int64_t packed_count(const struct pb *p, enum ndarray_type type)
{
    int64_t n = 0;
    if (type == ND_F32 || type == ND_F64)
        return (int64_t)(pb_size(p) / (type == ND_F32 ? 4 : 8));
    for (const uint8_t *at = p->at; at < p->end; at++)
        n += *at < 0x80;
    return n;
}

/* Of a field of them. */
static int64_t values_count(struct pb contents, uint32_t field, enum ndarray_type type)
{
    struct pb_field f;
    int64_t n = 0;
    while (pb_next(&contents, &f))
        if (f.number == field)
            n += f.wire == PB_BYTES ? packed_count(&f.bytes, type) : 1;
    return n;
}

static int contents_read(struct message_reading *b, const struct infer_tensor *t,
                         struct pb contents, struct ndarray *a, struct err *e)
{
    struct pb_field f;
    uint32_t wanted = contents_field(a->type);
    int64_t n = 0;
    if (wanted == 0)
        return err_set(e, HP_EINVAL, "inputs: %s: %s comes in raw_input_contents alone", t->name,
                       infer_type_name(a->type));
    /* What so few bytes cannot fill is not allocated either. */
    if ((uint64_t)a->count > pb_size(&contents))
        return infer_values_missing(t, a, values_count(contents, wanted, a->type), e);
    int rc = infer_input_room(b->common, a, e);
    while (rc == 0 && pb_next(&contents, &f)) {
        if (f.number == wanted)
            rc = values_put(t, a, &n, &f, e);
        else
            rc = err_set(e, HP_EINVAL,
                         "inputs: %s: contents of %s lie in another field of its message", t->name,
                         infer_type_name(a->type));
    }
    if (rc == 0 && contents.failed)
        rc = message_wrong(e, "contents");
    return rc == 0 && n != a->count ? infer_values_missing(t, a, n, e) : rc;
}

/* ---- inputs ---- */

/* Of one InferInputTensor. */
struct input_fields {
    char name[INFER_NAME_BYTES], type[16];
    int64_t sizes[ND_DIMS_MAX];
    size_t n_sizes; /* more than ND_DIMS_MAX: so many that the others are not kept */
    struct pb contents;
    bool has_name, has_contents, has_region;
};

static void size_add(struct input_fields *in, uint64_t size)
{
    if (in->n_sizes < ND_DIMS_MAX)
        in->sizes[in->n_sizes] = (int64_t)size;
    in->n_sizes += in->n_sizes <= ND_DIMS_MAX;
}

static int shape_take(struct input_fields *in, const struct pb_field *f, struct err *e)
{
    struct pb packed = f->bytes;
    uint64_t size;
    if (f->wire == PB_VARINT) {
        size_add(in, f->value);
        return 0;
    }
    if (f->wire != PB_BYTES)
        return message_wrong(e, "inputs: shape");
    while (pb_next_varint(&packed, &size))
        size_add(in, size);
    return packed.failed ? message_wrong(e, "inputs: shape") : 0;
}

static int input_parameter(struct input_fields *in, const struct pb_field *f, struct err *e)
{
    char name[INFER_NAME_BYTES];
    struct parameter p;
    int rc = parameter_read(f, name, &p, e);
    in->has_region |= strcmp(name, "shared_memory_region") == 0;
    return rc;
}

static int input_field(struct input_fields *in, const struct pb_field *f, struct err *e)
{
    switch (f->number) {
    case 1:
        in->has_name = true;
        return text_read(f, "inputs: a name", in->name, sizeof in->name, e);
    case 2: return text_read(f, "inputs: datatype", in->type, sizeof in->type, e);
    case 3: return shape_take(in, f, e);
    case 4: return input_parameter(in, f, e);
    case 5:
        if (f->wire != PB_BYTES || in->has_contents)
            return message_wrong(e, "inputs: contents");
        in->has_contents = true;
        in->contents = f->bytes;
        return 0;
    default: return 0;
    }
}

static int input_fields_read(const struct pb_field *input, struct input_fields *in, struct err *e)
{
    struct pb p = input->bytes;
    struct pb_field f;
    int rc = input->wire == PB_BYTES ? 0 : message_wrong(e, "inputs");
    *in = (struct input_fields){.n_sizes = 0};
    while (rc == 0 && pb_next(&p, &f))
        rc = input_field(in, &f, e);
    return rc == 0 && p.failed ? message_wrong(e, "inputs") : rc;
}

/* The raw contents of the next input, which come in the order of the inputs. */
static int raw_read(struct message_reading *b, const struct infer_tensor *t, struct ndarray *a,
                    struct err *e)
{
    struct pb_field f = {0};
    uint64_t bytes = ndarray_bytes(a);
    while (pb_next(&b->raw, &f))
        if (f.number == 7 && f.wire == PB_BYTES)
            break;
    if (f.number != 7 || f.wire != PB_BYTES)
        return err_set(e, HP_EINVAL, "inputs: %s: raw_input_contents has none for it", t->name);
    if (pb_size(&f.bytes) != bytes)
        return err_set(e, HP_EINVAL,
                       "inputs: %s: raw_input_contents has %zu bytes for it, and its shape and "
                       "datatype take %" PRIu64,
                       t->name, pb_size(&f.bytes), bytes);
    return infer_input_bytes(b->common, t, f.bytes.at, a, e);
}

static int input_read(struct message_reading *b, size_t at, const struct pb_field *input,
                      struct err *e)
{
    struct input_fields in;
    const struct infer_tensor *t;
    struct ndarray *a;
    int rc = input_fields_read(input, &in, e);
    if (rc == 0)
        rc = infer_input_open(b->common, at, in.has_name ? in.name : NULL, in.type, &t, &a, e);
    if (rc < 0)
        return rc;
    if (in.has_region)
        return infer_region_refuse(t, e);
    if (in.has_contents == b->has_raw)
        return err_set(e, HP_EINVAL, "inputs: %s: needs either contents or raw_input_contents",
                       t->name);
    rc = infer_input_shape(b->common, t, in.sizes, in.n_sizes, a, e);
    if (rc == 0)
        rc = b->has_raw ? raw_read(b, t, a, e) : contents_read(b, t, in.contents, a, e);
    return rc;
}

/* ---- outputs ---- */

static int output_read(struct message_reading *b, size_t at, const struct pb_field *output,
                       struct err *e)
{
    struct pb p = output->bytes;
    struct pb_field f;
    char name[INFER_NAME_BYTES] = "", parameter[INFER_NAME_BYTES];
    struct parameter value;
    bool refused = false;
    int rc = output->wire == PB_BYTES ? 0 : message_wrong(e, "outputs");
    while (rc == 0 && pb_next(&p, &f)) {
        if (f.number == 1) {
            rc = text_read(&f, "outputs: a name", name, sizeof name, e);
        } else if (f.number == 2) {
            rc = parameter_read(&f, parameter, &value, e);
            refused |= strcmp(parameter, "classification") == 0 ||
                       strcmp(parameter, "shared_memory_region") == 0;
        }
    }
    if (rc == 0 && p.failed)
        rc = message_wrong(e, "outputs");
    rc = rc < 0 ? rc : infer_output_add(b->common, at, name, true, e);
    return rc == 0 && refused ? infer_output_refuse(name, e) : rc;
}

/* ---- the message ---- */

static int id_read(struct infer_request *r, const struct pb_field *f, struct err *e)
{
    return text_read(f, "id", r->id, sizeof r->id, e) < 0 ? infer_id_wrong(e) : 0;
}

/* Whether it brings raw contents, and that it is a message at all. */
static int message_look(struct message_reading *b, struct err *e)
{
    struct pb p = b->raw;
    struct pb_field f;
    int n = 0;
    for (; n < FIELDS_MAX && pb_next(&p, &f); n++)
        b->has_raw |= f.number == 7;
    return p.failed || p.at != p.end ? message_wrong(e, "its fields do not end where it does") : 0;
}

static int raw_end(struct message_reading *b, struct err *e)
{
    struct pb_field f;
    while (pb_next(&b->raw, &f))
        if (f.number == 7)
            return err_set(e, HP_EINVAL, "raw_input_contents goes on behind those of the inputs");
    return 0;
}

static int fields_read(struct message_reading *b, struct err *e)
{
    struct pb p = b->raw;
    struct pb_field f;
    size_t n_inputs = 0, n_outputs = 0;
    int rc = 0;
    while (rc == 0 && pb_next(&p, &f)) {
        switch (f.number) {
        case 3: rc = id_read(b->common->r, &f, e); break;
        case 4: rc = parameter_take(b, &f, e); break;
        case 5: rc = input_read(b, n_inputs++, &f, e); break;
        case 6: rc = output_read(b, n_outputs++, &f, e); break;
        default: break;
        }
    }
    rc = rc < 0 ? rc : infer_inputs_whole(b->common, e);
    rc = rc < 0 ? rc : raw_end(b, e);
    if (rc == 0 && n_outputs == 0)
        infer_outputs_all(b->common, true);
    return rc;
}

int infer_message_read(const struct infer_model *m, struct buffer *message,
                       struct infer_request *out, struct err *e)
{
    struct infer_reading common;
    struct message_reading b = {.common = &common};
    int rc = infer_reading_begin(&common, m, message, out, e);
    if (rc == 0) {
        b.raw = pb_of(out->body.data, out->body.size);
        rc = message_look(&b, e);
    }
    rc = rc < 0 ? rc : fields_read(&b, e);
    return infer_reading_end(&common, rc);
}
