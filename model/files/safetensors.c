#include "model/files/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/json.h"

static int read_shape(const struct json_at *at, struct weight *w, uint64_t *elements, struct err *e)
{
    struct json_at shape;
    size_t n_dims;
    int rc = json_get(at, "shape", &shape, e);
    rc = rc < 0 ? rc : json_as_array(&shape, &n_dims, e);
    if (rc < 0)
        return rc;
    if (n_dims > 4)
        return json_fail(&shape, e, "tensor %s has %zu dimensions (at most 4 are allowed)", w->name,
                         n_dims);
    w->n_dims = n_dims ? (int)n_dims : 1; /* a number by itself is a vector of one */
    w->shape[0] = 1;
    *elements = 1;
    for (size_t d = 0; d < n_dims; d++) {
        struct json_at item = json_item(&shape, d);
        rc = json_as_u64(&item, &w->shape[d], e);
        if (rc < 0)
            return rc;
        if (w->shape[d] == 0 || __builtin_mul_overflow(*elements, w->shape[d], elements) ||
            *elements > INT64_MAX)
            return json_fail(&item, e, "tensor %s: a dimension of %llu", w->name,
                             (unsigned long long)w->shape[d]);
    }
    return 0;
}

static int read_offsets(const struct json_at *at, uint64_t data_bytes, struct weight *w,
                        struct err *e)
{
    struct json_at offsets;
    size_t n;
    int rc = json_get(at, "data_offsets", &offsets, e);
    rc = rc < 0 ? rc : json_as_array(&offsets, &n, e);
    if (rc < 0)
        return rc;
    if (n != 2)
        return json_fail(&offsets, e, "tensor %s: %zu offsets, expected begin and end", w->name, n);
    uint64_t begin = 0, end = 0;
    struct json_at first = json_item(&offsets, 0), last = json_item(&offsets, 1);
    rc = json_as_u64(&first, &begin, e);
    rc = rc < 0 ? rc : json_as_u64(&last, &end, e);
    if (rc < 0)
        return rc;
    if (begin > end || end > data_bytes)
        return json_fail(
            &offsets, e,
            "tensor %s: bytes %llu to %llu do not lie in the file's %llu bytes of data", w->name,
            (unsigned long long)begin, (unsigned long long)end, (unsigned long long)data_bytes);
    if (end - begin != w->bytes)
        return json_fail(&offsets, e,
                         "tensor %s: %llu bytes where shape and number format need %llu", w->name,
                         (unsigned long long)(end - begin), (unsigned long long)w->bytes);
    w->offset = begin;
    return 0;
}

/* Formats of one byte that mean something together with another tensor (hub_scales.h). */
static bool read_byte_format(const char *format, struct weight *w)
{
    static const struct {
        const char *name;
        enum dtype dtype;
        enum weight_stored stored;
    } formats[] = {{"F8_E4M3", DTYPE_F32, WEIGHT_F8_E4M3},
                   {"F8_E5M2", DTYPE_F32, WEIGHT_F8_E5M2},
                   {"U8", DTYPE_COUNT, WEIGHT_PLAIN}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format, formats[i].name) == 0) {
            w->dtype = formats[i].dtype;
            w->stored = formats[i].stored;
            w->format = formats[i].name;
            return true;
        }
    return false;
}

static int read_tensor(const struct json_at *at, uint64_t data_bytes, struct weight *w,
                       struct err *e)
{
    const char *format;
    int rc = json_get_string(at, "dtype", &format, e);
    if (rc < 0)
        return rc;
    int dtype = dtype_of_safetensors(format);
    char known[192];
    size_t element_bytes = 1;
    if (dtype >= 0) {
        w->dtype = (enum dtype)dtype;
        w->format = dtype_info(w->dtype)->name;
        element_bytes = dtype_info(w->dtype)->block_bytes;
    } else if (!read_byte_format(format, w)) {
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: tensor %s has number format %s; known are %s, F8_E4M3 and F8_E5M2",
                       at->file, w->name, format, dtype_known(known, sizeof known));
    }
    uint64_t elements = 0;
    rc = read_shape(at, w, &elements, e);
    if (rc < 0)
        return rc;
    if (__builtin_mul_overflow(elements, (uint64_t)element_bytes, &w->bytes))
        return json_fail(at, e, "tensor %s is too large", w->name);
    return read_offsets(at, data_bytes, w, e);
}

static int by_offset(const void *a, const void *b)
{
    const struct weight *v = a, *w = b;
    if (v->offset != w->offset)
        return v->offset < w->offset ? -1 : 1;
    return strcmp(v->name, w->name);
}

static bool name_is_printable(const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            return false;
    return *name && strlen(name) <= 512;
}

static int read_header(const struct json_at *root, uint64_t data_bytes, struct arena *arena,
                       struct safetensors *out, struct err *e)
{
    int rc = json_as_object(root, e);
    if (rc < 0)
        return rc;
    out->weights = arena_alloc(arena, json_object_size(root->value) + 1, sizeof *out->weights);
    if (!out->weights)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the header", root->file);
    const char *name;
    json_t *value;
    json_object_foreach(root->value, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        if (!name_is_printable(name))
            return json_fail(root, e,
                             "a tensor's name is empty, too long or has control characters");
        struct weight *w = &out->weights[out->n_weights++];
        struct json_at at = {root->file, value, root, name, 0};
        w->name = arena_strdup(arena, name);
        if (!w->name)
            return err_set(e, HP_ENOMEM, "%s: out of memory for the header", root->file);
        rc = read_tensor(&at, data_bytes, w, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Offsets become those of the file, and no two tensors share bytes. */
static int place_tensors(const char *file, int file_index, const uint8_t *map,
                         struct safetensors *s, struct err *e)
{
    qsort(s->weights, s->n_weights, sizeof *s->weights, by_offset);
    uint64_t free_from = 0;
    for (size_t i = 0; i < s->n_weights; i++) {
        struct weight *w = &s->weights[i];
        if (w->offset < free_from)
            return err_set(e, HP_EPARSE, "%s: tensor %s overlaps tensor %s", file, w->name,
                           s->weights[i - 1].name);
        free_from = w->offset + w->bytes;
        w->offset += s->header_bytes;
        w->file = file_index;
        w->data = map + w->offset;
    }
    return 0;
}

int safetensors_parse(const char *file, int file_index, const uint8_t *map, uint64_t size,
                      struct arena *arena, struct safetensors *out, struct err *e)
{
    *out = (struct safetensors){0};
    struct reader in = reader_of(map, size);
    uint64_t length = reader_u64(&in);
    if (in.failed)
        return err_set(e, HP_EPARSE, "%s: %llu bytes are too few for a safetensors file", file,
                       (unsigned long long)size);
    if (length > size - in.at || length > SAFETENSORS_HEADER_MAX_BYTES)
        return err_set(
            e, HP_EPARSE,
            "%s: header says that it has %llu bytes; the file has %llu, and %d are allowed", file,
            (unsigned long long)length, (unsigned long long)size, SAFETENSORS_HEADER_MAX_BYTES);
    json_t *root;
    struct json_at at;
    int rc = json_parse_at(file, map + in.at, length, &root, &at, e);
    if (rc < 0)
        return rc;
    out->header_bytes = in.at + length;
    rc = read_header(&at, size - out->header_bytes, arena, out, e);
    json_decref(root);
    return rc < 0 ? rc : place_tensors(file, file_index, map, out, e);
}
