#include "common/pack.h"

#include <assert.h>
#include <math.h>
#include <msgpack.h>
#include <string.h>

enum { MAX_DEPTH = 16, MAX_ROWS = 4 << 20 };

/* ---- writing ------------------------------------------------------------------------------------------------------ */

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
    msgpack_pack_str(p, n);
    msgpack_pack_str_body(p, s ? s : "", n);
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

/* ---- checking before the library allocates ---------------------------------------------------------------------------- */

static uint64_t big_endian(struct reader *r, size_t n)
{
    const uint8_t *p = reader_take(r, n);
    uint64_t v = 0;
    for (size_t i = 0; p && i < n; i++)
        v = v << 8 | p[i];
    return v;
}

static void skip(struct reader *r, uint64_t n)
{
    if (n > r->size - r->at)
        r->failed = true;
    else
        reader_take(r, (size_t)n);
}

/* Walks one value. A container that claims more members than bytes are left is a lie that would cost memory. */
static bool value_is_sound(struct reader *r, int depth)
{
    uint8_t tag = reader_u8(r);
    uint64_t members = 0;
    if (r->failed || depth > MAX_DEPTH)
        return false;
    if (tag <= 0x7f || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3)
        return true;
    if (tag <= 0x8f)
        members = 2 * (uint64_t)(tag & 15);
    else if (tag <= 0x9f)
        members = tag & 15;
    else if (tag <= 0xbf)
        skip(r, tag & 31);
    else if (tag >= 0xc4 && tag <= 0xc6)
        skip(r, big_endian(r, (size_t)1 << (tag - 0xc4)));
    else if (tag == 0xca || tag == 0xce || tag == 0xd2)
        skip(r, 4);
    else if (tag == 0xcb || tag == 0xcf || tag == 0xd3)
        skip(r, 8);
    else if (tag == 0xcc || tag == 0xd0)
        skip(r, 1);
    else if (tag == 0xcd || tag == 0xd1)
        skip(r, 2);
    else if (tag >= 0xd9 && tag <= 0xdb)
        skip(r, big_endian(r, (size_t)1 << (tag - 0xd9)));
    else if (tag == 0xdc || tag == 0xdd)
        members = big_endian(r, tag == 0xdc ? 2 : 4);
    else if (tag == 0xde || tag == 0xdf)
        members = 2 * big_endian(r, tag == 0xde ? 2 : 4);
    else
        return false; /* extension types: we never send one */
    if (r->failed || members > r->size - r->at)
        return false;
    for (uint64_t i = 0; i < members; i++)
        if (!value_is_sound(r, depth + 1))
            return false;
    return !r->failed;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static int wrong_type(const struct pack_field *f, const char *expected, struct err *e)
{
    return err_set(e, HP_EPARSE, "message field \"%s\" is not %s", f->key, expected);
}

static int read_object(const struct pack_field *fields, const msgpack_object *o, struct arena *arena, void *object, struct err *e);

static int read_u64(const struct pack_field *f, const msgpack_object *o, uint64_t *out, struct err *e)
{
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return wrong_type(f, "a whole number of 0 or more", e);
    *out = o->via.u64;
    return 0;
}

static int read_f64(const struct pack_field *f, const msgpack_object *o, double *out, struct err *e)
{
    switch (o->type) {
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64: *out = o->via.f64; break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER: *out = (double)o->via.u64; break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER: *out = (double)o->via.i64; break;
    default: return wrong_type(f, "a number", e);
    }
    return isfinite(*out) ? 0 : wrong_type(f, "a finite number", e);
}

static int read_text(const struct pack_field *f, const msgpack_object *o, struct arena *arena, const char **out, struct err *e)
{
    if (o->type != MSGPACK_OBJECT_STR || (o->via.str.size && memchr(o->via.str.ptr, 0, o->via.str.size)))
        return wrong_type(f, "text", e);
    *out = arena_strndup(arena, o->via.str.ptr, o->via.str.size);
    return *out ? 0 : err_set(e, HP_ENOMEM, "out of memory while reading a message");
}

static int read_u32s(const struct pack_field *f, const msgpack_object *o, struct arena *arena, struct pack_u32s *out, struct err *e)
{
    if (o->type != MSGPACK_OBJECT_BIN || o->via.bin.size % sizeof(uint32_t))
        return wrong_type(f, "a list of 32-bit numbers", e);
    out->count = o->via.bin.size / sizeof(uint32_t);
    out->items = arena_memdup(arena, o->via.bin.ptr, o->via.bin.size); /* aligned, unlike the wire */
    return out->items ? 0 : err_set(e, HP_ENOMEM, "out of memory while reading a message");
}

static int read_list(const struct pack_field *f, const msgpack_object *o, struct arena *arena, struct pack_list *out, struct err *e)
{
    if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size > MAX_ROWS)
        return wrong_type(f, "a list (of at most 4 million)", e);
    size_t n = o->via.array.size;
    char *rows = arena_alloc(arena, n + 1, f->row_size);
    if (!rows)
        return err_set(e, HP_ENOMEM, "out of memory while reading a message");
    for (size_t i = 0; i < n; i++) {
        int rc = read_object(f->rows, &o->via.array.ptr[i], arena, rows + i * f->row_size, e);
        if (rc < 0)
            return rc;
    }
    *out = (struct pack_list){rows, n};
    return 0;
}

