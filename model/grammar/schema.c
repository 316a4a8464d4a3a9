#include "model/grammar/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/schema_int.h"

static const struct expression *part_expression(struct schema_reader *r, const json_t *schema,
                                                const char *path);

/* ---- what is not known ---- */

static bool keywords_check(struct schema_reader *r, const json_t *schema, const char *path)
{
    static const char *const refused[] = {
        "not",         "if",           "dependentRequired", "dependentSchemas", "dependencies",
        "contains",    "minContains",  "maxContains",       "propertyNames",    "patternProperties",
        "$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (json_object_get(schema, refused[i]))
            return schema_fail(r, HP_EUNSUPPORTED, path, "\"%s\" is not supported", refused[i]) !=
                   NULL;
    const json_t *of = json_object_get(schema, "multipleOf"),
                 *lists[] = {json_object_get(schema, "anyOf"), json_object_get(schema, "oneOf"),
                             json_object_get(schema, "enum"), json_object_get(schema, "required")};
    static const char *const names[] = {"anyOf", "oneOf", "enum", "required"};
    for (size_t i = 0; i < 4; i++)
        if (lists[i] && !json_is_array(lists[i]))
            return schema_fail(r, HP_EINVAL, path, "%s is a list", names[i]) != NULL;
    if (of && !(json_is_number(of) && json_number_value(of) == 1))
        return schema_fail(r, HP_EUNSUPPORTED, path, "\"multipleOf\" is not supported but of 1") !=
               NULL;
    if (json_array_size(json_object_get(schema, "type")) > 7)
        return schema_fail(r, HP_EINVAL, path, "type names more types than there are") != NULL;
    const json_t *properties = json_object_get(schema, "properties");
    if (properties && !json_is_object(properties))
        return schema_fail(r, HP_EINVAL, path, "properties is an object") != NULL;
    return true;
}

/* ---- ways ---- */

/* All pairs of oneOf are apart, so that who is of one is of no other. */
static bool ways_check(struct schema_reader *r, const json_t *ways, const char *path)
{
    for (size_t i = 0; i < json_array_size(ways); i++)
        for (size_t k = i + 1; k < json_array_size(ways); k++)
            if (!schema_apart(r, json_array_get(ways, i), json_array_get(ways, k), path, 0))
                return schema_fail(r, HP_EUNSUPPORTED, path,
                                   "it could not be shown that no value is of oneOf[%zu] and of "
                                   "oneOf[%zu]; use anyOf, or give each a member of its own that "
                                   "is required and constant",
                                   i, k) != NULL;
    return true;
}

static const struct expression *ways_expression(struct schema_reader *r, const json_t *schema,
                                                const char *key, const char *path)
{
    const char *const without[] = {key, NULL};
    const json_t *ways = json_object_get(schema, key), *rest = schema_without(r, schema, without);
    struct expression_list l = {0};
    char inner[512];
    if (!rest || (strcmp(key, "oneOf") == 0 && !ways_check(r, ways, path)))
        return NULL;
    for (size_t i = 0; i < json_array_size(ways); i++) {
        snprintf(inner, sizeof inner, "%.400s.%s[%zu]", path, key, i);
        const json_t *both = json_object_size(rest)
                                 ? schema_both(r, rest, json_array_get(ways, i), inner)
                                 : json_array_get(ways, i);
        const struct expression *e = both ? part_expression(r, both, inner) : NULL;
        if (r->status < 0)
            return NULL;
        if (e)
            expression_list_add(r->x, &l, e);
    }
    return l.count ? expression_choice(r->x, l.items, l.count) : NULL;
}

/* ---- values ---- */

static const struct expression *values_expression(struct schema_reader *r, const json_t *schema,
                                                  const json_t *list, const char *path)
{
    static const char *const without[] = {"enum", NULL};
    const json_t *rest = schema_without(r, schema, without);
    struct expression_list l = {0};
    for (size_t i = 0; rest && i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        enum schema_truth holds = schema_holds(r, rest, value, 0);
        if (holds == SCHEMA_UNKNOWN)
            return schema_fail(r, HP_EUNSUPPORTED, path,
                               "it could not be shown whether value %zu of enum or const is of the "
                               "rest of the schema",
                               i);
        if (holds == SCHEMA_YES)
            expression_list_add(r->x, &l, json_text_literal(r->text, value));
    }
    return l.count && r->status == 0 ? expression_choice(r->x, l.items, l.count) : NULL;
}

static const struct expression *const_expression(struct schema_reader *r, const json_t *schema,
                                                 const char *path)
{
    static const char *const without[] = {"const", NULL};
    json_t *list = json_pack("[O]", json_object_get(schema, "const")),
           *rest = schema_without(r, schema, without);
    const struct expression *e = NULL;
    if (rest && list && !json_object_get(rest, "enum"))
        e = values_expression(r, rest, list, path);
    else if (rest && list && schema_holds(r, rest, json_array_get(list, 0), 0) == SCHEMA_YES)
        e = json_text_literal(r->text, json_array_get(list, 0));
    json_decref(list);
    return e;
}

/* ---- types ---- */

static void bound_take(const json_t *schema, const char *key, double *bound, bool *strict, int sign)
{
    const json_t *value = json_object_get(schema, key);
    bool exclusive = strncmp(key, "exclusive", 9) == 0;
    if (!json_is_number(value))
        return;
    double v = json_number_value(value);
    if ((v - *bound) * sign > 0 || (v == *bound && exclusive)) {
        *bound = v;
        *strict = exclusive;
    }
}

static const struct expression *number_expression(struct schema_reader *r, const json_t *schema,
                                                  bool whole)
{
    struct json_range range = {.low = -INFINITY, .high = INFINITY};
    bound_take(schema, "minimum", &range.low, &range.above, 1);
    bound_take(schema, "exclusiveMinimum", &range.low, &range.above, 1);
    bound_take(schema, "maximum", &range.high, &range.below, -1);
    bound_take(schema, "exclusiveMaximum", &range.high, &range.below, -1);
    if (json_is_true(json_object_get(schema, "exclusiveMinimum"))) /* draft 4 */
        range.above = true;
    if (json_is_true(json_object_get(schema, "exclusiveMaximum")))
        range.below = true;
    whole = whole || json_object_get(schema, "multipleOf");
    if (isinf(range.low) && isinf(range.high))
        return json_text_part(r->text, whole ? JSON_TEXT_INTEGER : JSON_TEXT_NUMBER);
    return whole ? json_text_integers(r->text, &range) : json_text_numbers(r->text, &range);
}

static const struct expression *type_expression(struct schema_reader *r, const json_t *schema,
                                                const char *type, const char *path)
{
    if (strcmp(type, "null") == 0)
        return expression_word(r->x, "null");
    if (strcmp(type, "boolean") == 0)
        return EXPRESSION_CHOICE_OF(r->x, expression_word(r->x, "true"),
                                    expression_word(r->x, "false"));
    if (strcmp(type, "string") == 0)
        return schema_string(r, schema, path);
    if (strcmp(type, "array") == 0)
        return schema_array(r, schema, path, part_expression);
    if (strcmp(type, "object") == 0)
        return schema_object(r, schema, path, part_expression);
    if (strcmp(type, "integer") == 0 || strcmp(type, "number") == 0)
        return number_expression(r, schema, strcmp(type, "integer") == 0);
    return schema_fail(r, HP_EINVAL, path, "type \"%.40s\" is none", type);
}

static bool keyword_is_of_type(const json_t *schema)
{
    static const char *const keywords[] = {
        "properties",      "required",         "additionalProperties",
        "minProperties",   "maxProperties",    "items",
        "prefixItems",     "additionalItems",  "minItems",
        "maxItems",        "minLength",        "maxLength",
        "pattern",         "format",           "minimum",
        "maximum",         "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf",      "uniqueItems",      "unevaluatedProperties",
        "unevaluatedItems"};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (json_object_get(schema, keywords[i]))
            return true;
    return false;
}

static const struct expression *types_expression(struct schema_reader *r, const json_t *schema,
                                                 const char *path)
{
    static const char *const all[] = {"object", "array", "string", "number", "boolean", "null"};
    const json_t *type = json_object_get(schema, "type");
    struct expression_list l = {0};
    size_t n = json_is_array(type) ? json_array_size(type) : type ? 1 : sizeof all / sizeof *all;
    if (!type && !keyword_is_of_type(schema))
        return json_text_part(r->text, JSON_TEXT_VALUE);
    for (size_t i = 0; i < n; i++) {
        const json_t *word = json_is_array(type) ? json_array_get(type, i) : type;
        if (word && !json_is_string(word))
            return schema_fail(r, HP_EINVAL, path, "type is a name or a list of names");
        const struct expression *e =
            type_expression(r, schema, word ? json_string_value(word) : all[i], path);
        if (r->status < 0)
            return NULL;
        if (e)
            expression_list_add(r->x, &l, e);
    }
    return l.count ? expression_choice(r->x, l.items, l.count) : NULL;
}

/* ---- a schema ---- */

static const struct expression *schema_body(struct schema_reader *r, const json_t *schema,
                                            const char *path)
{
    schema = schema_resolve(r, schema, path);
    if (!schema || json_is_false(schema))
        return NULL;
    if (json_is_true(schema))
        return json_text_part(r->text, JSON_TEXT_VALUE);
    if (!keywords_check(r, schema, path))
        return NULL;
    if (json_object_get(schema, "anyOf"))
        return ways_expression(r, schema, "anyOf", path);
    if (json_object_get(schema, "oneOf"))
        return ways_expression(r, schema, "oneOf", path);
    if (json_object_get(schema, "const"))
        return const_expression(r, schema, path);
    if (json_object_get(schema, "enum"))
        return values_expression(r, schema, json_object_get(schema, "enum"), path);
    return types_expression(r, schema, path);
}

/* Schemas with the same text share a rule; so those that contain themselves have an end. A new one:
 * NULL in *found. */
static struct schema_rule *rule_find(struct schema_reader *r, const json_t *schema,
                                     const char *path, bool *is_new)
{
    struct schema_rule *rule = NULL;
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    size_t n = text ? strlen(text) : 0;
    if (!schema_work(r, n / 8)) {
        free(text);
        return NULL;
    }
    HASH_FIND(hh, r->rules, text, n, rule);
    *is_new = !rule;
    if (!rule && ((r->bytes += n) > SCHEMA_MAX_BYTES || ++r->parts > SCHEMA_MAX_PARTS))
        schema_fail(r, HP_ELIMIT, path,
                    "the schema explodes: it has more than %d parts that differ", SCHEMA_MAX_PARTS);
    else if (!rule && (!text || !(rule = malloc(sizeof *rule + n + 1))))
        schema_fail(r, HP_ENOMEM, path, "no memory for a schema");
    else if (*is_new) {
        memcpy(rule->text, text, n + 1);
        rule->rule = expression_rule_add(r->x, path[0] ? path : "schema");
        HASH_ADD_KEYPTR(hh, r->rules, rule->text, n, rule);
        if (!map_has_added(rule)) {
            free(rule);
            rule = schema_fail(r, HP_ENOMEM, path, "no memory for a schema");
        }
    }
    free(text);
    return rule;
}

static const struct expression *part_expression(struct schema_reader *r, const json_t *schema,
                                                const char *path)
{
    bool is_new;
    if (r->status < 0 || r->x->status < 0)
        return NULL;
    if (r->depth >= SCHEMA_MAX_DEPTH)
        return schema_fail(r, HP_ELIMIT, path, "schemas are nested more than %d deep",
                           SCHEMA_MAX_DEPTH);
    struct schema_rule *rule = rule_find(r, schema, path, &is_new);
    if (!rule)
        return NULL;
    if (is_new) {
        r->depth++;
        const struct expression *e = schema_body(r, schema, path);
        r->depth--;
        if (r->status < 0 || r->x->status < 0)
            return NULL;
        /* What allows nothing is a rule that never ends; its callers leave it out. */
        expression_rule_set(r->x, rule->rule, e ? e : expression_choice(r->x, NULL, 0));
        if (!e)
            rule->text[0] = '\0';
    }
    return rule->text[0] ? expression_rule(r->x, rule->rule) : NULL;
}

const struct expression *schema_expression(struct json_text *t, const json_t *schema,
                                           const char *field, struct err *e)
{
    struct schema_reader r = {
        .text = t, .x = t->x, .root = schema, .field = field, .kept = json_array(), .e = e};
    struct schema_rule *rule, *next;
    const struct expression *made = r.kept ? part_expression(&r, schema, "") : NULL;
    if (!made && r.status == 0 && r.x->status == 0)
        schema_fail(&r, r.kept ? HP_EINVAL : HP_ENOMEM, "",
                    r.kept ? "no value is of this schema" : "no memory for a schema");
    if (r.status == 0 && r.x->status < 0)
        schema_fail(&r, r.x->status, "", "%s", r.x->error.text);
    HASH_ITER(hh, r.rules, rule, next)
    {
        HASH_DEL(r.rules, rule);
        free(rule);
    }
    json_decref(r.kept);
    return r.status < 0 ? NULL : made;
}
