/* A checked body of a completion request. No I/O and nothing shared: any thread may parse. */
#ifndef HP_COORDINATOR_GATEWAY_OPENAI_BODY_H
#define HP_COORDINATOR_GATEWAY_OPENAI_BODY_H

#include <jansson.h>

#include "coordinator/gateway/body_ids.h"
#include "coordinator/gateway/completion.h"
#include "coordinator/gateway/response_fields.h"
#include "coordinator/gateway/tool_call.h"
#include "coordinator/requests.h"

enum {
    OPENAI_MAX_ANSWERS = 512, /* of all prompts of a request together */
    OPENAI_MAX_STOP_IDS = 64,
};

/* One of its prompts: a text, or ids. */
struct body_prompt {
    const char *text; /* the tree's; NULL: ids */
    uint32_t *ids;
    size_t n_ids;
};

struct openai_body {
    json_t *root;        /* owns `messages`, `tools`, `template_extra` and texts */
    struct body_ids ids; /* of "prompt", until they are the prompts' */
    size_t values_left;  /* what trees that are made of its texts may cost (body_measure.h) */
    int loads;           /* DIALECT_LOAD, DIALECT_UNLOAD: its prompt is none; else 0 */
    bool chat, stream, include_usage, ignore_end, literal_specials;
    bool tells_usage; /* with each piece of a stream that has usage at its end */
    char *model;
    json_t *messages;             /* chat: an array whose contents are plain strings */
    json_t *template_extra;       /* chat: more variables for the template, or NULL */
    json_t *tools;                /* chat: what the template is told of functions, or NULL */
    struct tool_names tool_names; /* of the body's tools */
    bool one_call;                /* at most one call is told */
    bool offers_tools;            /* the model may call functions */
    bool must_call;               /* ... and nothing else */
    bool holds_calls;             /* calls are held to a grammar (tools_grammar.h) */
    bool formats_text;            /* ... and what is said instead of them to `response_format` */
    const char *forced_name;      /* the one that may be called, of `tool_names`; NULL: any */
    bool splits_reasoning;        /* chat: unless `reasoning_format` is "none" */
    bool continues;               /* chat: the answer goes on with the last message */
    bool opens_turn;              /* chat: the template writes what begins the assistant's turn */
    bool
        fills; /* no chat: the answer stands between the root's "input_prefix" and "input_suffix" */
    const char *held_by;         /* the field that its answers' grammar is of */
    bool adds_special;           /* the tokenizer's own first and last tokens are added to a text */
    struct body_prompt *prompts; /* [n_prompts]; NULL of a chat, which has one */
    size_t n_prompts;
    uint64_t max_tokens;   /* 0: to the end of the context */
    uint32_t most_ms;      /* behind so much time after its first token a line's end ends an answer;
                              0: none does */
    uint32_t least_indent; /* of an answer's lines behind the first one; one with less ends it */
    struct response_fields fields; /* of an answer, where its dialect has such a choice */
    int32_t priority;              /* lower goes first */
    uint32_t n_choices;            /* answers that are made to each prompt, */
    uint32_t n_given;              /* and those of them that are given: the likeliest */
    char **stops;                  /* [n_stops] */
    int n_stops;
    uint32_t *stop_ids; /* [n_stop_ids] */
    int n_stop_ids, room_stop_ids;
    bool structured; /* the answer is held to a grammar, which is made of `root` with the prompt */
    struct sampling_params sampling;
    bool echo;            /* completions: the text begins with the prompt's */
    bool no_answer;       /* "max_tokens": 0, of an echo */
    bool logprobs;        /* of the answer, and of an echoed prompt; `top` likeliest with each */
    bool probabilities;   /* ... after all that samplers do, and not their logarithms */
    bool return_tokens;   /* the ids of the answer's tokens, in dialects that have them */
    bool tells_timings;   /* with each piece of a stream */
    bool prompt_logprobs; /* of the prompt, apart from the text; `prompt_top` with each */
    uint32_t top, prompt_top;
    char *asked; /* what an answer says of its request, as members of JSON, each with a comma before
                    it, in dialects that have such; NULL: nothing */
};

/* HP_EINVAL: the text says what is wrong, and *error_param (may become NULL) names the field. The
 * bytes are measured before a tree is made of them: not UTF-8, what costs more than
 * BODY_MAX_COST and nesting beyond BODY_MAX_DEPTH are refused. `translate` makes OpenAI's fields of
 * another dialect's and says whether they are a chat's (dialect.h); NULL: they are OpenAI's. */
int openai_body_read(const char *body, size_t n,
                     int (*translate)(json_t **root, bool *chat, const char **param, struct err *e),
                     bool chat, struct openai_body **out, const char **error_param, struct err *e);
static inline int openai_body_parse(const char *body, size_t n, bool chat, struct openai_body **out,
                                    const char **error_param, struct err *e)
{
    return openai_body_read(body, n, NULL, chat, out, error_param, e);
}
/* The ids of a body, against the model that is to run it. HP_EINVAL, naming the field in *param. */
int openai_body_check(const struct openai_body *b, uint32_t vocabulary, const char **param,
                      struct err *e);
/* Whether what it wants to be told of tokens is known: of what samplers do to probabilities nothing
 * is, so that these are told where samplers leave them alone, in dialects that have such.
 * HP_EINVAL, naming the field in *param. */
int openai_body_check_told(const struct openai_body *b, bool may_be_probabilities,
                           const char **param, struct err *e);
/* Keeps the root's text "asked", of a dialect that repeats it. HP_ENOMEM. */
int openai_body_keep_asked(struct openai_body *b, struct err *e);
/* Frees what the prompt was made of; the rest stays. */
void openai_body_drop_prompt(struct openai_body *b);
void openai_body_destroy(struct openai_body **b);

#endif
