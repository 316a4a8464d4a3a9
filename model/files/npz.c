#include "model/files/npz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/fs.h"
#include "common/vector.h"

enum {
    LOCAL_MAGIC = 0x04034b50,
    CENTRAL_MAGIC = 0x02014b50,
    END_MAGIC = 0x06054b50,
    END64_MAGIC = 0x06064b50,
    END64_LOCATOR_MAGIC = 0x07064b50,
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    END64_LOCATOR_BYTES = 20,
    COMMENT_MAX = 65535,
    ARRAYS_MAX = 1 << 16,
    ZIP64_ID = 1,
    DATE_1980 = 0x21, /* the first day that the format knows */
    NPY_HEADER_MAX = 1 << 16,
    NPY_ALIGN = 64,
};
static const size_t npz_file_max = (size_t)1 << 40;
static const char npy_magic[6] = "\x93NUMPY";

static uint32_t crc32_of(const uint8_t *data, size_t size)
{
    uint32_t table[256], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
        table[i] = c;
    }
    for (size_t i = 0; i < size; i++)
        crc = table[(crc ^ data[i]) & 0xff] ^ (crc >> 8);
    return ~crc;
}

/* ---- one .npy ---- */

static const struct {
    char descr[5];
    enum ndarray_type type;
} npy_types[] = {{"<f4", ND_F32}, {"<f8", ND_F64}, {"<f2", ND_F16}, {"<i8", ND_I64},
                 {"<i4", ND_I32}, {"<i2", ND_I16}, {"|i1", ND_I8},  {"<u8", ND_U64},
                 {"<u4", ND_U32}, {"<u2", ND_U16}, {"|u1", ND_U8},  {"|b1", ND_BOOL}};

/* What follows 'KEY': in the dictionary of a .npy's head. */
static const char *npy_value(const char *head, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(head, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

static int npy_shape(const char *at, struct ndarray *a)
{
    int64_t dims[ND_DIMS_MAX];
    int n = 0;
    if (!at || *at++ != '(')
        return -1;
    for (;;) {
        at += strspn(at, " ,");
        if (*at == ')')
            break;
        char *end;
        long long size = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (size < 0 || n == ND_DIMS_MAX)
            return -1;
        dims[n++] = size;
        at = end;
    }
    return ndarray_shape(a, a->type, n, dims, NULL);
}

static int npy_head(const char *head, struct ndarray *a, const char *where, struct err *e)
{
    const char *descr = npy_value(head, "descr"), *order = npy_value(head, "fortran_order");
    for (size_t i = 0; descr && i < sizeof npy_types / sizeof *npy_types; i++)
        if (strncmp(descr + 1, npy_types[i].descr, 3) == 0 && descr[4] == *descr)
            a->type = npy_types[i].type;
    if (!a->type)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: its numbers are %.24s; little-endian floats, "
                       "integers and booleans can be read",
                       where, descr ? descr : "not named");
    if (npy_shape(npy_value(head, "shape"), a) < 0)
        return err_set(e, HP_EPARSE, "%s: its shape cannot be read", where);
    if (!order || (strncmp(order, "False", 5) != 0 && a->n_dims > 1))
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: lies column by column; save it with "
                       "numpy.ascontiguousarray",
                       where);
    return 0;
}

static int npy_parse(const char *where, const uint8_t *data, size_t size, struct ndarray *out,
                     struct err *e)
{
    struct reader r = reader_of(data, size);
    const uint8_t *magic = reader_take(&r, sizeof npy_magic);
    uint16_t version = reader_u16(&r);
    uint32_t length = (version & 0xff) == 1 ? reader_u16(&r) : reader_u32(&r);
    const uint8_t *text = length <= NPY_HEADER_MAX ? reader_take(&r, length) : NULL;
    if (!text || memcmp(magic, npy_magic, sizeof npy_magic) != 0)
        return err_set(e, HP_EPARSE, "%s: no .npy, or cut short", where);
    char *head = strndup((const char *)text, length);
    if (!head)
        return err_no_memory(e, "%s", where);
    struct ndarray shape = {0};
    int rc = npy_head(head, &shape, where, e);
    free(head);
    if (rc == 0 && ndarray_bytes(&shape) != size - r.at)
        rc = err_set(e, HP_EPARSE, "%s: %zu bytes of data where its shape needs %llu", where,
                     size - r.at, (unsigned long long)ndarray_bytes(&shape));
    rc = rc < 0 ? rc : ndarray_make(out, shape.type, shape.n_dims, shape.dims, UINT64_MAX, e);
    if (rc == 0 && out->count > 0)
        memcpy(out->data, r.data + r.at, size - r.at);
    return rc;
}

