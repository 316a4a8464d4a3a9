/* Owns schemas that are made of others: what $ref names, and allOf as one schema. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/schema_int.h"

enum {
    MOST_MERGES = 64,
    COPY_WORK = 8 /* a member that is copied, beside one that is looked at */
};

void *schema_fail(struct schema_reader *r, int code, const char *path, const char *fmt, ...)
{
    char text[640];
    va_list args;
    if (r->status < 0)
        return NULL;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r->status = err_set(r->e, code, "%s%.300s: %s", r->field, path, text);
    return NULL;
}

bool schema_work(struct schema_reader *r, size_t n)
{
    r->work += n;
    if (r->work > SCHEMA_MAX_WORK)
        schema_fail(r, HP_ELIMIT, "", "the schema is too involved: it takes too long to read");
    return r->status == 0;
}

static bool arrays_same(struct schema_reader *r, const json_t *a, const json_t *b)
{
    bool same = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; same && i < json_array_size(a); i++)
        same = schema_same(r, json_array_get(a, i), json_array_get(b, i));
    return same;
}

static bool objects_same(struct schema_reader *r, const json_t *a, const json_t *b)
{
    bool same = json_object_size(a) == json_object_size(b);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value)
    {
        const json_t *other = same ? json_object_get(b, key) : NULL;
        same = other && schema_same(r, value, other);
        if (!same)
            break;
    }
    return same;
}

bool schema_same(struct schema_reader *r, const json_t *a, const json_t *b)
{
    if (!schema_work(r, 1) || !a || !b || json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a))
        return arrays_same(r, a, b);
    if (json_is_object(a))
        return objects_same(r, a, b);
    return json_equal((json_t *)a, (json_t *)b);
}

/* Kept until the reader ends. */
static json_t *schema_keep(struct schema_reader *r, json_t *made)
{
    if (!made || json_array_append_new(r->kept, made) < 0)
        return schema_fail(r, HP_ENOMEM, "", "no memory for a schema");
    if (json_array_size(r->kept) > 16 * (size_t)SCHEMA_MAX_PARTS)
        return schema_fail(r, HP_ELIMIT, "", "the schema explodes: merging it has no end in sight");
    return made;
}

json_t *schema_without(struct schema_reader *r, const json_t *schema, const char *const *names)
{
    if (!schema_work(r, COPY_WORK * json_object_size(schema)))
        return NULL;
    json_t *copy = schema_keep(r, json_copy((json_t *)schema));
    for (; copy && *names; names++)
        json_object_del(copy, *names);
    return copy;
}

/* ---- $ref ---- */

/* A step of a JSON pointer, with its escapes and those of an URI undone. */
static void step_decode(char *step)
{
    char *to = step;
    for (const char *s = step; *s; s++) {
        unsigned v;
        if (s[0] == '~' && (s[1] == '0' || s[1] == '1')) {
            *to++ = *++s == '0' ? '~' : '/';
        } else if (s[0] == '%' && sscanf(s + 1, "%2x", &v) == 1 && v) {
            *to++ = (char)v;
            s += 2;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
}

static const json_t *pointer_follow(const json_t *at, const char *pointer)
{
    char step[512];
    while (at && *pointer == '/') {
        size_t n = strcspn(++pointer, "/");
        if (n >= sizeof step)
            return NULL;
        memcpy(step, pointer, n);
        step[n] = '\0';
        step_decode(step);
        pointer += n;
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(step, NULL, 10))
                               : json_object_get(at, step);
    }
    return *pointer ? NULL : at;
}

static const json_t *reference_find(struct schema_reader *r, const char *reference,
                                    const char *path)
{
    if (reference[0] != '#')
        return schema_fail(r, HP_EUNSUPPORTED, path,
                           "$ref \"%.200s\" is outside of the schema; only \"#...\" is supported",
                           reference);
    const json_t *found = pointer_follow(r->root, reference + 1);
    return found ? found
                 : schema_fail(r, HP_EINVAL, path, "$ref \"%.200s\" names nothing", reference);
}

/* ---- two as one ---- */

static json_t *both_of(struct schema_reader *r, const json_t *a, const json_t *b)
{
    return schema_same(r, a, b) ? json_incref((json_t *)a)
                                : json_pack("{s:[O,O]}", "allOf", (json_t *)a, (json_t *)b);
}

static json_t *types_of(const json_t *type)
{
    return json_is_string(type) ? json_pack("[O]", (json_t *)type) : json_incref((json_t *)type);
}

static bool type_covers(const char *have, const char *type)
{
    return strcmp(have, type) == 0 || (strcmp(have, "number") == 0 && strcmp(type, "integer") == 0);
}

static bool type_listed(const json_t *types, const char *type)
{
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *have = json_string_value(json_array_get(types, i));
        if (have && type_covers(have, type))
            return true;
    }
    return false;
}

