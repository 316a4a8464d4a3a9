/* Calls of tools in an answer, as expressions: marks around JSON of the tools' schemas, in the form
 * that a model's family writes, with reasoning before them where it reasons. */
#ifndef HP_MODEL_GRAMMAR_CALLS_H
#define HP_MODEL_GRAMMAR_CALLS_H

#include <jansson.h>

#include "model/grammar/json_text.h"

enum {
    GRAMMAR_MAX_CALLS = 128,
    GRAMMAR_MAX_MARK_BYTES = 64, /* of a mark */
};

struct grammar_call {
    const char *begin;    /* {"name": "f", "arguments": (of channels the name alone) */
    const json_t *schema; /* of the arguments; NULL: any object */
    const char *end;      /* } */
    size_t place;         /* among the tools, for the text of failures */
    bool lenient;         /* a schema that cannot be held to is as good as none */
};

/* `trigger open CALL between CALL .. close`; white space may stand behind the trigger and before
 * the close. A mark may be a special token, too (token_tree.h). */
struct grammar_calls {
    const char *trigger; /* <tool_call> */
    const char *open;    /* "" : nothing */
    const char *between; /* NULL: one call behind each trigger */
    const char *close;   /* "": nothing */
    const struct grammar_call *calls;
    size_t n_calls;
    /* Calls are the whole answer, and the trigger may be missing; else they may stand anywhere in
     * it. */
    bool whole;
    bool python; /* with `whole`: what begins with [ would be read as calls, too */
    /* The answer is messages on channels, of which calls are one kind; of what stands above `calls`
     * nothing counts then, and one call ends the answer. */
    bool channels;
    bool required; /* the answer is calls and nothing else; else it may be any text without calls */
    /* Unless they are required: the answer is calls, or JSON and nothing else; that the schema
     * holds of, or any object where it is NULL. `text_field` names it for the text of failures. */
    bool text_is_json;
    const json_t *text_schema;
    const char *text_field;
    bool parallel; /* several calls */
    /* Reasoning may come first, between these marks; NULL (both): there is none. */
    const char *reasoning_begin, *reasoning_end;
    bool reasoning_begun; /* before the answer: it goes on with reasoning */
};

/* Into the builder of `t`. `field` names the list of tools for the text of failures ("tools", of
 * which one's is "tools[2].parameters"). NULL: `e` says why (HP_EINVAL, HP_EUNSUPPORTED,
 * HP_ELIMIT), or the builder's status does. */
const struct expression *calls_expression(struct json_text *t, const struct grammar_calls *calls,
                                          const char *field, struct err *e);

#endif