/* ---- reading the zip ---- */

struct zip_member {
    const uint8_t *name;
    uint16_t name_bytes, method;
    uint32_t crc;
    uint64_t stored_bytes, bytes, local_at;
};

/* Sizes that do not fit 32 bits stand in an extra field, in this order. */
static void zip64_apply(struct reader extra, struct zip_member *m)
{
    while (!extra.failed && extra.at < extra.size) {
        uint16_t id = reader_u16(&extra), n = reader_u16(&extra);
        const uint8_t *field = reader_take(&extra, n);
        if (!field || id != ZIP64_ID)
            continue;
        struct reader r = reader_of(field, n);
        if (m->bytes == UINT32_MAX)
            m->bytes = reader_u64(&r);
        if (m->stored_bytes == UINT32_MAX)
            m->stored_bytes = reader_u64(&r);
        if (m->local_at == UINT32_MAX)
            m->local_at = reader_u64(&r);
    }
}

static bool central_read(struct reader *r, struct zip_member *m)
{
    const uint8_t *head = reader_take(r, CENTRAL_BYTES);
    if (!head)
        return false;
    struct reader h = reader_of(head, CENTRAL_BYTES);
    uint32_t magic = reader_u32(&h);
    h.at = 10;
    m->method = reader_u16(&h);
    h.at = 16;
    m->crc = reader_u32(&h);
    m->stored_bytes = reader_u32(&h);
    m->bytes = reader_u32(&h);
    m->name_bytes = reader_u16(&h);
    uint16_t extra_bytes = reader_u16(&h), comment_bytes = reader_u16(&h);
    h.at = 42;
    m->local_at = reader_u32(&h);
    m->name = reader_take(r, m->name_bytes);
    const uint8_t *extra = reader_take(r, extra_bytes);
    (void)reader_take(r, comment_bytes);
    if (r->failed || magic != CENTRAL_MAGIC)
        return false;
    zip64_apply(reader_of(extra, extra_bytes), m);
    return true;
}

/* The bytes of a member, behind its local head; NULL where they do not lie in the file. */
static const uint8_t *member_bytes(const uint8_t *data, size_t size, const struct zip_member *m)
{
    if (m->local_at > size)
        return NULL;
    struct reader r = reader_of(data + m->local_at, size - m->local_at);
    const uint8_t *head = reader_take(&r, LOCAL_BYTES);
    if (!head)
        return NULL;
    struct reader h = reader_of(head, LOCAL_BYTES);
    uint32_t magic = reader_u32(&h);
    h.at = 26;
    uint16_t name_bytes = reader_u16(&h), extra_bytes = reader_u16(&h);
    (void)reader_take(&r, (size_t)name_bytes + extra_bytes);
    return magic == LOCAL_MAGIC ? reader_take(&r, m->stored_bytes) : NULL;
}

/* Where the central directory begins, and how many members it has. */
static int zip_end(const char *name, const uint8_t *data, size_t size, uint64_t *at, uint64_t *n,
                   struct err *e)
{
    size_t low = size > END_BYTES + COMMENT_MAX ? size - END_BYTES - COMMENT_MAX : 0, end = size;
    for (size_t i = size >= END_BYTES ? size - END_BYTES + 1 : 0; i > low && end == size; i--) {
        struct reader r = reader_of(data + i - 1, 4);
        if (reader_u32(&r) == END_MAGIC)
            end = i - 1;
    }
    if (end == size)
        return err_set(e, HP_EPARSE, "%s: no .npz (a zip has an end record; this has none)", name);
    struct reader r = reader_of(data + end, END_BYTES);
    r.at = 10;
    *n = reader_u16(&r);
    (void)reader_u32(&r);
    *at = reader_u32(&r);
    if (end >= END64_LOCATOR_BYTES) {
        struct reader l = reader_of(data + end - END64_LOCATOR_BYTES, END64_LOCATOR_BYTES);
        uint32_t magic = reader_u32(&l);
        (void)reader_u32(&l);
        uint64_t end64 = reader_u64(&l);
        if (magic == END64_LOCATOR_MAGIC && end64 <= size - END64_BYTES && size > END64_BYTES) {
            struct reader b = reader_of(data + end64, END64_BYTES);
            if (reader_u32(&b) == END64_MAGIC) {
                b.at = 32;
                *n = reader_u64(&b);
                (void)reader_u64(&b);
                *at = reader_u64(&b);
            }
        }
    }
    if (*at > size || *n > ARRAYS_MAX)
        return err_set(e, HP_EPARSE, "%s: its directory lies beyond its end", name);
    return 0;
}

