#include "common/json.h"

#include <errno.h>
#include <math.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/fs.h"
#include "common/utf8.h"

/* jansson's own depth cap is 2048 levels (JSON_PARSER_MAX_DEPTH): enough, and it does not recurse
 * past it. */

/* Without memory jansson calls good text malformed, or leaves members out of it: its allocations
 * are watched. */
static _Thread_local bool memory_is_short;

static void *json_memory(size_t n)
{
    void *p = malloc(n);
    memory_is_short = memory_is_short || !p;
    return p;
}

void json_memory_reset(void)
{
    memory_is_short = false;
}
bool json_memory_was_short(void)
{
    return memory_is_short;
}

__attribute__((constructor)) static void json_memory_watch(void)
{
    json_set_alloc_funcs(json_memory, free);
}

/* What lets a file be read that other programs wrote. */
static size_t flags_missing(enum json_error_code code)
{
    return code == json_error_numeric_overflow ? JSON_DECODE_INT_AS_REAL
           : code == json_error_null_character ? JSON_ALLOW_NUL
                                               : 0;
}

static int parse_text(const char *name, const void *text, size_t size, bool wide, json_t **root,
                      struct json_at *at, struct err *e)
{
    json_error_t problem = {0}; /* jansson writes no code where it had no memory to begin */
    bool before = memory_is_short;
    memory_is_short = false;
    size_t flags = JSON_REJECT_DUPLICATES, more = 0;
    json_t *value;
    do {
        flags |= more;
        value = json_loadb(text, size, flags, &problem);
        more = value || !wide ? 0 : flags_missing(json_error_code(&problem)) & ~flags;
    } while (more);
    bool now = memory_is_short;
    memory_is_short = before || now;
    if (now) {
        json_decref(value);
        return err_set(e, HP_ENOMEM, "%s: no memory to read it", name);
    }
    if (!value)
        return err_set(e, HP_EPARSE, "%s:%d:%d: not valid JSON: %s", name, problem.line,
                       problem.column, problem.text);
    *root = value;
    *at = (struct json_at){.file = name, .value = value};
    return 0;
}

int json_parse_at(const char *name, const void *text, size_t size, json_t **root,
                  struct json_at *at, struct err *e)
{
    return parse_text(name, text, size, false, root, at, e);
}

int json_parse_wide_at(const char *name, const void *text, size_t size, json_t **root,
                       struct json_at *at, struct err *e)
{
    return parse_text(name, text, size, true, root, at, e);
}

static int load_file(const char *file, bool wide, json_t **root, struct json_at *at, struct err *e)
{
    struct buffer text = {0};
    const char *name = strcmp(file, "-") == 0 ? "standard input" : file;
    int rc = fs_input_read(file, JSON_FILE_MAX_BYTES, &text, e);
    if (rc == 0)
        rc = parse_text(name, text.data ? (const char *)text.data : "", text.size, wide, root, at,
                        e);
    buffer_free(&text);
    return rc;
}

int json_load_at(const char *file, json_t **root, struct json_at *at, struct err *e)
{
    return load_file(file, false, root, at, e);
}

int json_load_wide_at(const char *file, json_t **root, struct json_at *at, struct err *e)
{
    return load_file(file, true, root, at, e);
}

void json_path(const struct json_at *at, char *out, size_t size)
{
    if (!at->parent) {
        snprintf(out, size, "$");
        return;
    }
    json_path(at->parent, out, size);
    size_t n = strlen(out);
    if (at->key)
        snprintf(out + n, size - n, ".%s", at->key);
    else
        snprintf(out + n, size - n, "[%zu]", at->index);
}

int json_fail(const struct json_at *at, struct err *e, const char *fmt, ...)
{
    char path[256], text[400];
    json_path(at, path, sizeof path);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(e, HP_EPARSE, "%s: %s: %s", at->file, path, text);
}

int json_no_memory(const struct json_at *at, struct err *e)
{
    return err_no_memory(e, "what %s holds", at->file);
}

