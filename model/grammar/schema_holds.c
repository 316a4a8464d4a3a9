/* Owns what is known of schemas without a text: whether one holds of a value, and whether two can
 * hold of one value. What is not certain is said so. */
#include <math.h>
#include <string.h>

#include "common/utf8.h"
#include "model/grammar/schema_int.h"

enum { DEEPEST = 32 };

static enum schema_truth truth_of(bool yes)
{
    return yes ? SCHEMA_YES : SCHEMA_NO;
}

static enum schema_truth truth_and(enum schema_truth a, enum schema_truth b)
{
    return a == SCHEMA_NO || b == SCHEMA_NO             ? SCHEMA_NO
           : a == SCHEMA_UNKNOWN || b == SCHEMA_UNKNOWN ? SCHEMA_UNKNOWN
                                                        : SCHEMA_YES;
}

static const char *type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "object";
    case JSON_ARRAY: return "array";
    case JSON_STRING: return "string";
    case JSON_INTEGER: return "integer";
    case JSON_REAL:
        return json_real_value(value) == floor(json_real_value(value)) ? "integer" : "number";
    case JSON_NULL: return "null";
    default: return "boolean";
    }
}

static bool bound_holds(const json_t *schema, const char *key, double value, int sign, bool strict)
{
    const json_t *bound = json_object_get(schema, key);
    double by = json_is_number(bound) ? (value - json_number_value(bound)) * sign : 1;
    return strict ? by > 0 : by >= 0;
}

static size_t text_length(const json_t *value)
{
    const char *s = json_string_value(value);
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(value); i++)
        n += ((unsigned char)s[i] & 0xC0) != 0x80;
    return n;
}

static enum schema_truth bounds_hold(const json_t *schema, const json_t *value)
{
    bool ok = true;
    if (json_is_number(value)) {
        double v = json_number_value(value);
        ok = bound_holds(schema, "minimum", v, 1, false) &&
             bound_holds(schema, "maximum", v, -1, false) &&
             bound_holds(schema, "exclusiveMinimum", v, 1, true) &&
             bound_holds(schema, "exclusiveMaximum", v, -1, true);
    } else if (json_is_string(value)) {
        double n = (double)text_length(value);
        ok = bound_holds(schema, "minLength", n, 1, false) &&
             bound_holds(schema, "maxLength", n, -1, false);
    } else if (json_is_array(value)) {
        double n = (double)json_array_size(value);
        ok = bound_holds(schema, "minItems", n, 1, false) &&
             bound_holds(schema, "maxItems", n, -1, false);
    } else if (json_is_object(value)) {
        double n = (double)json_object_size(value);
        ok = bound_holds(schema, "minProperties", n, 1, false) &&
             bound_holds(schema, "maxProperties", n, -1, false);
    }
    return truth_of(ok);
}

static enum schema_truth members_hold(struct schema_reader *r, const json_t *schema,
                                      const json_t *value, int depth)
{
    const json_t *properties = json_object_get(schema, "properties"),
                 *others = json_object_get(schema, "additionalProperties");
    enum schema_truth all = SCHEMA_YES;
    const char *name;
    json_t *item;
    size_t i;
    if (!schema_work(r, json_array_size(json_object_get(schema, "required"))))
        return SCHEMA_UNKNOWN;
    json_array_foreach(json_object_get(schema, "required"), i,
                       item) if (json_is_string(item) &&
                                 !json_object_get(value, json_string_value(item))) return SCHEMA_NO;
    json_object_foreach((json_t *)value, name, item)
    {
        const json_t *of = json_object_get(properties, name);
        of = of ? of : others;
        all = of ? truth_and(all, schema_holds(r, of, item, depth + 1)) : all;
    }
    return all;
}

