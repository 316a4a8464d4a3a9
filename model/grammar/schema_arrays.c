/* Owns arrays: items by place, those behind, and how many. */
#include "model/grammar/schema_int.h"

enum { MOST_PLACES = 200 };

struct array_reader {
    struct schema_reader *r;
    const json_t *prefix, *rest; /* rest: NULL: anything */
    const char *path;
    schema_part_fn part;
    int64_t least, most;
};

static const struct expression *item_make(struct array_reader *a, size_t at)
{
    char path[512];
    if (at < json_array_size(a->prefix)) {
        snprintf(path, sizeof path, "%.400s.prefixItems[%zu]", a->path, at);
        return a->part(a->r, json_array_get(a->prefix, at), path);
    }
    snprintf(path, sizeof path, "%.400s.items", a->path);
    return a->rest ? a->part(a->r, a->rest, path) : json_text_part(a->r->text, JSON_TEXT_VALUE);
}

static const struct expression *empty_make(struct array_reader *a)
{
    return EXPRESSION_SEQUENCE_OF(a->r->x, expression_word(a->r->x, "["),
                                  json_text_part(a->r->text, JSON_TEXT_SPACE),
                                  expression_word(a->r->x, "]"));
}

/* Items from `at` on, each with its comma before it but the first. NULL without a failure: there
 * can be none, though there must. */
static const struct expression *items_from(struct array_reader *a, int64_t at)
{
    struct expressions *x = a->r->x;
    const struct expression *item, *comma = json_text_comma(a->r->text);
    if (a->most >= 0 && at >= a->most)
        return expression_word(x, "");
    item = item_make(a, (size_t)at);
    if (!item)
        return a->r->status == 0 && at >= a->least ? expression_word(x, "") : NULL;
    if (at < (int64_t)json_array_size(a->prefix)) {
        const struct expression *more = items_from(a, at + 1), *all;
        if (!more)
            return NULL;
        all = at ? EXPRESSION_SEQUENCE_OF(x, comma, item, more)
                 : EXPRESSION_SEQUENCE_OF(x, item, more);
        return at >= a->least && at > 0 ? expression_repeat(x, all, 0, 1) : all;
    }
    int64_t least = a->least > at ? a->least - at : 0, most = a->most < 0 ? -1 : a->most - at;
    if (at > 0)
        return expression_repeat(x, EXPRESSION_SEQUENCE_OF(x, comma, item), (int32_t)least,
                                 (int32_t)most);
    return EXPRESSION_SEQUENCE_OF(
        x, item,
        expression_repeat(x, EXPRESSION_SEQUENCE_OF(x, comma, item),
                          (int32_t)(least > 0 ? least - 1 : 0),
                          (int32_t)(most < 0 ? EXPRESSION_FOREVER : most - 1)));
}

const struct expression *schema_array(struct schema_reader *r, const json_t *schema,
                                      const char *path, schema_part_fn part)
{
    const json_t *items = json_object_get(schema, "items");
    struct array_reader a = {.r = r,
                             .prefix = json_object_get(schema, "prefixItems"),
                             .rest = items,
                             .path = path,
                             .part = part,
                             .least = schema_count(r, schema, "minItems", 0, path),
                             .most = schema_count(r, schema, "maxItems", EXPRESSION_FOREVER, path)};
    if (json_is_array(items)) {
        a.prefix = items;
        a.rest = json_object_get(schema, "additionalItems");
    }
    if (!a.rest && json_object_get(schema, "unevaluatedItems"))
        a.rest = json_object_get(schema, "unevaluatedItems");
    if (r->status < 0 || (a.most >= 0 && a.most < a.least))
        return NULL;
    if (json_is_true(json_object_get(schema, "uniqueItems")) && !(a.most >= 0 && a.most <= 1))
        return schema_fail(r, HP_EUNSUPPORTED, path, "\"uniqueItems\" is not supported");
    if (json_array_size(a.prefix) > MOST_PLACES)
        return schema_fail(r, HP_ELIMIT, path, "prefixItems has more than %d places", MOST_PLACES);
    if (a.least > EXPRESSION_MAX_REPEAT)
        return schema_fail(r, HP_ELIMIT, path, "minItems is at most %d", EXPRESSION_MAX_REPEAT);
    if (a.most > SCHEMA_MAX_ITEMS)
        a.most = a.least > SCHEMA_MAX_ITEMS ? a.least : SCHEMA_MAX_ITEMS;
    if (json_array_size(a.prefix) && !items && a.least <= (int64_t)json_array_size(a.prefix) &&
        (a.most < 0 || a.most > (int64_t)json_array_size(a.prefix)))
        a.most = (int64_t)json_array_size(a.prefix); /* what nobody asks for is left out */
    if (a.most == 0)
        return empty_make(&a);
    const struct expression *inner = items_from(&a, 0);
    if (r->status < 0 || r->x->status < 0)
        return NULL;
    const struct expression *some = inner ? json_text_around(r->text, "[", inner, "]") : NULL;
    if (a.least > 0)
        return some;
    return some ? EXPRESSION_CHOICE_OF(r->x, empty_make(&a), some) : empty_make(&a);
}
