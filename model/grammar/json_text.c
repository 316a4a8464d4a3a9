#include "model/grammar/json_text.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "common/vector.h"
#include "model/grammar/regular.h"

static const struct expression *pattern_part(struct json_text *t, const char *pattern)
{
    return regular_expression(t->x, pattern, strlen(pattern), REGULAR_WHOLE);
}

static const struct expression *rule_of(struct json_text *t, enum json_text_part part)
{
    return expression_rule(t->x, t->rules[part] - 1);
}

/* One character of a string: as it stands, or escaped. */
static const struct expression *char_make(struct json_text *t)
{
    static const struct char_range plain[] = {{8, 10}, {12, 13}, {0x20, CHAR_MAX_POINT}};
    struct char_set set = {0};
    char_set_add_all(&set, plain, 3);
    char_set_settle(&set);
    return EXPRESSION_CHOICE_OF(
        t->x, expression_set(t->x, &set, true), expression_word(t->x, "\\/"),
        pattern_part(t, "\\\\u(?:[1-9a-cA-CefEF][0-9a-fA-F]{3}|0[1-9a-fA-F][0-9a-fA-F]{2}|"
                        "00[1-9a-fA-F][0-9a-fA-F]|000[1-9a-fA-F]|[dD][0-7][0-9a-fA-F]{2}|"
                        "[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2})"));
}

static const struct expression *quoted_make(struct json_text *t, const struct expression *inner)
{
    return EXPRESSION_SEQUENCE_OF(t->x, expression_word(t->x, "\""), inner,
                                  expression_word(t->x, "\""));
}

const struct expression *json_text_comma(struct json_text *t)
{
    return EXPRESSION_SEQUENCE_OF(t->x, expression_word(t->x, ","),
                                  json_text_part(t, JSON_TEXT_SPACE));
}

const struct expression *json_text_around(struct json_text *t, const char *open,
                                          const struct expression *inner, const char *close)
{
    return EXPRESSION_SEQUENCE_OF(t->x, expression_word(t->x, open),
                                  json_text_part(t, JSON_TEXT_SPACE), inner,
                                  json_text_part(t, JSON_TEXT_SPACE), expression_word(t->x, close));
}

const struct expression *json_text_member(struct json_text *t, const struct expression *name,
                                          const struct expression *value)
{
    return EXPRESSION_SEQUENCE_OF(t->x, name, expression_word(t->x, ":"),
                                  json_text_part(t, JSON_TEXT_SPACE), value);
}

/* None, or one and others behind commas. */
static const struct expression *list_make(struct json_text *t, const char *open,
                                          const struct expression *item, const char *close)
{
    const struct expression *more = EXPRESSION_SEQUENCE_OF(t->x, json_text_comma(t), item);
    const struct expression *all =
        EXPRESSION_SEQUENCE_OF(t->x, item, expression_repeat(t->x, more, 0, EXPRESSION_FOREVER));
    return EXPRESSION_CHOICE_OF(t->x, json_text_around(t, open, all, close),
                                EXPRESSION_SEQUENCE_OF(t->x, expression_word(t->x, open),
                                                       json_text_part(t, JSON_TEXT_SPACE),
                                                       expression_word(t->x, close)));
}

static const struct expression *part_make(struct json_text *t, enum json_text_part part)
{
    switch (part) {
    case JSON_TEXT_SPACE: return pattern_part(t, "(?: |\\n(?: {0,24}|\\t{1,8}))?");
    case JSON_TEXT_CHAR: return char_make(t);
    case JSON_TEXT_STRING:
        return quoted_make(t, expression_repeat(t->x, char_make(t), 0, EXPRESSION_FOREVER));
    case JSON_TEXT_NUMBER:
        return pattern_part(t,
                            "-?(?:0|[1-9][0-9]{0,15})(?:\\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?");
    case JSON_TEXT_INTEGER: return pattern_part(t, "0|-?[1-9][0-9]{0,15}");
    case JSON_TEXT_OBJECT:
        return list_make(t, "{",
                         json_text_member(t, json_text_part(t, JSON_TEXT_STRING),
                                          json_text_part(t, JSON_TEXT_VALUE)),
                         "}");
    case JSON_TEXT_ARRAY: return list_make(t, "[", json_text_part(t, JSON_TEXT_VALUE), "]");
    default:
        return EXPRESSION_CHOICE_OF(
            t->x, json_text_part(t, JSON_TEXT_OBJECT), json_text_part(t, JSON_TEXT_ARRAY),
            json_text_part(t, JSON_TEXT_STRING), json_text_part(t, JSON_TEXT_NUMBER),
            expression_word(t->x, "true"), expression_word(t->x, "false"),
            expression_word(t->x, "null"));
    }
}

