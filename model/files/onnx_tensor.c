#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fs.h"
#include "common/utf8.h"
#include "model/files/onnx_int.h"

/* Fields of TensorProto. */
enum {
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_SEGMENT = 3,
    TENSOR_FLOATS = 4,
    TENSOR_INT32S = 5,
    TENSOR_STRINGS = 6,
    TENSOR_INT64S = 7,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9,
    TENSOR_DOUBLES = 10,
    TENSOR_UINT64S = 11,
    TENSOR_EXTERNAL = 13,
    TENSOR_LOCATION = 14,
};

struct tensor_fields {
    const char *name;
    int64_t dims[ND_DIMS_MAX];
    int n_dims;
    uint64_t type, location;
    bool has_raw, has_segment, is_external;
    struct pb raw;
    uint64_t typed;   /* field of typed values, 0: none */
    int64_t n_typed;  /* how many of these there are */
    const char *file; /* of external data */
    const char *offset, *length;
};

int onnx_text(struct onnx_file *f, const struct pb_field *field, const char **out, struct err *e)
{
    size_t n = pb_size(&field->bytes);
    if (field->wire != PB_BYTES || memchr(field->bytes.at, 0, n) ||
        utf8_valid_prefix((const char *)field->bytes.at, n) != n)
        return err_set(e, HP_EPARSE, "%s: a name that is no text", f->path);
    *out = arena_strndup(&f->arena, (const char *)field->bytes.at, n);
    return *out ? 0 : err_no_memory(e, "%s", f->path);
}

static int external_read(struct onnx_file *f, struct pb entry, struct tensor_fields *t,
                         struct err *e)
{
    const char *key = "", *value = "";
    struct pb_field field;
    while (pb_next(&entry, &field)) {
        int rc = field.number == 1   ? onnx_text(f, &field, &key, e)
                 : field.number == 2 ? onnx_text(f, &field, &value, e)
                                     : 0;
        if (rc < 0)
            return rc;
    }
    if (strcmp(key, "location") == 0)
        t->file = value;
    if (strcmp(key, "offset") == 0)
        t->offset = value;
    if (strcmp(key, "length") == 0)
        t->length = value;
    return 0;
}

static int dims_read(struct onnx_file *f, const struct pb_field *field, struct tensor_fields *t,
                     struct err *e)
{
    struct pb packed = field->bytes;
    uint64_t v = field->value;
    bool has = field->wire == PB_VARINT || pb_next_varint(&packed, &v);
    for (; has; has = field->wire == PB_BYTES && pb_next_varint(&packed, &v)) {
        if (t->n_dims == ND_DIMS_MAX)
            return err_set(e, HP_EUNSUPPORTED, "%s: tensor %s has more than %d dimensions", f->path,
                           t->name, ND_DIMS_MAX);
        t->dims[t->n_dims++] = (int64_t)v;
    }
    return packed.failed
               ? err_set(e, HP_EPARSE, "%s: tensor %s: its sizes are damaged", f->path, t->name)
               : 0;
}

/* One occurrence of a field of typed values, which may be packed: how many it holds. */
static int64_t typed_count(const struct pb_field *field)
{
    if (field->wire != PB_BYTES)
        return 1;
    size_t each = field->number == TENSOR_FLOATS ? 4 : field->number == TENSOR_DOUBLES ? 8 : 0;
    if (each)
        return pb_size(&field->bytes) % each ? -1 : (int64_t)(pb_size(&field->bytes) / each);
    struct pb p = field->bytes;
    uint64_t v;
    int64_t n = 0;
    while (pb_next_varint(&p, &v))
        n++;
    return p.failed ? -1 : n;
}

static int field_read(struct onnx_file *f, const struct pb_field *field, struct tensor_fields *t,
                      struct err *e)
{
    switch (field->number) {
    case TENSOR_DIMS: return dims_read(f, field, t, e);
    case TENSOR_TYPE: t->type = field->value; return 0;
    case TENSOR_SEGMENT: t->has_segment = true; return 0;
    case TENSOR_NAME: return onnx_text(f, field, &t->name, e);
    case TENSOR_RAW:
        t->has_raw = true;
        t->raw = field->bytes;
        return 0;
    case TENSOR_EXTERNAL: return external_read(f, field->bytes, t, e);
    case TENSOR_LOCATION: t->location = field->value; return 0;
    case TENSOR_FLOATS:
    case TENSOR_INT32S:
    case TENSOR_STRINGS:
    case TENSOR_INT64S:
    case TENSOR_DOUBLES:
    case TENSOR_UINT64S: {
        int64_t n = typed_count(field);
        if (n < 0 || (t->typed && t->typed != field->number))
            return err_set(e, HP_EPARSE, "%s: tensor %s: its values are damaged", f->path, t->name);
        t->typed = n > 0 ? field->number : t->typed;
        t->n_typed += n;
        return 0;
    }
    default: return 0;
    }
}