bool schema_requires(const json_t *schema, const char *name)
{
    json_t *item;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i, item)
    {
        if (json_is_string(item) && strcmp(json_string_value(item), name) == 0)
            return true;
    }
    return false;
}

bool schema_is_type(const json_t *schema, const char *type)
{
    const json_t *is = json_object_get(schema, "type");
    return !is ||
           (json_is_string(is) ? type_covers(json_string_value(is), type) : type_listed(is, type));
}

static json_t *types_both(const json_t *a, const json_t *b)
{
    json_t *x = types_of(a), *y = types_of(b), *made = json_array();
    const char *const all[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    bool number = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool both = type_listed(x, all[i]) && type_listed(y, all[i]);
        if (both && !(number && strcmp(all[i], "integer") == 0))
            json_array_append_new(made, json_string(all[i]));
        number = number || (both && strcmp(all[i], "number") == 0);
    }
    json_decref(x);
    json_decref(y);
    return made;
}

static bool value_among(struct schema_reader *r, const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list) && r->status == 0; i++)
        if (schema_same(r, value, json_array_get(list, i)))
            return true;
    return false;
}

static json_t *lists_both(struct schema_reader *r, const json_t *a, const json_t *b)
{
    json_t *made = json_array(), *item;
    size_t i;
    json_array_foreach((json_t *)a, i, item) if (value_among(r, b, item))
        json_array_append(made, item);
    return made;
}

static json_t *required_both(struct schema_reader *r, const json_t *a, const json_t *b)
{
    json_t *made = json_copy((json_t *)a), *item;
    size_t i;
    json_array_foreach((json_t *)b, i, item) if (!value_among(r, a, item))
        json_array_append(made, item);
    return made;
}

/* What a schema says of a member that it may not name; NULL: nothing. */
static const json_t *member_of(const json_t *schema, const char *name)
{
    const json_t *own = json_object_get(json_object_get(schema, "properties"), name);
    return own ? own : json_object_get(schema, "additionalProperties");
}

static json_t *properties_both(struct schema_reader *r, const json_t *a, const json_t *b)
{
    json_t *made = json_object(), *value;
    const char *name;
    json_object_foreach(json_object_get(a, "properties"), name, value)
    {
        const json_t *other = member_of(b, name);
        json_object_set_new(made, name, other ? both_of(r, value, other) : json_incref(value));
    }
    json_object_foreach(json_object_get(b, "properties"), name, value)
    {
        const json_t *other = member_of(a, name);
        if (!json_object_get(made, name))
            json_object_set_new(made, name, other ? both_of(r, other, value) : json_incref(value));
    }
    return made;
}

static const json_t *prefix_of(const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items");
    return json_is_array(items) ? items : json_object_get(schema, "prefixItems");
}

static const json_t *rest_of(const json_t *schema)
{
    return json_object_get(
        schema, json_is_array(json_object_get(schema, "items")) ? "additionalItems" : "items");
}

/* Items by place, and those behind. */
static void items_both(struct schema_reader *r, json_t *made, const json_t *a, const json_t *b)
{
    const json_t *pa = prefix_of(a), *pb = prefix_of(b), *ra = rest_of(a), *rb = rest_of(b);
    size_t na = json_array_size(pa), nb = json_array_size(pb);
    json_t *prefix = json_array();
    for (size_t i = 0; i < na || i < nb; i++) {
        const json_t *x = i < na ? json_array_get(pa, i) : ra,
                     *y = i < nb ? json_array_get(pb, i) : rb;
        json_array_append_new(prefix,
                              x && y ? both_of(r, x, y) : json_incref((json_t *)(x ? x : y)));
    }
    if (json_array_size(prefix))
        json_object_set(made, "prefixItems", prefix);
    json_decref(prefix);
    if (ra || rb)
        json_object_set_new(made, "items",
                            ra && rb ? both_of(r, ra, rb) : json_incref((json_t *)(ra ? ra : rb)));
}

/* A list of ways, each with the other's. */
static json_t *ways_both(const char *key, const json_t *a, const json_t *b)
{
    json_t *made = json_array(), *way;
    size_t i;
    json_array_foreach((json_t *)a, i, way)
        json_array_append_new(made, json_pack("{s:[O,{s:O}]}", "allOf", way, key, (json_t *)b));
    return made;
}

static bool key_is(const char *key, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(key, *list) == 0)
            return true;
    return false;
}

