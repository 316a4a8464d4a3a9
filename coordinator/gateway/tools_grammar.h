/* What answers with calls of functions are held to. No I/O, any thread. */
#ifndef HP_COORDINATOR_GATEWAY_TOOLS_GRAMMAR_H
#define HP_COORDINATOR_GATEWAY_TOOLS_GRAMMAR_H

#include "coordinator/gateway/openai_body.h"
#include "coordinator/gateway/tool_format.h"

/* The grammar (model/grammar/grammar_source.h) of a body that holds its calls: of all its functions
 * or of the one that is named, as the format writes them. Arguments are held to a function's
 * parameters, but where it is not strict and says what cannot be held to. `reasons`: reasoning may
 * come first; `begun`: the prompt's end has begun it. Takes up to a tenth of a second: not for the
 * loop. *out is freed with free(). HP_EINVAL, naming the field in *param; HP_ENOMEM. */
int tools_grammar_make(const struct openai_body *b, const struct tool_format *f, bool reasons,
                       bool begun, struct pack_span *out, const char **param, struct err *e);

#endif