static const char *type_word(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

int json_get(const struct json_at *at, const char *key, struct json_at *out, struct err *e)
{
    if (!json_is_object(at->value))
        return json_fail(at, e, "is %s, not an object", type_word(at->value));
    json_t *value = json_object_get(at->value, key);
    if (!value)
        return json_fail(at, e, "has no \"%s\"", key);
    *out = (struct json_at){at->file, value, at, key, 0};
    return 0;
}

bool json_find(const struct json_at *at, const char *key, struct json_at *out)
{
    json_t *value = json_object_get(at->value, key);
    if (!value || json_is_null(value))
        return false;
    *out = (struct json_at){at->file, value, at, key, 0};
    return true;
}

struct json_at json_item(const struct json_at *at, size_t i)
{
    return (struct json_at){at->file, json_array_get(at->value, i), at, NULL, i};
}

int json_as_array(const struct json_at *at, size_t *count, struct err *e)
{
    if (!json_is_array(at->value))
        return json_fail(at, e, "is %s, not an array", type_word(at->value));
    *count = json_array_size(at->value);
    return 0;
}

int json_as_object(const struct json_at *at, struct err *e)
{
    return json_is_object(at->value)
               ? 0
               : json_fail(at, e, "is %s, not an object", type_word(at->value));
}

int json_as_string(const struct json_at *at, const char **out, struct err *e)
{
    if (!json_is_string(at->value))
        return json_fail(at, e, "is %s, not a string", type_word(at->value));
    if (strlen(json_string_value(at->value)) != json_string_length(at->value))
        return json_fail(at, e, "has a NUL");
    *out = json_string_value(at->value);
    return 0;
}

int json_as_number(const struct json_at *at, double *out, struct err *e)
{
    if (!json_is_number(at->value))
        return json_fail(at, e, "is %s, not a number", type_word(at->value));
    double v = json_number_value(at->value);
    if (!isfinite(v))
        return json_fail(at, e, "is not a finite number");
    *out = v;
    return 0;
}

static int value_as_bool(const struct json_at *at, bool *out, struct err *e)
{
    if (!json_is_boolean(at->value))
        return json_fail(at, e, "is %s, not true or false", type_word(at->value));
    *out = json_is_true(at->value);
    return 0;
}

int json_as_number_min(const struct json_at *at, double min, double *out, struct err *e)
{
    double v;
    int rc = json_as_number(at, &v, e);
    if (rc < 0)
        return rc;
    if (v < min)
        return min >= 0 && v < 0 ? json_fail(at, e, "%g is negative", v)
                                 : json_fail(at, e, "%g is less than %g", v, min);
    *out = v;
    return 0;
}

int json_as_u64(const struct json_at *at, uint64_t *out, struct err *e)
{
    double v;
    int rc = json_as_number_min(at, 0, &v, e);
    if (rc < 0)
        return rc;
    if (json_is_integer(at->value))
        *out = (uint64_t)json_integer_value(at->value);
    else if (v != floor(v) || v > 0x1p63)
        return json_fail(at, e, "%g is not a whole number", v);
    else
        *out = (uint64_t)v;
    return 0;
}

int json_get_string(const struct json_at *at, const char *key, const char **out, struct err *e)
{
    struct json_at m;
    int rc = json_get(at, key, &m, e);
    return rc == 0 ? json_as_string(&m, out, e) : rc;
}

int json_get_number_min(const struct json_at *at, const char *key, double min, double *out,
                        struct err *e)
{
    struct json_at m;
    int rc = json_get(at, key, &m, e);
    return rc == 0 ? json_as_number_min(&m, min, out, e) : rc;
}

int json_get_u64(const struct json_at *at, const char *key, uint64_t *out, struct err *e)
{
    struct json_at m;
    int rc = json_get(at, key, &m, e);
    return rc == 0 ? json_as_u64(&m, out, e) : rc;
}

int json_opt_number_min(const struct json_at *at, const char *key, double min, double fallback,
                        double *out, struct err *e)
{
    struct json_at m;
    *out = fallback;
    return json_find(at, key, &m) ? json_as_number_min(&m, min, out, e) : 0;
}

int json_opt_u64(const struct json_at *at, const char *key, uint64_t fallback, uint64_t *out,
                 struct err *e)
{
    struct json_at m;
    *out = fallback;
    return json_find(at, key, &m) ? json_as_u64(&m, out, e) : 0;
}

int json_opt_bool(const struct json_at *at, const char *key, bool fallback, bool *out,
                  struct err *e)
{
    struct json_at m;
    *out = fallback;
    return json_find(at, key, &m) ? value_as_bool(&m, out, e) : 0;
}

int json_opt_string(const struct json_at *at, const char *key, const char *fallback,
                    const char **out, struct err *e)
{
    struct json_at m;
    *out = fallback;
    return json_find(at, key, &m) ? json_as_string(&m, out, e) : 0;
}

json_t *json_hex(const uint8_t *bytes, size_t size)
{
    char *text = malloc(2 * size + 1);
    json_t *hex = text ? json_string(sodium_bin2hex(text, 2 * size + 1, bytes, size)) : NULL;
    free(text);
    return hex;
}

int json_expect_format(const struct json_at *at, const char *format, struct err *e)
{
    const char *found;
    int rc = json_get_string(at, "format", &found, e);
    if (rc < 0)
        return rc;
    if (strcmp(found, format) != 0) {
        struct json_at m;
        json_find(at, "format", &m);
        return json_fail(&m, e, "is \"%s\", expected \"%s\"", found, format);
    }
    return 0;
}

json_t *json_textn(const char *text, size_t size)
{
    json_t *value = json_stringn(text, size);
    char *copy = value ? NULL : malloc(size + 1);
    if (!copy)
        return value;
    memcpy(copy, text, size);
    copy[size] = 0;
    utf8_clean_bytes(copy, size);
    value = json_stringn(copy, size);
    free(copy);
    return value;
}

json_t *json_text(const char *text)
{
    return json_textn(text ? text : "", text ? strlen(text) : 0);
}

json_t *json_member_add(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0 ? value : NULL;
}

json_t *json_item_add(json_t *array, json_t *value)
{
    return json_array_append_new(array, value) == 0 ? value : NULL;
}

static int dump_piece(const char *text, size_t size, void *buffer)
{
    buffer_append(buffer, text, size);
    return ((struct buffer *)buffer)->failed ? -1 : 0;
}

static int standard_output_write(const struct buffer *text, struct err *e)
{
    bool bad = fwrite(text->data, 1, text->size, stdout) != text->size || fflush(stdout) != 0;
    return bad ? err_set(e, HP_EIO, "standard output: %s", strerror(errno)) : 0;
}

static int save_as(const json_t *root, const char *file, unsigned mode, struct err *e)
{
    struct buffer text = {0};
    int rc = json_dump_callback(root, dump_piece, &text,
                                JSON_ENCODE_ANY | JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    buffer_append(&text, "\n", 1);
    if (rc != 0 || text.failed)
        rc = err_no_memory(e, "%s", file);
    else if (strcmp(file, "-") == 0)
        rc = standard_output_write(&text, e);
    else
        rc = fs_file_write(file, text.data, text.size, mode, e);
    buffer_free(&text);
    return rc;
}

int json_save(const json_t *root, const char *file, struct err *e)
{
    return save_as(root, file, 0666, e);
}

int json_save_private(const json_t *root, const char *file, struct err *e)
{
    return save_as(root, file, 0600, e);
}
