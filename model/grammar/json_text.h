/* The parts of JSON texts as expressions (RFC 8259): what schemas are made of. White space stands
 * where people and models put it (behind "{", "[", ",", ":" and before "}", "]"): nothing, a space,
 * or a line end with at most 24 spaces or 8 tabs. Numbers have at most 16 digits before and behind
 * the point and two of an exponent. Strings are UTF-8; \u stands for no half of a pair alone. */
#ifndef HP_MODEL_GRAMMAR_JSON_TEXT_H
#define HP_MODEL_GRAMMAR_JSON_TEXT_H

#include <jansson.h>

#include "model/grammar/expression.h"

enum json_text_part {
    JSON_TEXT_SPACE,
    JSON_TEXT_CHAR, /* of a string, one */
    JSON_TEXT_STRING,
    JSON_TEXT_NUMBER,
    JSON_TEXT_INTEGER,
    JSON_TEXT_VALUE,
    JSON_TEXT_OBJECT,
    JSON_TEXT_ARRAY,
    JSON_TEXT_PARTS
};

/* Rules that are made when they are first wanted. Zero-initialised but for `x` is ready. */
struct json_text {
    struct expressions *x;
    uint32_t rules[JSON_TEXT_PARTS]; /* number + 1 */
};
const struct expression *json_text_part(struct json_text *t, enum json_text_part part);

/* A value as it is written without white space. */
const struct expression *json_text_literal(struct json_text *t, const json_t *value);
/* "{", members with commas between and all that space, "}". */
const struct expression *json_text_around(struct json_text *t, const char *open,
                                          const struct expression *inner, const char *close);
const struct expression *json_text_comma(struct json_text *t);
/* A member: its name, as text or as an expression of all of the string, and its value. */
const struct expression *json_text_member(struct json_text *t, const struct expression *name,
                                          const struct expression *value);
/* A string that is none of these, without escapes: names of further members. */
const struct expression *json_text_other_name(struct json_text *t, const char *const *names,
                                              size_t n);

/* Numbers of a range; infinite bounds are none. `above`, `below`: the bound itself is left out.
 * NULL without a failure: there is none that could be written. */
struct json_range {
    double low, high;
    bool above, below;
};
const struct expression *json_text_integers(struct json_text *t, const struct json_range *r);
const struct expression *json_text_numbers(struct json_text *t, const struct json_range *r);

#endif