static enum schema_truth items_hold(struct schema_reader *r, const json_t *schema,
                                    const json_t *value, int depth)
{
    const json_t *items = json_object_get(schema, "items"),
                 *prefix = json_object_get(schema, "prefixItems"), *rest = items;
    enum schema_truth all = SCHEMA_YES;
    if (json_is_array(items)) {
        prefix = items;
        rest = json_object_get(schema, "additionalItems");
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *of = i < json_array_size(prefix) ? json_array_get(prefix, i) : rest;
        all = of ? truth_and(all, schema_holds(r, of, json_array_get(value, i), depth + 1)) : all;
    }
    return all;
}

/* How many of the ways hold: of anyOf one at least, of oneOf one. */
static enum schema_truth ways_hold(struct schema_reader *r, const json_t *ways, bool one,
                                   const json_t *value, int depth)
{
    size_t yes = 0, unknown = 0, i;
    json_t *way;
    json_array_foreach((json_t *)ways, i, way)
    {
        enum schema_truth t = schema_holds(r, way, value, depth + 1);
        yes += t == SCHEMA_YES;
        unknown += t == SCHEMA_UNKNOWN;
    }
    if (one && yes > 1)
        return SCHEMA_NO;
    if (!one && yes)
        return SCHEMA_YES;
    return unknown ? SCHEMA_UNKNOWN : truth_of(yes == 1);
}

static bool keyword_unclear(const json_t *schema)
{
    static const char *const unclear[] = {"pattern",
                                          "format",
                                          "not",
                                          "if",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "dependencies",
                                          "contains",
                                          "uniqueItems",
                                          "propertyNames",
                                          "multipleOf",
                                          "patternProperties",
                                          "unevaluatedItems",
                                          "unevaluatedProperties"};
    for (size_t i = 0; i < sizeof unclear / sizeof *unclear; i++)
        if (json_object_get(schema, unclear[i]))
            return true;
    return false;
}

/* 1 and 1.0 are one value. */
static bool values_equal(struct schema_reader *r, const json_t *a, const json_t *b)
{
    bool numbers = json_is_number(a) && json_is_number(b);
    return schema_same(r, a, b) || (numbers && json_number_value(a) == json_number_value(b));
}

static bool value_listed(struct schema_reader *r, const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list) && r->status == 0; i++)
        if (values_equal(r, json_array_get(list, i), value))
            return true;
    return false;
}

enum schema_truth schema_holds(struct schema_reader *r, const json_t *schema, const json_t *value,
                               int depth)
{
    const json_t *only, *list, *ways;
    schema = depth < DEEPEST ? schema_resolve(r, schema, "") : NULL;
    if (!schema || !schema_work(r, 1))
        return SCHEMA_UNKNOWN;
    if (json_is_boolean(schema))
        return truth_of(json_is_true(schema));
    if (!schema_is_type(schema, type_of(value)))
        return SCHEMA_NO;
    enum schema_truth t = bounds_hold(schema, value);
    if ((only = json_object_get(schema, "const")) != NULL)
        t = truth_and(t, truth_of(values_equal(r, only, value)));
    if ((list = json_object_get(schema, "enum")) != NULL)
        t = truth_and(t, truth_of(value_listed(r, list, value)));
    if (json_is_object(value))
        t = truth_and(t, members_hold(r, schema, value, depth));
    if (json_is_array(value))
        t = truth_and(t, items_hold(r, schema, value, depth));
    if ((ways = json_object_get(schema, "anyOf")) != NULL)
        t = truth_and(t, ways_hold(r, ways, false, value, depth));
    if ((ways = json_object_get(schema, "oneOf")) != NULL)
        t = truth_and(t, ways_hold(r, ways, true, value, depth));
    return keyword_unclear(schema) ? truth_and(t, SCHEMA_UNKNOWN) : t;
}

/* ---- apart ---- */

static const json_t *values_of(const json_t *schema, json_t **made)
{
    const json_t *only = json_object_get(schema, "const");
    *made = only ? json_pack("[O]", (json_t *)only) : NULL;
    return only ? *made : json_object_get(schema, "enum");
}

