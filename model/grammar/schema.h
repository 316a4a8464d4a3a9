/* JSON schemas (2020-12, with what older drafts spell otherwise) as expressions: every text of the
 * expression is JSON that the schema holds of. Not always the other way round: members come in the
 * order of `properties`, those that are not named there only where additionalProperties says so (or
 * where there are no properties), and strings, numbers and counts without bounds get wide ones
 * (json_text.h; 2048 characters, 1024 items).
 *
 * Known: type, enum, const, properties, required, additionalProperties, minProperties and
 * maxProperties where they follow from these, items, prefixItems, minItems, maxItems, minLength,
 * maxLength, pattern, format (dates and times, addresses, names of hosts, uuid, and what is like
 * them: schema_strings.c; others say nothing), minimum, maximum, exclusiveMinimum,
 * exclusiveMaximum, anyOf, oneOf where no value can be of two, allOf where it can be merged, $ref
 * within the document, $defs. Annotations and unknown keywords are passed over; other keywords that
 * forbid something are refused by name (HP_EUNSUPPORTED). */
#ifndef HP_MODEL_GRAMMAR_SCHEMA_H
#define HP_MODEL_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "model/grammar/json_text.h"

enum {
    SCHEMA_MAX_DEPTH = 64,
    SCHEMA_MAX_PARTS = 4096,    /* schemas within it that differ, with those that are merged */
    SCHEMA_MAX_BYTES = 4 << 20, /* of all of these, written out */
    SCHEMA_MAX_LENGTH = 2048,   /* of strings whose maxLength is more */
    SCHEMA_MAX_ITEMS = 1024,
    SCHEMA_MAX_MEMBERS = 1024,
    SCHEMA_MAX_WORK = 1 << 18, /* schemas, members and values that are looked at, in turns */
};

/* The expression of a schema, whose rules go into the builder of `t`. `field` names it for the text
 * of failures, which has the path within it, too ("response_format.json_schema.schema.$defs.a").
 * NULL: `e` says why; HP_EINVAL: the schema allows nothing, or is none. */
const struct expression *schema_expression(struct json_text *t, const json_t *schema,
                                           const char *field, struct err *e);

#endif
