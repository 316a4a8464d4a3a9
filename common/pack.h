/* msgpack with bounds. The writer makes maps; the reader checks depth, lengths, types and text
 * before it believes anything. */
#ifndef HP_COMMON_PACK_H
#define HP_COMMON_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/bytes.h"
#include "common/status.h"

struct pack_span {
    const uint8_t *data;
    size_t size;
};
struct pack_u32s {
    const uint32_t *items;
    size_t count;
};
struct pack_list {
    void *items; /* structs that the field's `rows` table describes */
    size_t count;
};

/* A struct is described by a table of its fields; encoding and decoding follow the table. */
enum pack_kind {
    PACK_U64,   /* uint64_t */
    PACK_F64,   /* double */
    PACK_BOOL,  /* bool */
    PACK_TEXT,  /* const char *: NUL-terminated UTF-8; "" when missing */
    PACK_BYTES, /* struct pack_span */
    PACK_U32S,  /* struct pack_u32s; on the wire a bin of little-endian words */
    PACK_LIST,  /* struct pack_list */
};
struct pack_field {
    const char *key;
    enum pack_kind kind;
    size_t offset;
    const struct pack_field *rows; /* PACK_LIST: the table of one item, ended by a NULL key */
    size_t row_size;
    bool required;
    size_t max_rows; /* PACK_LIST; 0: PACK_MAX_ROWS */
};
enum { PACK_MAX_ROWS = 4 << 20 };

/* The row of member `m` of struct `s`, which is not required: key and member have one name. */
#define PACK_FIELD(s, kind, m)                                                                     \
    {                                                                                              \
#m, kind, offsetof(struct s, m), NULL, 0, false, 0                                         \
    }

/* Appends a msgpack map of the struct's fields (those that are zero or empty are left out unless
 * required). What is not UTF-8 in a text becomes "?". */
void pack_encode(const struct pack_field *fields, const void *object, struct buffer *out);
/* Fills the struct from a map, reading the bytes once and in place: no tree of values is built, so
 * that what is allocated (in `arena`, whose limit holds) are the rows and texts of the table.
 * Unknown keys are skipped, missing ones leave zero ("" for text) or fail when required. What the
 * struct points to is in `arena` or in `bytes`. HP_EPARSE names the key. Refused: nesting beyond
 * 16, more rows than the table allows or than there are bytes, a key that comes twice, text that is
 * not UTF-8. */
int pack_decode(const struct pack_field *fields, const uint8_t *bytes, size_t size,
                struct arena *arena, void *object, struct err *e);

#endif
