#include "common/pack.h"

#include <math.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

enum { MAX_DEPTH = 16 };

/* ---- writing ---- */

static int write_to_buffer(void *ctx, const char *data, size_t n)
{
    struct buffer *out = ctx;
    buffer_append(out, data, n);
    return out->failed ? -1 : 0;
}

static bool is_empty(const struct pack_field *f, const void *member)
{
    switch (f->kind) {
    case PACK_U64: return *(const uint64_t *)member == 0;
    case PACK_F64: return fpclassify(*(const double *)member) == FP_ZERO;
    case PACK_BOOL: return !*(const bool *)member;
    case PACK_TEXT: return !*(const char *const *)member || !**(const char *const *)member;
    case PACK_BYTES: return ((const struct pack_span *)member)->size == 0;
    case PACK_U32S: return ((const struct pack_u32s *)member)->count == 0;
    case PACK_LIST: return ((const struct pack_list *)member)->count == 0;
    }
    return true;
}

static void write_text(msgpack_packer *p, const char *s)
{
    size_t n = s ? strlen(s) : 0;
    struct buffer *out = p->data;
    msgpack_pack_str(p, n);
    msgpack_pack_str_body(p, s ? s : "", n);
    if (n && !out->failed)
        utf8_clean_bytes((char *)out->data + out->size - n, n);
}

static void write_bytes(msgpack_packer *p, const void *data, size_t n)
{
    msgpack_pack_bin(p, n);
    msgpack_pack_bin_body(p, data, n);
}

static void write_object(msgpack_packer *p, const struct pack_field *fields, const void *object);

static void write_member(msgpack_packer *p, const struct pack_field *f, const void *member)
{
    switch (f->kind) {
    case PACK_U64: msgpack_pack_uint64(p, *(const uint64_t *)member); break;
    case PACK_F64: msgpack_pack_double(p, *(const double *)member); break;
    case PACK_BOOL: *(const bool *)member ? msgpack_pack_true(p) : msgpack_pack_false(p); break;
    case PACK_TEXT: write_text(p, *(const char *const *)member); break;
    case PACK_BYTES: {
        const struct pack_span *s = member;
        write_bytes(p, s->data, s->size);
        break;
    }
    case PACK_U32S: {
        const struct pack_u32s *s = member;
        write_bytes(p, s->items, s->count * sizeof *s->items);
        break;
    }
    case PACK_LIST: {
        const struct pack_list *l = member;
        msgpack_pack_array(p, l->count);
        for (size_t i = 0; i < l->count; i++)
            write_object(p, f->rows, (const char *)l->items + i * f->row_size);
        break;
    }
    }
}

static void write_object(msgpack_packer *p, const struct pack_field *fields, const void *object)
{
    size_t n = 0;
    for (const struct pack_field *f = fields; f->key; f++)
        n += f->required || !is_empty(f, (const char *)object + f->offset);
    msgpack_pack_map(p, n);
    for (const struct pack_field *f = fields; f->key; f++) {
        const void *member = (const char *)object + f->offset;
        if (!f->required && is_empty(f, member))
            continue;
        write_text(p, f->key);
        write_member(p, f, member);
    }
}

void pack_encode(const struct pack_field *fields, const void *object, struct buffer *out)
{
    msgpack_packer p;
    msgpack_packer_init(&p, out, write_to_buffer);
    write_object(&p, fields, object);
}

/* ---- reading: one pass over the bytes ---- */

enum packed_kind {
    PACKED_OTHER,
    PACKED_NUMBER,
    PACKED_NEGATIVE,
    PACKED_REAL,
    PACKED_BOOL,
    PACKED_TEXT,
    PACKED_BYTES,
    PACKED_ARRAY,
    PACKED_MAP
};

/* The head of a value, with the bytes of a text or bin; the members of an array or map follow. */
struct packed {
    enum packed_kind kind;
    uint64_t number;     /* NUMBER; BOOL; how many members an ARRAY or pairs a MAP has */
    double real;         /* NUMBER, NEGATIVE, REAL */
    const uint8_t *data; /* TEXT, BYTES */
    size_t size;
};

static uint64_t big_endian(struct reader *r, size_t n)
{
    const uint8_t *p = reader_take(r, n);
    uint64_t v = 0;
    for (size_t i = 0; p && i < n; i++)
        v = v << 8 | p[i];
    return v;
}

static void packed_span(struct reader *r, struct packed *t, enum packed_kind kind, uint64_t size)
{
    t->kind = kind;
    if (size > r->size - r->at)
        r->failed = true;
    else
        t->size = (size_t)size;
    t->data = reader_take(r, t->size);
}

/* A container that claims more members than bytes are left is a lie that would cost memory. */
static void packed_container(struct reader *r, struct packed *t, enum packed_kind kind,
                             uint64_t members)
{
    t->kind = kind;
    t->number = members;
    if (members * (kind == PACKED_MAP ? 2 : 1) > r->size - r->at)
        r->failed = true;
}

