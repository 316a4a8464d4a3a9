/* GGUF v2 and v3: header to keys and weights. Nothing but the header is read; weights are mapped.
 * Every offset, count, length, string and dimension is checked with overflow builtins before use;
 * memory for what the header says is bounded by the header's own size. */
#ifndef HP_MODEL_FILES_GGUF_H
#define HP_MODEL_FILES_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"
#include "model/weights.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf_string {
    const char *data; /* in the map; not NUL-terminated */
    size_t size;
};

struct gguf_key {
    struct gguf_string name;
    enum gguf_type type;         /* GGUF_ARRAY for an array */
    enum gguf_type element_type; /* of an array */
    uint64_t count;              /* of an array; 1 otherwise */
    const uint8_t *data;         /* the value's bytes in the map; numbers may be unaligned */
    struct gguf_string *strings; /* [count] for strings and arrays of strings */
};

struct gguf {
    struct arena arena;
    uint32_t version;
    struct gguf_key *keys;
    size_t n_keys;
    struct weight *weights; /* .file is 0 */
    size_t n_weights;
    uint64_t data_offset; /* first byte after header and padding */
};

/* What is read: keys alone (n_weights is 0, data_offset the end of the keys); weights in formats
 * that nothing here computes with, too, where, if not even the size of such a format's blocks is
 * known, a weight reaches to the next one; or weights that can be computed with. */
enum gguf_need { GGUF_KEYS, GGUF_SIZES, GGUF_WEIGHTS };

/* Parses `size` bytes of a file (all of it, mapped). `file` is for messages. Only the header is
 * touched. The map must outlive the result. Weights come in the order of their bytes; that names
 * are unique is for weight_table.h. HP_EPARSE, HP_EUNSUPPORTED (version, number format), HP_ENOMEM;
 * *out is empty then. */
int gguf_parse(const char *file, const uint8_t *map, uint64_t size, enum gguf_need need,
               struct gguf *out, struct err *e);
void gguf_free(struct gguf *g);

/* NULL when there is no such key. */
const struct gguf_key *gguf_find(const struct gguf *g, const char *name);
/* Typed reading with a default where the key is missing; any integer type serves an integer, and 0
 * or 1 of any a boolean. HP_EPARSE names file and key on a wrong type. */
int gguf_get_u64(const struct gguf *g, const char *file, const char *name, const uint64_t *fallback,
                 uint64_t *out, struct err *e);
/* The same, or an array with one value for each block. HP_EUNSUPPORTED where they differ. */
int gguf_get_same_u64(const struct gguf *g, const char *file, const char *name,
                      const uint64_t *fallback, uint64_t *out, struct err *e);
int gguf_get_f64(const struct gguf *g, const char *file, const char *name, const double *fallback,
                 double *out, struct err *e);
int gguf_get_bool(const struct gguf *g, const char *file, const char *name, bool fallback,
                  bool *out, struct err *e);
/* *out stays {NULL, 0} when the key is missing. */
int gguf_get_string(const struct gguf *g, const char *file, const char *name,
                    struct gguf_string *out, struct err *e);
/* Element i of an array of numbers, as a double or integer. */
double gguf_element_f64(const struct gguf_key *k, uint64_t i);
int64_t gguf_element_i64(const struct gguf_key *k, uint64_t i);

#endif