/* ---- where the values lie ---- */

static int number_of(const struct onnx_file *f, const char *tensor, const char *what,
                     const char *text, uint64_t fallback, uint64_t *out, struct err *e)
{
    *out = fallback;
    if (!text)
        return 0;
    char *end;
    unsigned long long v = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : ULLONG_MAX;
    if (v == ULLONG_MAX || *end)
        return err_set(e, HP_EPARSE,
                       "%s: tensor %s: its %s is \"%.40s\", which is no number of "
                       "bytes",
                       f->path, tensor, what, text);
    *out = v;
    return 0;
}

/* A path that stays in the model's folder: relative, no step up. Links are looked at by
 * links_check. */
static bool path_is_inside(const char *path)
{
    if (!*path || *path == '/')
        return false;
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, "/");
        if (n == 2 && at[0] == '.' && at[1] == '.')
            return false;
        at += n + (at[n] == '/');
    }
    return true;
}

/* Whether a path without links lies below a folder, which is one, too. */
static bool lies_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strcmp(folder, "/") == 0 || (strncmp(path, folder, n) == 0 && path[n] == '/');
}

/* Links may lead to other files of the folder, and beside the file that the model itself is a link
 * to (caches of model hubs are so): whoever sends a folder could have us read any file of ours. */
static int links_check(const struct onnx_file *f, const char *whole, struct err *e)
{
    char real[PATH_MAX], folder[PATH_MAX];
    if (!realpath(whole, real))
        return 0; /* opening it says why */
    if (realpath(f->folder, folder) && lies_below(real, folder))
        return 0;
    if (realpath(f->path, folder)) {
        char *slash = strrchr(folder, '/');
        slash[slash == folder] = '\0';
        if (lies_below(real, folder))
            return 0;
    }
    err_set(e, HP_EPARSE, "%s: is a link that leads out of the model's folder", whole);
    err_hint(e, "put the file itself there");
    return HP_EPARSE;
}

static int data_file(struct onnx_file *f, const char *path, const struct mapped_file **out,
                     struct err *e)
{
    for (int i = 1; i < f->n_files; i++)
        if (strcmp(f->files[i].path, path) == 0) {
            *out = &f->files[i].map;
            return 0;
        }
    if (f->n_files == ONNX_FILES_MAX)
        return err_set(e, HP_EUNSUPPORTED, "%s: more than %d files of external data", f->path,
                       ONNX_FILES_MAX - 1);
    const char *whole = arena_printf(&f->arena, "%s/%s", f->folder, path);
    if (!whole)
        return err_no_memory(e, "%s", f->path);
    struct onnx_data_file *d = &f->files[f->n_files];
    int rc = links_check(f, whole, e);
    rc = rc < 0 ? rc : mapped_file_open(whole, &d->map, e);
    if (rc < 0)
        return rc;
    d->path = path;
    f->n_files++;
    *out = &d->map;
    return 0;
}

static int external_data(struct onnx_file *f, const struct tensor_fields *t, uint64_t bytes,
                         struct pb *out, struct err *e)
{
    const struct mapped_file *map = NULL;
    uint64_t offset, length;
    if (!t->file || !f->folder || !path_is_inside(t->file))
        return err_set(e, HP_EPARSE,
                       "%s: tensor %s: its data is said to be in \"%.200s\", which "
                       "does not lie in the model's folder",
                       f->path, t->name, t->file ? t->file : "");
    int rc = number_of(f, t->name, "offset", t->offset, 0, &offset, e);
    rc = rc < 0 ? rc : number_of(f, t->name, "length", t->length, bytes, &length, e);
    if (rc == 0 && bytes > 0 && (rc = data_file(f, t->file, &map, e)) < 0)
        return err_at(e, "%s: external data of tensor %s", f->path, t->name);
    if (rc < 0)
        return rc;
    if (length != bytes)
        return err_set(e, HP_EPARSE, "%s: tensor %s: %llu bytes in %s where its shape needs %llu",
                       f->path, t->name, (unsigned long long)length, t->file,
                       (unsigned long long)bytes);
    if (map && (offset > map->bytes || bytes > map->bytes - offset))
        return err_set(e, HP_EPARSE,
                       "%s: tensor %s: its bytes %llu to %llu lie beyond the end of "
                       "%s (%llu bytes)",
                       f->path, t->name, (unsigned long long)offset,
                       (unsigned long long)offset + bytes, t->file, (unsigned long long)map->bytes);
    *out = map ? pb_of(map->data + offset, bytes) : pb_of("", 0);
    return 0;
}

/* ---- typed values ---- */

