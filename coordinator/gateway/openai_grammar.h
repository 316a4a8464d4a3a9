/* What a request's answer is held to: response_format, and what vLLM's and llama-server's clients
 * say (guided_*, structured_outputs, grammar, json_schema). No I/O, any thread. */
#ifndef HP_COORDINATOR_GATEWAY_OPENAI_GRAMMAR_H
#define HP_COORDINATOR_GATEWAY_OPENAI_GRAMMAR_H

#include <jansson.h>

#include "common/pack.h"
#include "common/status.h"

/* Whether a body asks for a grammar. Takes no time to speak of. */
bool openai_grammar_asked(const json_t *root);
/* Whether `response_format` is what asks for it, and nothing else does. */
bool openai_grammar_formats(const json_t *root);
/* The schema that a `response_format` other than text has, by the name that it has in a body; NULL:
 * any object. HP_EINVAL. */
int openai_grammar_format(const json_t *format, const json_t **schema, const char **field,
                          struct err *e);
/* The grammar of a body as it goes to agents (model/grammar/grammar_source.h); empty where it asks
 * for none. Takes up to a tenth of a second: not for the loop. *out is freed with free().
 * *param: the field that asks for it, also where it is refused. HP_EINVAL, with the place within a
 * schema in the text; HP_ENOMEM. */
int openai_grammar_make(const json_t *root, struct pack_span *out, const char **param,
                        struct err *e);

#endif