static int member_read(const char *file, const uint8_t *data, size_t size,
                       const struct zip_member *m, struct npz *out, struct err *e)
{
    char where[512];
    snprintf(where, sizeof where, "%s: %.*s", file, (int)m->name_bytes, (const char *)m->name);
    const uint8_t *bytes = member_bytes(data, size, m);
    if (!bytes)
        return err_set(e, HP_EPARSE, "%s: cut short", where);
    if (m->method != 0 || m->stored_bytes != m->bytes)
        return err_set(e, HP_EUNSUPPORTED, "%s: compressed; save it with numpy.savez", where);
    if (crc32_of(bytes, m->bytes) != m->crc)
        return err_set(e, HP_EPARSE, "%s: damaged (its checksum differs)", where);
    struct ndarray array = {0};
    size_t length = m->name_bytes;
    if (length > 4 && memcmp(m->name + length - 4, ".npy", 4) == 0)
        length -= 4;
    char *name = strndup((const char *)m->name, length);
    int rc = name ? npy_parse(where, bytes, m->bytes, &array, e) : err_no_memory(e, "%s", where);
    rc = rc < 0 ? rc : npz_add(out, name, &array, e);
    ndarray_free(&array);
    free(name);
    return rc;
}

int npz_parse(const char *name, const uint8_t *data, size_t size, struct npz *out, struct err *e)
{
    uint64_t at = 0, n = 0;
    int rc = zip_end(name, data, size, &at, &n, e);
    if (rc < 0)
        return rc;
    struct reader r = reader_of(data + at, size - at);
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        struct zip_member m;
        rc = central_read(&r, &m) ? member_read(name, data, size, &m, out, e)
                                  : err_set(e, HP_EPARSE, "%s: its directory is damaged", name);
    }
    return rc;
}

int npz_read(const char *path, struct npz *out, struct err *e)
{
    struct buffer file = {0};
    *out = (struct npz){0};
    int rc = fs_file_read(path, npz_file_max, &file, e);
    rc = rc < 0 ? rc : npz_parse(path, file.data, file.size, out, e);
    buffer_free(&file);
    return rc;
}

/* ---- the arrays ---- */

int npz_add(struct npz *z, const char *name, struct ndarray *array, struct err *e)
{
    struct npz_array *a = vector_add(z->arrays, z->n_arrays, z->room_arrays);
    if (!a || !(a->name = strdup(name))) {
        z->n_arrays -= a != NULL;
        return err_no_memory(e, "array %s", name);
    }
    a->array = *array;
    *array = (struct ndarray){0};
    return 0;
}

const struct ndarray *npz_find(const struct npz *z, const char *name)
{
    for (int i = 0; i < z->n_arrays; i++)
        if (strcmp(z->arrays[i].name, name) == 0)
            return &z->arrays[i].array;
    return NULL;
}

void npz_free(struct npz *z)
{
    for (int i = 0; i < z->n_arrays; i++) {
        free(z->arrays[i].name);
        ndarray_free(&z->arrays[i].array);
    }
    free(z->arrays);
    *z = (struct npz){0};
}

/* ---- writing ---- */

static void put_u16(struct buffer *b, uint16_t v)
{
    buffer_append(b, &v, sizeof v);
}

static void put_u32(struct buffer *b, uint32_t v)
{
    buffer_append(b, &v, sizeof v);
}

static void put_u64(struct buffer *b, uint64_t v)
{
    buffer_append(b, &v, sizeof v);
}