/* What both say of one keyword; NULL: they cannot be joined. */
static json_t *keyword_both(struct schema_reader *r, const char *key, const json_t *a,
                            const json_t *b)
{
    static const char *const highest[] = {"minimum",  "exclusiveMinimum", "minLength",
                                          "minItems", "minProperties",    NULL};
    static const char *const lowest[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                         "maxItems", "maxProperties",    NULL};
    static const char *const annotations[] = {
        "title", "description", "default",  "examples",  "$schema",    "$id",    "$comment",
        "$defs", "definitions", "readOnly", "writeOnly", "deprecated", "format", NULL};
    bool numbers = json_is_number(a) && json_is_number(b);
    double x = json_number_value(a), y = json_number_value(b);
    if (key_is(key, annotations) || schema_same(r, a, b))
        return json_incref((json_t *)a);
    if (numbers && key_is(key, highest))
        return json_incref((json_t *)(x > y ? a : b));
    if (numbers && key_is(key, lowest))
        return json_incref((json_t *)(x < y ? a : b));
    if (strcmp(key, "type") == 0)
        return types_both(a, b);
    if (strcmp(key, "enum") == 0)
        return lists_both(r, a, b);
    if (strcmp(key, "required") == 0)
        return required_both(r, a, b);
    if (strcmp(key, "additionalProperties") == 0)
        return both_of(r, a, b);
    if (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0)
        return ways_both(key, a, b);
    return NULL;
}

static const json_t *objects_both(struct schema_reader *r, const json_t *a, const json_t *b,
                                  const char *path)
{
    static const char *const apart[] = {"properties", "items", "prefixItems", "additionalItems",
                                        NULL};
    json_t *made = schema_keep(r, json_object()), *value;
    const char *key;
    size_t size = json_object_size(a) + json_object_size(b) + json_array_size(prefix_of(a)) +
                  json_array_size(prefix_of(b)) +
                  json_object_size(json_object_get(a, "properties")) +
                  json_object_size(json_object_get(b, "properties"));
    if (!made || !schema_work(r, COPY_WORK * size))
        return NULL;
    if (json_object_get(b, "unevaluatedProperties") || json_object_get(b, "unevaluatedItems"))
        return schema_fail(r, HP_EUNSUPPORTED, path,
                           "\"unevaluatedProperties\" and \"unevaluatedItems\" within $ref, allOf "
                           "or anyOf are not supported");
    json_object_foreach((json_t *)a, key, value)
    {
        const json_t *other = json_object_get(b, key);
        if (key_is(key, apart))
            continue;
        json_t *both = other ? keyword_both(r, key, value, other) : json_incref(value);
        if (!both)
            return schema_fail(r, HP_EUNSUPPORTED, path,
                               "two values of \"%.60s\" hold at once, which cannot be merged", key);
        json_object_set_new(made, key, both);
    }
    json_object_foreach((json_t *)b, key,
                        value) if (!key_is(key, apart) && !json_object_get(made, key))
        json_object_set(made, key, value);
    json_t *properties = properties_both(r, a, b);
    if (json_object_size(properties) || json_object_get(a, "properties") ||
        json_object_get(b, "properties"))
        json_object_set(made, "properties", properties);
    json_decref(properties);
    items_both(r, made, a, b);
    return made;
}

const json_t *schema_both(struct schema_reader *r, const json_t *a, const json_t *b,
                          const char *path)
{
    a = schema_resolve(r, a, path);
    b = a ? schema_resolve(r, b, path) : NULL;
    if (!a || !b)
        return NULL;
    if (json_is_false(a) || json_is_true(b))
        return a;
    if (json_is_false(b) || json_is_true(a))
        return b;
    const json_t *ca = json_object_get(a, "const"), *cb = json_object_get(b, "const");
    if (ca && cb && !schema_same(r, ca, cb))
        return schema_keep(r, json_false());
    return objects_both(r, a, b, path);
}

const json_t *schema_resolve(struct schema_reader *r, const json_t *schema, const char *path)
{
    static const char *const without_ref[] = {"$ref", "$defs", "definitions", NULL},
                             *const without_all[] = {"allOf", NULL};
    if (!schema_work(r, 1 + json_array_size(json_object_get(schema, "type"))))
        return NULL;
    if (json_is_boolean(schema))
        return schema;
    if (!json_is_object(schema))
        return schema_fail(r, HP_EINVAL, path, "a schema is an object, true or false");
    const json_t *reference = json_object_get(schema, "$ref"),
                 *all = json_object_get(schema, "allOf"), *made = NULL;
    if (!reference && !all)
        return schema;
    if (++r->depth > MOST_MERGES)
        return schema_fail(r, HP_EINVAL, path, "the schema refers to itself without an end");
    if (reference && !json_is_string(reference))
        return schema_fail(r, HP_EINVAL, path, "$ref is a string");
    if (reference) {
        const json_t *rest = schema_without(r, schema, without_ref);
        made = reference_find(r, json_string_value(reference), path);
        if (made && rest && json_object_size(rest))
            made = schema_both(r, rest, made, path);
        else if (made)
            made = schema_resolve(r, made, path);
    } else {
        made = schema_without(r, schema, without_all);
        if (!json_is_array(all))
            made = schema_fail(r, HP_EINVAL, path, "allOf is a list of schemas");
        for (size_t i = 0; made && i < json_array_size(all); i++)
            made = schema_both(r, made, json_array_get(all, i), path);
    }
    r->depth--;
    return made;
}
