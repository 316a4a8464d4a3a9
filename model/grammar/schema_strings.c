/* Owns strings: lengths, patterns, formats. */
#include <string.h>

#include "model/grammar/regular.h"
#include "model/grammar/schema_int.h"

#define DAY                                                                                        \
    "[12][0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|"                                  \
    "(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"                                 \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

#define HOST "^(?:" LABEL "\\.){0,3}[A-Za-z](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?$"
#define MAIL                                                                                       \
    "^[A-Za-z0-9_]{1,32}(?:[.+-][A-Za-z0-9_]{1,16}){0,2}@(?:" LABEL "\\.){1,3}[A-Za-z]{2,12}$"
#define ADDRESS                                                                                    \
    "^(?:https?|ftp)://" LABEL "(?:\\." LABEL "){0,3}(?::[1-9][0-9]{0,3})?"                        \
    "(?:/[A-Za-z0-9._~-]{0,32}){0,8}(?:\\?[A-Za-z0-9._~=&-]{0,64})?(?:#[A-Za-z0-9._~-]{0,32})?$"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DAY "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DAY "T" TIME "$"},
    {"duration", "^P(?:[0-9]{1,4}[YMWD]|T[0-9]{1,4}[HMS]|[0-9]{1,4}DT[0-9]{1,2}H|"
                 "T[0-9]{1,2}H[0-9]{1,2}M(?:[0-9]{1,2}S)?)$"},
    {"email", MAIL},
    {"idn-email", MAIL},
    {"hostname", HOST},
    {"idn-hostname", HOST},
    {"ipv4", "^" OCTET "(?:\\." OCTET "){3}$"},
    {"ipv6", "^(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"uri", ADDRESS},
    {"uri-reference", ADDRESS},
    {"uri-template", ADDRESS},
    {"iri", ADDRESS},
    {"iri-reference", ADDRESS},
    {"json-pointer", "^(?:/[A-Za-z0-9_.-]{0,32}){0,8}$"},
    {"relative-json-pointer", "^(?:0|[1-9][0-9]{0,3})(?:#|(?:/[A-Za-z0-9_.-]{0,32}){0,8})$"},
    {"regex", "^[A-Za-z0-9 _-]{0,64}$"},
};

int64_t schema_count(struct schema_reader *r, const json_t *schema, const char *key,
                     int64_t fallback, const char *path)
{
    const json_t *value = json_object_get(schema, key);
    if (!value)
        return fallback;
    double v = json_is_number(value) ? json_number_value(value) : -1;
    if (v >= 0 && v < 1e15 && v == (double)(int64_t)v)
        return (int64_t)v;
    schema_fail(r, HP_EINVAL, path, "%s is a whole number that is not negative", key);
    return -2;
}

static const char *format_pattern(const json_t *schema)
{
    const char *format = json_string_value(json_object_get(schema, "format"));
    for (size_t i = 0; format && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, format) == 0)
            return formats[i].pattern;
    return NULL;
}

static const struct expression *quoted_make(struct schema_reader *r, const struct expression *inner)
{
    return EXPRESSION_SEQUENCE_OF(r->x, expression_word(r->x, "\""), inner,
                                  expression_word(r->x, "\""));
}

static const struct expression *pattern_string(struct schema_reader *r, const char *pattern,
                                               size_t size, int64_t least, int64_t most,
                                               const char *path)
{
    const struct expression *e = regular_expression(r->x, pattern, size, REGULAR_WITHIN), *fit;
    if (!e)
        return schema_fail(r, r->x->status, path, "pattern: %s", r->x->error.text);
    fit = least > 0 || most >= 0 ? expression_fit(r->x, e, least, most) : e;
    if (!fit && r->x->status == 0)
        return schema_fail(r, HP_EUNSUPPORTED, path,
                           "pattern and minLength or maxLength could not be joined; say the length "
                           "in the pattern");
    return quoted_make(r, fit);
}

const struct expression *schema_string(struct schema_reader *r, const json_t *schema,
                                       const char *path)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    const char *format = format_pattern(schema);
    int64_t least = schema_count(r, schema, "minLength", 0, path),
            most = schema_count(r, schema, "maxLength", EXPRESSION_FOREVER, path);
    if (r->status < 0 || (most >= 0 && most < least))
        return NULL;
    if (pattern && !json_is_string(pattern))
        return schema_fail(r, HP_EINVAL, path, "pattern is a string");
    if (pattern || format)
        return pattern_string(r, pattern ? json_string_value(pattern) : format,
                              pattern ? json_string_length(pattern) : strlen(format), least, most,
                              path);
    if (least == 0 && most < 0)
        return json_text_part(r->text, JSON_TEXT_STRING);
    if (most > SCHEMA_MAX_LENGTH)
        most = least > SCHEMA_MAX_LENGTH ? least : SCHEMA_MAX_LENGTH;
    if (least > EXPRESSION_MAX_REPEAT)
        return schema_fail(r, HP_ELIMIT, path, "minLength is at most %d", EXPRESSION_MAX_REPEAT);
    return quoted_make(r, expression_repeat(r->x, json_text_part(r->text, JSON_TEXT_CHAR),
                                            (int32_t)least, (int32_t)most));
}