static void packed_signed(struct packed *t, int64_t v)
{
    t->kind = v < 0 ? PACKED_NEGATIVE : PACKED_NUMBER;
    t->number = v < 0 ? 0 : (uint64_t)v;
    t->real = (double)v;
}

static void packed_unsigned(struct packed *t, uint64_t v)
{
    t->kind = PACKED_NUMBER;
    t->number = v;
    t->real = (double)v;
}

static void packed_real(struct reader *r, struct packed *t, size_t bytes)
{
    uint64_t bits = big_endian(r, bytes);
    uint32_t low = (uint32_t)bits;
    float narrow;
    memcpy(&narrow, &low, sizeof narrow);
    memcpy(&t->real, &bits, sizeof t->real);
    if (bytes == sizeof narrow)
        t->real = (double)narrow;
    t->kind = PACKED_REAL;
}

/* Sizes below are powers of two by the tag's distance from the first of its family. */
static void packed_long(struct reader *r, uint8_t tag, struct packed *t)
{
    if (tag >= 0xc4 && tag <= 0xc6)
        packed_span(r, t, PACKED_BYTES, big_endian(r, (size_t)1 << (tag - 0xc4)));
    else if (tag == 0xca || tag == 0xcb)
        packed_real(r, t, tag == 0xca ? 4 : 8);
    else if (tag >= 0xcc && tag <= 0xcf)
        packed_unsigned(t, big_endian(r, (size_t)1 << (tag - 0xcc)));
    else if (tag >= 0xd0 && tag <= 0xd3) {
        int unused_bits = 64 - (8 << (tag - 0xd0));
        packed_signed(t, (int64_t)(big_endian(r, (size_t)1 << (tag - 0xd0)) << unused_bits) >>
                             unused_bits);
    } else if (tag >= 0xd9 && tag <= 0xdb)
        packed_span(r, t, PACKED_TEXT, big_endian(r, (size_t)1 << (tag - 0xd9)));
    else if (tag == 0xdc || tag == 0xdd)
        packed_container(r, t, PACKED_ARRAY, big_endian(r, tag == 0xdc ? 2 : 4));
    else if (tag == 0xde || tag == 0xdf)
        packed_container(r, t, PACKED_MAP, big_endian(r, tag == 0xde ? 2 : 4));
    else
        r->failed = true; /* extension types: we never send one */
}

static struct packed packed_read(struct reader *r)
{
    struct packed t = {0};
    uint8_t tag = reader_u8(r);
    if (r->failed)
        return t;
    if (tag <= 0x7f)
        packed_unsigned(&t, tag);
    else if (tag >= 0xe0)
        packed_signed(&t, (int8_t)tag);
    else if (tag <= 0x8f)
        packed_container(r, &t, PACKED_MAP, tag & 15);
    else if (tag <= 0x9f)
        packed_container(r, &t, PACKED_ARRAY, tag & 15);
    else if (tag <= 0xbf)
        packed_span(r, &t, PACKED_TEXT, tag & 31);
    else if (tag == 0xc2 || tag == 0xc3)
        t = (struct packed){.kind = PACKED_BOOL, .number = tag == 0xc3};
    else if (tag != 0xc0)
        packed_long(r, tag, &t);
    return t;
}

/* Passes over the members of a value whose head was read at `depth`. */
static void members_skip(struct reader *r, const struct packed *t, int depth)
{
    uint64_t members = t->kind == PACKED_ARRAY ? t->number
                       : t->kind == PACKED_MAP ? 2 * t->number
                                               : 0;
    if (members && depth >= MAX_DEPTH)
        r->failed = true;
    for (uint64_t i = 0; i < members && !r->failed; i++) {
        struct packed member = packed_read(r);
        members_skip(r, &member, depth + 1);
    }
}

/* ---- a struct by its table ---- */

static int wrong_type(const struct pack_field *f, const char *expected, struct err *e)
{
    return err_set(e, HP_EPARSE, "message field \"%s\" is not %s", f->key, expected);
}

static int read_f64(const struct pack_field *f, const struct packed *t, double *out, struct err *e)
{
    if (t->kind != PACKED_NUMBER && t->kind != PACKED_NEGATIVE && t->kind != PACKED_REAL)
        return wrong_type(f, "a number", e);
    *out = t->real;
    return isfinite(*out) ? 0 : wrong_type(f, "a finite number", e);
}

static int read_text(const struct pack_field *f, const struct packed *t, struct arena *arena,
                     const char **out, struct err *e)
{
    const char *text = (const char *)t->data;
    if (t->kind != PACKED_TEXT || (t->size && memchr(text, 0, t->size)))
        return wrong_type(f, "text", e);
    if (t->size && utf8_valid_prefix(text, t->size) != t->size)
        return wrong_type(f, "text in UTF-8", e);
    *out = arena_strndup(arena, text, t->size);
    return *out ? 0 : err_no_memory(e, "reading a message");
}

