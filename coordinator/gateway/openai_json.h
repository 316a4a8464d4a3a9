/* Replies in OpenAI's shapes, appended to a buffer. No tree, no I/O; with room in the buffer
 * nothing is allocated, so a stream's tokens cost none. */
#ifndef HP_COORDINATOR_GATEWAY_OPENAI_JSON_H
#define HP_COORDINATOR_GATEWAY_OPENAI_JSON_H

#include "common/bytes.h"
#include "coordinator/gateway/answer_scores.h"
#include "coordinator/requests.h"

struct dialect;     /* dialect.h */
struct openai_body; /* openai_body.h */

/* Where a stream of one choice is whose answer stands in blocks. */
struct answer_blocks {
    enum { BLOCK_NONE, BLOCK_TEXT, BLOCK_REASONING, BLOCK_CALL } open;
    uint32_t n; /* that were begun */
    /* Of Responses: events so far; the text of the block that is open; blocks that are over. */
    uint64_t events;
    struct buffer said, items;
};

/* What stands in every chunk of a reply. */
struct openai_head {
    const struct dialect *dialect;
    char id[40]; /* "chatcmpl-..." */
    int64_t created_s;
    const char *model;
    bool chat, include_usage;
    uint64_t prompt_tokens;
    struct answer_blocks *blocks; /* for its dialect to change */
    /* Of the choice that is told of: the stop string that ended it (NULL: none did), whether an end
     * of a line stands in it, and what it took so far. */
    const char *stop;
    bool has_line;
    const struct request_usage *usage;
    bool tells_timings;             /* with each piece of text, */
    bool tells_usage;               /* ... and tokens so far, where include_usage is */
    const struct openai_body *body; /* what was asked for; NULL: nothing yet */
};

/* A call of a function. */
struct openai_call {
    uint32_t index; /* among the calls of its choice */
    const char *id, *name;
    const char *arguments; /* JSON, n_arguments bytes */
    size_t n_arguments;
};

/* A whole answer. */
struct openai_message {
    const char *text;
    size_t n;
    const char *reasoning; /* n_reasoning bytes; 0: none */
    size_t n_reasoning;
    const char *calls; /* the dialect's reply_call of each, n_calls bytes; 0: none */
    size_t n_calls;
    struct answer_scores *scores; /* of its tokens, which are taken */
};

/* `{"error": ...}`; param and code may be NULL. */
void openai_json_error(struct buffer *out, int http_status, const char *message, const char *param,
                       const char *code);

/* Events of a stream, with "data: " and the empty line; each is of one choice. */
void openai_event_role(struct buffer *out, const struct openai_head *h, uint32_t index);
void openai_event_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                       const char *text, size_t n);
void openai_event_scored(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const char *text, size_t n, struct answer_scores *scores);
void openai_event_reasoning(struct buffer *out, const struct openai_head *h, uint32_t index,
                            const char *text, size_t n);
void openai_event_call(struct buffer *out, const struct openai_head *h, uint32_t index,
                       const struct openai_call *call);
void openai_event_finish(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const char *finish);
void openai_event_usage(struct buffer *out, const struct openai_head *h,
                        const struct request_usage *u);
void openai_event_error(struct buffer *out, int http_status, const char *message, const char *code);
void openai_event_done(struct buffer *out);

/* The whole reply, in this order; choices from 0 on. */
void openai_json_begin(struct buffer *out, const struct openai_head *h);
void openai_json_choice(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const struct openai_message *m, const char *finish);
/* One of m->calls, behind those that are there. */
void openai_json_call(struct buffer *out, const struct openai_call *call);
void openai_json_end(struct buffer *out, const struct request_usage *u);

#endif
