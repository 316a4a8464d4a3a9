/* What clients ask for as grammars ready for the wire (grammar_write): the face of this folder for
 * who makes them. `field` names what the client sent, for the text of failures. Each appends to an
 * empty `out`. HP_EINVAL, HP_EPARSE, HP_EUNSUPPORTED, HP_ELIMIT (each with field and reason),
 * HP_ENOMEM. Nothing here takes long: what is too large is refused before it is made. */
#ifndef HP_MODEL_GRAMMAR_GRAMMAR_SOURCE_H
#define HP_MODEL_GRAMMAR_GRAMMAR_SOURCE_H

#include <jansson.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/grammar/calls.h"

/* Any JSON object. */
int grammar_source_json(const char *field, struct buffer *out, struct err *e);
/* JSON that the schema (schema.h) holds of. */
int grammar_source_schema(const json_t *schema, const char *field, struct buffer *out,
                          struct err *e);
/* A text that the regular expression (regular.h) matches, whole. */
int grammar_source_regular(const char *pattern, size_t size, const char *field, struct buffer *out,
                           struct err *e);
/* One of the strings of a list. */
int grammar_source_choices(const json_t *texts, const char *field, struct buffer *out,
                           struct err *e);
/* GBNF (gbnf.h). */
int grammar_source_gbnf(const char *text, size_t size, const char *field, struct buffer *out,
                        struct err *e);

/* Answers with calls of tools (calls.h). */
int grammar_source_calls(const struct grammar_calls *calls, const char *field, struct buffer *out,
                         struct err *e);

#endif