static void npy_print(struct buffer *b, const struct ndarray *a)
{
    char text[NPY_ALIGN * 5];
    const char *descr = "|b1";
    for (size_t i = 0; i < sizeof npy_types / sizeof *npy_types; i++)
        if (npy_types[i].type == a->type)
            descr = npy_types[i].descr;
    size_t at = (size_t)snprintf(text, sizeof text,
                                 "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int d = 0; d < a->n_dims; d++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%lld, ", (long long)a->dims[d]);
    at += (size_t)snprintf(text + at, sizeof text - at, "), }");
    size_t head = sizeof npy_magic + 4, padded = (head + at + NPY_ALIGN) / NPY_ALIGN * NPY_ALIGN;
    buffer_append(b, npy_magic, sizeof npy_magic);
    put_u16(b, 1);
    put_u16(b, (uint16_t)(padded - head));
    buffer_printf(b, "%-*s\n", (int)(padded - head - 1), text);
    buffer_append(b, a->data, ndarray_bytes(a));
}

struct zip_entry {
    uint64_t at, bytes;
    uint32_t crc;
};

/* What local and central heads have in common, from the version that is needed to the lengths;
 * sizes stand in the extra field. */
static void put_common(struct buffer *b, const struct zip_entry *z, const char *name,
                       uint16_t extra_bytes)
{
    put_u16(b, 45); /* the version that knows zip64 */
    put_u16(b, 0);
    put_u16(b, 0);
    put_u16(b, 0);
    put_u16(b, DATE_1980);
    put_u32(b, z->crc);
    put_u32(b, UINT32_MAX);
    put_u32(b, UINT32_MAX);
    put_u16(b, (uint16_t)(strlen(name) + 4));
    put_u16(b, extra_bytes);
}

static void put_local(struct buffer *b, const char *name, const struct ndarray *a,
                      struct zip_entry *z)
{
    struct buffer npy = {0};
    npy_print(&npy, a);
    b->failed |= npy.failed;
    *z = (struct zip_entry){b->size, npy.size, crc32_of(npy.data, npy.size)};
    put_u32(b, LOCAL_MAGIC);
    put_common(b, z, name, 20);
    buffer_printf(b, "%s.npy", name);
    put_u16(b, ZIP64_ID);
    put_u16(b, 16);
    put_u64(b, z->bytes);
    put_u64(b, z->bytes);
    buffer_append(b, npy.data, npy.size);
    buffer_free(&npy);
}

static void put_central(struct buffer *b, const char *name, const struct zip_entry *z)
{
    put_u32(b, CENTRAL_MAGIC);
    put_u16(b, 45);
    put_common(b, z, name, 28);
    put_u16(b, 0); /* comment, disk, attributes inside and outside */
    put_u16(b, 0);
    put_u16(b, 0);
    put_u32(b, 0);
    put_u32(b, UINT32_MAX);
    buffer_printf(b, "%s.npy", name);
    put_u16(b, ZIP64_ID);
    put_u16(b, 24);
    put_u64(b, z->bytes);
    put_u64(b, z->bytes);
    put_u64(b, z->at);
}

static void put_end(struct buffer *b, uint64_t n, uint64_t directory)
{
    uint64_t at = b->size;
    put_u32(b, END64_MAGIC);
    put_u64(b, END64_BYTES - 12);
    put_u16(b, 45);
    put_u16(b, 45);
    put_u32(b, 0);
    put_u32(b, 0);
    put_u64(b, n);
    put_u64(b, n);
    put_u64(b, at - directory);
    put_u64(b, directory);
    put_u32(b, END64_LOCATOR_MAGIC);
    put_u32(b, 0);
    put_u64(b, at);
    put_u32(b, 1);
    put_u32(b, END_MAGIC);
    put_u32(b, 0);
    put_u16(b, (uint16_t)(n < UINT16_MAX ? n : UINT16_MAX));
    put_u16(b, (uint16_t)(n < UINT16_MAX ? n : UINT16_MAX));
    put_u32(b, UINT32_MAX);
    put_u32(b, UINT32_MAX);
    put_u16(b, 0);
}

int npz_write(const char *path, const struct npz *z, struct err *e)
{
    struct buffer b = {0};
    struct zip_entry *entries = calloc((size_t)z->n_arrays + 1, sizeof *entries);
    if (!entries)
        return err_no_memory(e, "%s", path);
    for (int i = 0; i < z->n_arrays; i++)
        put_local(&b, z->arrays[i].name, &z->arrays[i].array, &entries[i]);
    uint64_t directory = b.size;
    for (int i = 0; i < z->n_arrays; i++)
        put_central(&b, z->arrays[i].name, &entries[i]);
    put_end(&b, (uint64_t)z->n_arrays, directory);
    free(entries);
    return fs_buffer_save(path, &b, e);
}
