/* JSON with paths in its errors, over jansson: duplicates are refused, depth is capped, and every
 * complaint reads `cluster.json: $.nodes[0].devices[1].memory_bytes: -4 is negative`.
 *
 * A `struct json_at` is a place in a document. Places are made on the stack, each pointing at its
 * parent, and must not outlive it; the path is written only when something is wrong. Unknown keys
 * are never an error. */
#ifndef HP_COMMON_JSON_H
#define HP_COMMON_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct json_at {
    const char *file;             /* for messages */
    json_t *value;                /* borrowed from the document */
    const struct json_at *parent; /* NULL at the root */
    const char *key;              /* of this place in its parent, or NULL when `index` holds */
    size_t index;
};

enum { JSON_FILE_MAX_BYTES = 256 << 20 };

/* Reads a file (`-` is standard input); *root is the caller's to json_decref. `file` must outlive
 * `at`. */
int json_load_at(const char *file, json_t **root, struct json_at *at, struct err *e);
/* The same for files that other programs write: whole numbers beyond 64 bits (transformers has
 * 10^30 for "no limit") make all of the file's reals, exact below 2^53, and a NUL in a string is
 * refused where that string is read (json_as_string), not in strings that nobody reads. */
int json_load_wide_at(const char *file, json_t **root, struct json_at *at, struct err *e);
/* The same for bytes that are there already; `name` stands for the file in messages. */
int json_parse_at(const char *name, const void *text, size_t size, json_t **root,
                  struct json_at *at, struct err *e);
int json_parse_wide_at(const char *name, const void *text, size_t size, json_t **root,
                       struct json_at *at, struct err *e);

/* A member that must be there; HP_EPARSE naming the path when not. `at` must be an object. */
int json_get(const struct json_at *at, const char *key, struct json_at *out, struct err *e);
/* A member that may be there: false when missing or null. */
bool json_find(const struct json_at *at, const char *key, struct json_at *out);
/* Item i of an array that is known to have it. */
struct json_at json_item(const struct json_at *at, size_t i);

/* What a place holds, checked. Numbers are finite. */
int json_as_array(const struct json_at *at, size_t *count, struct err *e);
int json_as_object(const struct json_at *at, struct err *e);
int json_as_string(const struct json_at *at, const char **out, struct err *e);
int json_as_number(const struct json_at *at, double *out, struct err *e);
/* A number of at least `min`; 2.1e9 is an integer too. */
int json_as_number_min(const struct json_at *at, double min, double *out, struct err *e);
int json_as_u64(const struct json_at *at, uint64_t *out, struct err *e);

/* Bytes as a text of hexadecimal digits, which documents have where they carry bytes. NULL: no
 * memory. */
json_t *json_hex(const uint8_t *bytes, size_t size);

/* Member and value in one: required, or with a default where the key is missing. */
int json_get_string(const struct json_at *at, const char *key, const char **out, struct err *e);
int json_get_number_min(const struct json_at *at, const char *key, double min, double *out,
                        struct err *e);
int json_get_u64(const struct json_at *at, const char *key, uint64_t *out, struct err *e);
int json_opt_number_min(const struct json_at *at, const char *key, double min, double fallback,
                        double *out, struct err *e);
int json_opt_u64(const struct json_at *at, const char *key, uint64_t fallback, uint64_t *out,
                 struct err *e);
int json_opt_bool(const struct json_at *at, const char *key, bool fallback, bool *out,
                  struct err *e);
int json_opt_string(const struct json_at *at, const char *key, const char *fallback,
                    const char **out, struct err *e);

/* Checks the `format` member ("hp-cluster/1"). */
int json_expect_format(const struct json_at *at, const char *format, struct err *e);

/* An error at this place: HP_EPARSE, "FILE: $.path: MESSAGE". */
int json_fail(const struct json_at *at, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* HP_ENOMEM: what this place holds could not be kept. */
int json_no_memory(const struct json_at *at, struct err *e);
/* "$.nodes[0].name" */
void json_path(const struct json_at *at, char *out, size_t size);

/* A JSON string of any text (NULL: ""): what is not UTF-8 in it becomes "?". NULL only when memory
 * ran out. */
json_t *json_text(const char *text);
json_t *json_textn(const char *text, size_t size);

/* Gives `value` to an object or an array, and returns it for what comes into it; NULL when it could
 * not be taken (no memory, or one of them is NULL): jansson has freed it then. */
json_t *json_member_add(json_t *object, const char *key, json_t *value);
json_t *json_item_add(json_t *array, json_t *value);

/* Writes to a file, replaced in one step, or to standard output for "-". Indented, keys in the
 * order they were set. */
int json_save(const json_t *root, const char *file, struct err *e);
/* The same for secrets: a file that its owner alone may read. */
int json_save_private(const json_t *root, const char *file, struct err *e);

/* Whether jansson was refused memory on this thread since the reset: then what it made meanwhile
 * may lack members without a word, and is thrown away. */
void json_memory_reset(void);
bool json_memory_was_short(void);

#endif
