/* What differs between the APIs that completions speak: how a body's fields are called, and how an
 * answer reads. A row each; whatever lies between is one. No I/O. */
#ifndef HP_COORDINATOR_GATEWAY_DIALECT_H
#define HP_COORDINATOR_GATEWAY_DIALECT_H

#include <jansson.h>

#include "coordinator/gateway/answer_scores.h"
#include "coordinator/gateway/openai_json.h"

/* What a body asks for that has no prompt: that the model is there, or may go. */
enum { DIALECT_LOAD = 1, DIALECT_UNLOAD = 2 };

/* A field, as it is called there and here. */
struct field_name {
    const char *there, *here;
};

struct dialect {
    const char *stream_type; /* Content-Type */
    const char *pulse;       /* what a stream tells that has nothing to tell; NULL: nothing */
    const char *stopped;     /* how an answer finished that a stop string ended */
    const char *id_prefix;   /* of an answer's name; NULL: OpenAI's two */
    enum answer_scores_shape shape; /* of what is said of tokens, but for OpenAI's chats */
    bool fills;                     /* a gap between "input_prefix" and "input_suffix" */
    bool selects; /* an answer has the fields that a body's "response_fields" names */
    bool repeats; /* an answer says what was asked for: the text "asked" of translated bodies */
    /* Makes OpenAI's fields of *root (which it replaces) and says whether they are a chat's;
     * DIALECT_LOAD and its likes where nothing is to be answered. HP_EINVAL names the field in
     * *param; HP_ENOMEM. NULL: they are OpenAI's. Any thread. */
    int (*translate)(json_t **root, bool *chat, const char **param, struct err *e);
    /* How fields are called there that a refusal may name, the longest first; NULL: as OpenAI's. */
    const struct field_name *names;
    /* A stream: the beginning of a choice, its text, its end; then the end of all. `finish` is
     * "stop", "length", "tool_calls" or `stopped`; at the end that of the first choice. */
    void (*begin)(struct buffer *out, const struct openai_head *h, uint32_t index);
    void (*text)(struct buffer *out, const struct openai_head *h, uint32_t index, const char *text,
                 size_t n);
    /* ... with what is said of its tokens, which is taken; NULL: nothing is in this dialect. */
    void (*scored)(struct buffer *out, const struct openai_head *h, uint32_t index,
                   const char *text, size_t n, struct answer_scores *scores);
    /* Pieces of its reasoning, and calls of functions, each whole. NULL: answers have none. */
    void (*reasoning)(struct buffer *out, const struct openai_head *h, uint32_t index,
                      const char *text, size_t n);
    void (*call)(struct buffer *out, const struct openai_head *h, uint32_t index,
                 const struct openai_call *call);
    void (*finish)(struct buffer *out, const struct openai_head *h, uint32_t index,
                   const char *finish);
    void (*end)(struct buffer *out, const struct openai_head *h, const char *finish,
                const struct request_usage *u);
    /* ... or its end by an error. */
    void (*fail)(struct buffer *out, const struct openai_head *h, int http_status,
                 const char *message, const char *code);
    /* A whole reply, in this order; choices from 0 on. */
    void (*reply_begin)(struct buffer *out, const struct openai_head *h);
    void (*reply_choice)(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const struct openai_message *m, const char *finish);
    /* One of the message's calls, behind those that are there; NULL where `call` is. */
    void (*reply_call)(struct buffer *out, const struct openai_call *call);
    void (*reply_end)(struct buffer *out, const struct openai_head *h, const char *finish,
                      const struct request_usage *u);
    /* A refusal; param and code may be NULL. */
    void (*error)(struct buffer *out, int http_status, const char *message, const char *param,
                  const char *code);
};

extern const struct dialect dialect_openai;
extern const struct dialect dialect_ollama_chat;     /* POST /api/chat */
extern const struct dialect dialect_ollama_generate; /* POST /api/generate */
extern const struct dialect dialect_responses;       /* OpenAI's POST /v1/responses */
extern const struct dialect dialect_messages;        /* Anthropic's POST /v1/messages */
extern const struct dialect dialect_llama;           /* llama-server's POST /completion */
extern const struct dialect dialect_llama_infill;    /* ... and POST /infill */

/* GET /api/tags, and GET /api/ps (`running`), whose rows say how long the context is. */
void ollama_write_tags(struct buffer *out, const struct request_model *models, int n, bool running);

#endif