static int read_u32s(const struct pack_field *f, const struct packed *t, struct arena *arena,
                     struct pack_u32s *out, struct err *e)
{
    if (t->kind != PACKED_BYTES || t->size % sizeof(uint32_t))
        return wrong_type(f, "a list of 32-bit numbers", e);
    out->count = t->size / sizeof(uint32_t);
    out->items = arena_memdup(arena, t->data, t->size); /* aligned, unlike the wire */
    return out->items ? 0 : err_no_memory(e, "reading a message");
}

static int read_object(const struct pack_field *fields, struct reader *r, int depth,
                       struct arena *arena, void *object, struct err *e);

static int read_list(const struct pack_field *f, const struct packed *t, struct reader *r,
                     int depth, struct arena *arena, struct pack_list *out, struct err *e)
{
    size_t most = f->max_rows ? f->max_rows : PACK_MAX_ROWS, n = (size_t)t->number;
    if (t->kind != PACKED_ARRAY)
        return wrong_type(f, "a list", e);
    if (n > most)
        return err_set(e, HP_EPARSE, "message field \"%s\" has %zu rows; %zu are the limit", f->key,
                       n, most);
    char *rows = arena_alloc(arena, n + 1, f->row_size);
    if (!rows)
        return err_no_memory(e, "reading a message");
    for (size_t i = 0; i < n; i++) {
        int rc = read_object(f->rows, r, depth + 1, arena, rows + i * f->row_size, e);
        if (rc < 0)
            return rc;
    }
    *out = (struct pack_list){rows, n};
    return 0;
}

static int read_member(const struct pack_field *f, struct reader *r, int depth, struct arena *arena,
                       void *member, struct err *e)
{
    struct packed t = packed_read(r);
    if (r->failed)
        return 0; /* the caller says so */
    switch (f->kind) {
    case PACK_U64:
        *(uint64_t *)member = t.number;
        return t.kind == PACKED_NUMBER ? 0 : wrong_type(f, "a whole number of 0 or more", e);
    case PACK_F64: return read_f64(f, &t, member, e);
    case PACK_BOOL:
        *(bool *)member = t.number != 0;
        return t.kind == PACKED_BOOL ? 0 : wrong_type(f, "true or false", e);
    case PACK_TEXT: return read_text(f, &t, arena, member, e);
    case PACK_BYTES:
        *(struct pack_span *)member = (struct pack_span){t.data, t.size};
        return t.kind == PACKED_BYTES ? 0 : wrong_type(f, "bytes", e);
    case PACK_U32S: return read_u32s(f, &t, arena, member, e);
    case PACK_LIST: return read_list(f, &t, r, depth, arena, member, e);
    }
    return HP_EBUG;
}

static const struct pack_field *field_find(const struct pack_field *fields,
                                           const struct packed *key)
{
    if (key->kind == PACKED_TEXT)
        for (const struct pack_field *f = fields; f->key; f++)
            if (strlen(f->key) == key->size && memcmp(f->key, key->data, key->size) == 0)
                return f;
    return NULL;
}

static int fields_finish(const struct pack_field *fields, uint64_t seen, void *object,
                         struct err *e)
{
    for (const struct pack_field *f = fields; f->key; f++) {
        if (seen >> (f - fields) & 1)
            continue;
        if (f->required)
            return err_set(e, HP_EPARSE, "message field \"%s\" is missing", f->key);
        if (f->kind == PACK_TEXT)
            *(const char **)((char *)object + f->offset) = "";
    }
    return 0;
}

/* A failed reader ends the walk; pack_decode says so. */
static int read_object(const struct pack_field *fields, struct reader *r, int depth,
                       struct arena *arena, void *object, struct err *e)
{
    struct packed map = packed_read(r);
    uint64_t seen = 0; /* tables have fewer than 64 rows */
    if (!r->failed && map.kind != PACKED_MAP)
        return err_set(e, HP_EPARSE, "a message is not a map");
    for (uint64_t i = 0; i < map.number && !r->failed; i++) {
        struct packed key = packed_read(r);
        const struct pack_field *f = field_find(fields, &key);
        if (f && seen >> (f - fields) & 1)
            return err_set(e, HP_EPARSE, "message field \"%s\" comes twice", f->key);
        if (f) {
            seen |= (uint64_t)1 << (f - fields);
            int rc = read_member(f, r, depth + 1, arena, (char *)object + f->offset, e);
            if (rc < 0)
                return rc;
        } else {
            members_skip(r, &key, depth + 1);
            struct packed value = packed_read(r);
            members_skip(r, &value, depth + 1);
        }
    }
    return fields_finish(fields, seen, object, e);
}

int pack_decode(const struct pack_field *fields, const uint8_t *bytes, size_t size,
                struct arena *arena, void *object, struct err *e)
{
    struct reader r = reader_of(bytes, size);
    struct err why = {0};
    int rc = read_object(fields, &r, 0, arena, object, &why);
    if (r.failed || (rc == 0 && r.at != size))
        return err_set(e, HP_EPARSE, "%zu bytes are not a whole msgpack value within the bounds",
                       size);
    if (rc < 0 && e)
        *e = why;
    return rc;
}