/* All values of a list are none of the other's. */
static bool values_apart(struct schema_reader *r, const json_t *a, const json_t *b)
{
    json_t *made;
    const json_t *list = values_of(a, &made);
    size_t i;
    bool apart = list != NULL;
    for (i = 0; apart && i < json_array_size(list); i++)
        apart = schema_holds(r, b, json_array_get(list, i), 0) == SCHEMA_NO;
    json_decref(made);
    return apart;
}

static bool ranges_apart(const json_t *a, const json_t *b, const char *low, const char *high)
{
    const json_t *from = json_object_get(a, low), *to = json_object_get(b, high);
    return json_is_number(from) && json_is_number(to) &&
           json_number_value(from) > json_number_value(to);
}

/* A member that one must have is none that the other can have. */
static bool members_apart(struct schema_reader *r, const json_t *a, const json_t *b,
                          const char *path, int depth)
{
    json_t *item;
    size_t i;
    json_array_foreach(json_object_get(a, "required"), i, item)
    {
        if (!schema_work(r, 1 + json_array_size(json_object_get(b, "required"))))
            return false;
        const char *name = json_is_string(item) ? json_string_value(item) : "";
        const json_t *own = json_object_get(json_object_get(a, "properties"), name),
                     *other = json_object_get(json_object_get(b, "properties"), name);
        if (!other)
            other = json_object_get(json_object_get(b, "patternProperties") ? NULL : b,
                                    "additionalProperties");
        if (json_is_false(other) || (own && other && schema_requires(b, name) &&
                                     schema_apart(r, own, other, path, depth + 1)))
            return true;
    }
    return false;
}

static bool ways_apart(struct schema_reader *r, const json_t *a, const json_t *b, const char *key,
                       const char *path, int depth)
{
    const json_t *ways = json_object_get(a, key);
    json_t *way;
    size_t i;
    json_array_foreach((json_t *)ways, i,
                       way) if (!schema_apart(r, way, b, path, depth + 1)) return false;
    return ways != NULL;
}

static bool types_apart(struct schema_reader *r, const json_t *a, const json_t *b, const char *path,
                        int depth)
{
    static const char *const types[] = {"boolean", "null",   "string", "number",
                                        "integer", "object", "array"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!schema_is_type(a, types[i]) || !schema_is_type(b, types[i]))
            continue;
        bool number = i == 3 || i == 4;
        if (!(i == 5 &&
              (members_apart(r, a, b, path, depth) || members_apart(r, b, a, path, depth))) &&
            !(number && (ranges_apart(a, b, "minimum", "maximum") ||
                         ranges_apart(b, a, "minimum", "maximum"))) &&
            !(i == 2 && (ranges_apart(a, b, "minLength", "maxLength") ||
                         ranges_apart(b, a, "minLength", "maxLength"))) &&
            !(i == 6 && (ranges_apart(a, b, "minItems", "maxItems") ||
                         ranges_apart(b, a, "minItems", "maxItems"))))
            return false;
    }
    return true;
}

bool schema_apart(struct schema_reader *r, const json_t *a, const json_t *b, const char *path,
                  int depth)
{
    a = depth < 6 ? schema_resolve(r, a, path) : NULL;
    b = a ? schema_resolve(r, b, path) : NULL;
    if (!a || !b)
        return false;
    if (json_is_boolean(a) || json_is_boolean(b))
        return json_is_false(a) || json_is_false(b);
    return values_apart(r, a, b) || values_apart(r, b, a) || types_apart(r, a, b, path, depth) ||
           ways_apart(r, a, b, "anyOf", path, depth) || ways_apart(r, b, a, "anyOf", path, depth) ||
           ways_apart(r, a, b, "oneOf", path, depth) || ways_apart(r, b, a, "oneOf", path, depth);
}