/* The field in which numbers of a type stand. */
static uint32_t typed_field(enum ndarray_type type)
{
    switch (type) {
    case ND_F32: return TENSOR_FLOATS;
    case ND_F64: return TENSOR_DOUBLES;
    case ND_I64: return TENSOR_INT64S;
    case ND_U32:
    case ND_U64: return TENSOR_UINT64S;
    default: return TENSOR_INT32S;
    }
}

static void typed_put(const struct ndarray *a, int64_t i, uint64_t v)
{
    if (a->type == ND_F16) /* its bits */
        ((uint16_t *)a->data)[i] = (uint16_t)v;
    else
        ndarray_set_i64(a, i, (int64_t)v);
}

static void typed_values(const struct pb_field *field, const struct ndarray *a, int64_t *at)
{
    struct pb p = field->bytes;
    uint64_t v = field->value;
    uint32_t narrow = (uint32_t)v;
    bool is_packed = field->wire == PB_BYTES;
    for (; *at < a->count; ++*at) {
        if (a->type == ND_F32) {
            if (is_packed && !pb_next_fixed32(&p, &narrow))
                return;
            ((float *)a->data)[*at] = pb_float(narrow);
        } else if (a->type == ND_F64) {
            if (is_packed && !pb_next_fixed64(&p, &v))
                return;
            ((double *)a->data)[*at] = pb_double(v);
        } else {
            if (is_packed && !pb_next_varint(&p, &v))
                return;
            typed_put(a, *at, v);
        }
        if (!is_packed) {
            ++*at;
            return;
        }
    }
}

static int typed_read(struct onnx_file *f, struct pb bytes, const struct tensor_fields *t,
                      struct ndarray *a, struct err *e)
{
    if (t->n_typed != a->count || (a->count > 0 && t->typed != typed_field(a->type)))
        return err_set(
            e, HP_EPARSE, "%s: tensor %s: %lld values %swhere its shape needs %lld of %s", f->path,
            t->name, (long long)t->n_typed,
            t->typed && t->typed != typed_field(a->type) ? "in another type's field " : "",
            (long long)a->count, ndarray_type_name(a->type));
    a->data = arena_alloc(&f->arena, (size_t)a->count + 1, ndarray_type_bytes(a->type));
    if (!a->data)
        return err_no_memory(e, "%s: tensor %s", f->path, t->name);
    struct pb_field field;
    int64_t at = 0;
    while (pb_next(&bytes, &field))
        if (field.number == t->typed)
            typed_values(&field, a, &at);
    return 0;
}

/* Values in the file; in the arena where they would not be aligned. */
static int raw_place(struct onnx_file *f, const struct tensor_fields *t, struct pb raw,
                     struct ndarray *a, struct err *e)
{
    size_t each = ndarray_type_bytes(a->type);
    if (pb_size(&raw) != ndarray_bytes(a))
        return err_set(e, HP_EPARSE, "%s: tensor %s: %zu bytes where its shape needs %llu", f->path,
                       t->name, pb_size(&raw), (unsigned long long)ndarray_bytes(a));
    if ((uintptr_t)raw.at % each == 0) {
        a->data = (void *)(uintptr_t)raw.at; /* read-only: arrays of files are never written to */
        return 0;
    }
    a->data = arena_memdup(&f->arena, raw.at, pb_size(&raw));
    return a->data ? 0 : err_no_memory(e, "%s: tensor %s", f->path, t->name);
}

int onnx_tensor_read(struct onnx_file *f, struct pb bytes, const char **name, struct ndarray *out,
                     struct err *e)
{
    struct tensor_fields t = {.name = ""};
    struct pb_field field;
    for (struct pb p = bytes;;) {
        if (!pb_next(&p, &field)) {
            if (p.failed)
                return err_set(e, HP_EPARSE, "%s: tensor %s: its bytes are damaged", f->path,
                               t.name);
            break;
        }
        int rc = field_read(f, &field, &t, e);
        if (rc < 0)
            return rc;
    }
    *name = t.name;
    if (t.type >= ND_TYPE_COUNT || !ndarray_type_bytes((enum ndarray_type)t.type) || t.has_segment)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: tensor %s has data type %llu; floats of 16 to 64 bits, integers and "
                       "booleans are known",
                       f->path, t.name, (unsigned long long)t.type);
    struct err why;
    if (ndarray_shape(out, (enum ndarray_type)t.type, t.n_dims, t.dims, &why) < 0)
        return err_set(e, HP_EPARSE, "%s: tensor %s: %s", f->path, t.name, why.text);
    if (t.location == 0 && !t.has_raw)
        return typed_read(f, bytes, &t, out, e);
    if (t.location == 0)
        return raw_place(f, &t, t.raw, out, e);
    struct pb raw = pb_of("", 0);
    int rc = external_data(f, &t, ndarray_bytes(out), &raw, e);
    return rc < 0 ? rc : raw_place(f, &t, raw, out, e);
}