const struct expression *json_text_part(struct json_text *t, enum json_text_part part)
{
    static const char *const names[] = {"space",   "char",  "string", "number",
                                        "integer", "value", "object", "array"};
    if (!t->rules[part]) {
        t->rules[part] = expression_rule_add(t->x, names[part]) + 1;
        expression_rule_set(t->x, t->rules[part] - 1, part_make(t, part));
    }
    return rule_of(t, part);
}

const struct expression *json_text_literal(struct json_text *t, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    const struct expression *e =
        text ? expression_word(t->x, text)
             : expression_fail(t->x, HP_ENOMEM, "no memory for a value of the schema");
    free(text);
    return e;
}

/* ---- names that are none of some ---- */

enum { LONGEST_NAME = 256 };

struct other_name {
    struct json_text *t;
    const char *const *names; /* sorted */
};

/* Texts behind `depth` bytes that the names [from, to) share. Whole names are left out. */
static const struct expression *others_make(struct other_name *o, size_t from, size_t to,
                                            size_t depth)
{
    struct expressions *x = o->t->x;
    static const struct char_range plain[] = {
        {0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, CHAR_MAX_POINT}};
    struct expression_list choice = {0};
    struct char_set taken = {0};
    const struct expression *any = NULL;
    struct char_set all = {0};
    char_set_add_all(&all, plain, 4);
    char_set_settle(&all);
    bool whole = from < to && o->names[from][depth] == '\0';
    if (!whole)
        expression_list_add(x, &choice, expression_word(x, ""));
    if (depth >= LONGEST_NAME || x->status < 0) { /* no longer ones */
        char_set_free(&all);
        return expression_choice(x, choice.items, choice.count);
    }
    for (size_t i = from + whole; i < to;) {
        uint32_t point;
        size_t n = strlen(o->names[i] + depth), end = i + 1;
        int used = utf8_decode(o->names[i] + depth, n, &point);
        if (used <= 0)
            used = 1;
        while (end < to && strncmp(o->names[i] + depth, o->names[end] + depth, (size_t)used) == 0)
            end++;
        char_set_add(&taken, point, point);
        expression_list_add(
            x, &choice,
            EXPRESSION_SEQUENCE_OF(x, expression_text(x, o->names[i] + depth, (size_t)used),
                                   others_make(o, i, end, depth + (size_t)used)));
        i = end;
    }
    any = expression_repeat(x, expression_chars(x, all.ranges, all.count, true), 0,
                            EXPRESSION_FOREVER);
    char_set_settle(&taken);
    char_set_negate(&taken);
    char_set_intersect(&taken, all.ranges, all.count);
    char_set_free(&all);
    expression_list_add(x, &choice,
                        EXPRESSION_SEQUENCE_OF(x, expression_set(x, &taken, true), any));
    return expression_choice(x, choice.items, choice.count);
}

static int names_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const struct expression *json_text_other_name(struct json_text *t, const char *const *names,
                                              size_t n)
{
    const char **sorted = calloc(n + 1, sizeof *sorted);
    size_t kept = 0;
    if (!sorted)
        return expression_fail(t->x, HP_ENOMEM, "no memory for a schema's names");
    for (size_t i = 0; i < n; i++)
        if (!strpbrk(names[i], "\"\\")) /* the others are never written so */
            sorted[kept++] = names[i];
    qsort(sorted, kept, sizeof *sorted, names_compare);
    struct other_name o = {t, sorted};
    const struct expression *e = quoted_make(t, others_make(&o, 0, kept, 0));
    free(sorted);
    return e;
}