static int read_member(const struct pack_field *f, const msgpack_object *o, struct arena *arena, void *member, struct err *e)
{
    switch (f->kind) {
    case PACK_U64: return read_u64(f, o, member, e);
    case PACK_F64: return read_f64(f, o, member, e);
    case PACK_BOOL:
        if (o->type != MSGPACK_OBJECT_BOOLEAN)
            return wrong_type(f, "true or false", e);
        *(bool *)member = o->via.boolean;
        return 0;
    case PACK_TEXT: return read_text(f, o, arena, member, e);
    case PACK_BYTES:
        if (o->type != MSGPACK_OBJECT_BIN)
            return wrong_type(f, "bytes", e);
        *(struct pack_span *)member = (struct pack_span){(const uint8_t *)o->via.bin.ptr, o->via.bin.size};
        return 0;
    case PACK_U32S: return read_u32s(f, o, arena, member, e);
    case PACK_LIST: return read_list(f, o, arena, member, e);
    }
    return HP_EBUG;
}

static const msgpack_object *find_member(const msgpack_object *map, const char *key)
{
    size_t n = strlen(key);
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        const msgpack_object *k = &map->via.map.ptr[i].key;
        if (k->type == MSGPACK_OBJECT_STR && k->via.str.size == n && memcmp(k->via.str.ptr, key, n) == 0)
            return &map->via.map.ptr[i].val;
    }
    return NULL;
}

static int read_object(const struct pack_field *fields, const msgpack_object *o, struct arena *arena, void *object, struct err *e)
{
    if (o->type != MSGPACK_OBJECT_MAP)
        return err_set(e, HP_EPARSE, "a message is not a map");
    for (const struct pack_field *f = fields; f->key; f++) {
        void *member = (char *)object + f->offset;
        const msgpack_object *value = find_member(o, f->key);
        if (!value && f->required)
            return err_set(e, HP_EPARSE, "message field \"%s\" is missing", f->key);
        if (f->kind == PACK_TEXT)
            *(const char **)member = "";
        int rc = value ? read_member(f, value, arena, member, e) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

int pack_decode(const struct pack_field *fields, const uint8_t *bytes, size_t size, struct arena *arena, void *object, struct err *e)
{
    struct reader r = reader_of(bytes, size);
    if (!value_is_sound(&r, 0) || r.at != size)
        return err_set(e, HP_EPARSE, "%zu bytes are not a whole msgpack value within the bounds", size);
    msgpack_zone *zone = msgpack_zone_new(MSGPACK_ZONE_CHUNK_SIZE);
    msgpack_object o;
    if (!zone)
        return err_set(e, HP_ENOMEM, "out of memory while reading a message");
    int rc = msgpack_unpack((const char *)bytes, size, NULL, zone, &o) == MSGPACK_UNPACK_SUCCESS
                 ? read_object(fields, &o, arena, object, e)
                 : err_set(e, HP_EPARSE, "%zu bytes are not msgpack", size);
    msgpack_zone_free(zone);
    return rc;
}
