#include "hpctl/yaml_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "common/bytes.h"
#include "common/fs.h"

enum { FILE_MOST_BYTES = 64 << 20, DEPTH_MOST = 64 };

struct yaml_reading {
    const char *file;
    yaml_parser_t parser;
    struct err *e;
};

static int yaml_fail(const struct yaml_reading *r, yaml_mark_t at, const char *what)
{
    return err_set(r->e, HP_EPARSE, "%s: line %zu, column %zu: %s", r->file, at.line + 1,
                   at.column + 1, what);
}

/* ---- scalars ---- */

/* A number as JSON writes it; NULL: it is none. */
static json_t *number_of(const char *text)
{
    char *end;
    size_t digits = strspn(text, "+-0123456789.eE");
    if (!digits || text[digits] || !strpbrk(text, "0123456789"))
        return NULL;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (!*end && errno == 0)
        return json_integer(whole);
    double number = strtod(text, &end);
    return *end || !isfinite(number) ? NULL : json_real(number);
}

static json_t *scalar_of(const yaml_event_t *ev)
{
    const char *text = (const char *)ev->data.scalar.value;
    if (ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return json_stringn(text, ev->data.scalar.length);
    if (!*text || strcmp(text, "null") == 0 || strcmp(text, "~") == 0)
        return json_null();
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return json_boolean(*text == 't');
    json_t *number = number_of(text);
    return number ? number : json_stringn(text, ev->data.scalar.length);
}

/* What stands before a value and would change what it is. */
static const char *decoration_of(const yaml_event_t *ev)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (ev->type == YAML_SCALAR_EVENT) {
        anchor = ev->data.scalar.anchor;
        tag = ev->data.scalar.tag;
    } else if (ev->type == YAML_SEQUENCE_START_EVENT) {
        anchor = ev->data.sequence_start.anchor;
        tag = ev->data.sequence_start.tag;
    } else if (ev->type == YAML_MAPPING_START_EVENT) {
        anchor = ev->data.mapping_start.anchor;
        tag = ev->data.mapping_start.tag;
    }
    return tag ? "tags are not taken: numbers, texts in quotes, lists and mappings say what they "
                 "are"
           : anchor || ev->type == YAML_ALIAS_EVENT ? "anchors are not taken; write it out"
                                                    : NULL;
}

/* ---- collections ---- */

static int value_read(struct yaml_reading *r, const yaml_event_t *ev, int depth, json_t **out);

static int event_next(struct yaml_reading *r, yaml_event_t *ev)
{
    if (yaml_parser_parse(&r->parser, ev))
        return 0;
    return yaml_fail(r, r->parser.problem_mark,
                     r->parser.problem ? r->parser.problem : "this cannot be read");
}

static int item_read(struct yaml_reading *r, int depth, json_t *list, bool *ended)
{
    yaml_event_t ev;
    json_t *item = NULL;
    int rc = event_next(r, &ev);
    if (rc < 0)
        return rc;
    *ended = ev.type == YAML_SEQUENCE_END_EVENT;
    rc = *ended ? 0 : value_read(r, &ev, depth + 1, &item);
    if (rc == 0 && !*ended && json_array_append_new(list, item) < 0)
        rc = err_no_memory(r->e, "%s", r->file);
    yaml_event_delete(&ev);
    return rc;
}

static int member_read(struct yaml_reading *r, int depth, json_t *object, bool *ended)
{
    yaml_event_t key, ev;
    json_t *value = NULL;
    int rc = event_next(r, &key);
    if (rc < 0)
        return rc;
    *ended = key.type == YAML_MAPPING_END_EVENT;
    const char *name = key.type == YAML_SCALAR_EVENT ? (const char *)key.data.scalar.value : NULL;
    if (!*ended && (!name || decoration_of(&key) || strlen(name) != key.data.scalar.length))
        rc = yaml_fail(r, key.start_mark, "a key is text");
    else if (!*ended && json_object_get(object, name))
        rc = yaml_fail(r, key.start_mark, "this key stands here twice");
    if (rc == 0 && !*ended && (rc = event_next(r, &ev)) == 0) {
        rc = value_read(r, &ev, depth + 1, &value);
        if (rc == 0 && json_object_set_new(object, name, value) < 0)
            rc = yaml_fail(r, ev.start_mark, "a key that is not UTF-8, or no memory");
        yaml_event_delete(&ev);
    }
    yaml_event_delete(&key);
    return rc;
}

static int value_read(struct yaml_reading *r, const yaml_event_t *ev, int depth, json_t **out)
{
    bool ended = false;
    int rc = 0;
    const char *decoration = decoration_of(ev);
    if (depth > DEPTH_MOST)
        return yaml_fail(r, ev->start_mark, "this is nested too deep");
    if (decoration)
        return yaml_fail(r, ev->start_mark, decoration);
    switch (ev->type) {
    case YAML_SCALAR_EVENT: *out = scalar_of(ev); break;
    case YAML_SEQUENCE_START_EVENT:
        *out = json_array();
        while (*out && rc == 0 && !ended)
            rc = item_read(r, depth, *out, &ended);
        break;
    case YAML_MAPPING_START_EVENT:
        *out = json_object();
        while (*out && rc == 0 && !ended)
            rc = member_read(r, depth, *out, &ended);
        break;
    default: return yaml_fail(r, ev->start_mark, "a value is missing here");
    }
    if (rc == 0 && !*out)
        rc = err_no_memory(r->e, "%s", r->file);
    if (rc < 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

/* Of an event that has to come now. */
static int event_expect(struct yaml_reading *r, yaml_event_type_t type, const char *otherwise)
{
    yaml_event_t ev;
    int rc = event_next(r, &ev);
    if (rc < 0)
        return rc;
    if (ev.type != type)
        rc = yaml_fail(r, ev.start_mark, otherwise);
    yaml_event_delete(&ev);
    return rc;
}

/* One, and nothing behind it. */
static int document_read(struct yaml_reading *r, json_t **out)
{
    yaml_event_t ev;
    int rc = event_expect(r, YAML_STREAM_START_EVENT, "this cannot be read");
    rc = rc < 0 ? rc : event_expect(r, YAML_DOCUMENT_START_EVENT, "the file is empty");
    if (rc < 0 || (rc = event_next(r, &ev)) < 0)
        return rc;
    rc = value_read(r, &ev, 0, out);
    yaml_event_delete(&ev);
    rc = rc < 0 ? rc : event_expect(r, YAML_DOCUMENT_END_EVENT, "this cannot be read");
    return rc < 0 ? rc
                  : event_expect(r, YAML_STREAM_END_EVENT,
                                 "a second document begins here; one is taken");
}

int yaml_json_load(const char *file, json_t **out, struct err *e)
{
    struct yaml_reading r = {.file = file, .e = e};
    struct buffer text = {0};
    *out = NULL;
    int rc = fs_file_read(file, FILE_MOST_BYTES, &text, e);
    if (rc < 0)
        return rc;
    if (yaml_parser_initialize(&r.parser)) {
        yaml_parser_set_input_string(&r.parser, text.data, text.size);
        rc = document_read(&r, out);
        if (rc < 0) {
            json_decref(*out);
            *out = NULL;
        }
        yaml_parser_delete(&r.parser);
    } else {
        rc = err_no_memory(e, "%s", file);
    }
    buffer_free(&text);
    return rc;
}
