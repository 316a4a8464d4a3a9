/* What an answer is made of, told while its text comes: reasoning, text, and calls of tools. A call
 * is told when it is whole; what begins like one and is none stays text. Each byte is looked at a
 * few times at most, whatever comes. No I/O; one thread at a time. */
#ifndef HP_COORDINATOR_GATEWAY_ANSWER_READER_H
#define HP_COORDINATOR_GATEWAY_ANSWER_READER_H

#include "common/bytes.h"
#include "coordinator/gateway/tool_call.h"

struct answer_sink {
    void *ctx;
    void (*text)(void *ctx, const char *text, size_t n);
    void (*reasoning)(void *ctx, const char *text, size_t n);
    void (*call)(void *ctx, const struct tool_call *call);
};

/* What is looked for in an answer. */
struct answer_rules {
    const struct tool_format *format; /* NULL: no calls */
    const struct tool_names *names;   /* of `format`; borrowed */
    bool one_call;                    /* what follows the first call is dropped */
    bool reasons;                     /* reasoning is split off */
    bool begun;                       /* the prompt's end began the reasoning */
};

enum answer_state {
    ANSWER_START,     /* nothing but white space has come, or none since the reasoning */
    ANSWER_REASONING, /* until its end */
    ANSWER_TEXT,
    ANSWER_CALL,  /* in, or before, a call (answer_calls.h) */
    ANSWER_AFTER, /* behind a call */
    ANSWER_HEAD,  /* of a message on a channel (answer_channels.h): up to its body */
    ANSWER_BODY,  /* text or reasoning of one */
    ANSWER_DONE   /* the one call was told */
};

/* What stands where a call may: its text goes to its last closing bracket. */
enum answer_value {
    VALUE_JSON,
    VALUE_PYTHON,    /* tool_python.h */
    VALUE_ARGUMENTS, /* JSON, of the function `callee` */
};

struct answer_reader {
    struct answer_rules rules;
    enum answer_state state;
    struct buffer held; /* what is not told yet; `failed`: some of it is missing */
    size_t from, at;    /* of `held`: what is told, what was looked at */
    size_t value;       /* of `held`: where a call's text begins */
    enum answer_value kind;
    size_t depth; /* of this text, so far; 0: it has not begun */
    char quote;   /* of the string that it is in; '\0': it is in none */
    bool escaped;
    bool marked;         /* the mark of calls stood before it */
    struct buffer calls; /* told when the answer is over, if nothing else comes: each a held_call,
                            its name and its arguments */
    const char *callee;  /* one of the names */
    bool thinks;         /* the body is reasoning */
    bool addressed;      /* its head names a recipient: it ends as calls do */
    bool wrapped;        /* reasoning in the text has begun, and not ended */
    bool gap;            /* a body has been told: the next is set off */
    bool reasoned;       /* reasoning has ended: white space behind it is dropped */
    bool spoken;         /* of this reasoning something was told */
    bool ended;          /* behind a call, its end was seen */
    size_t n_calls;
};

/* Whether reasoning is split off at all, and whether what comes now is such. */
bool answer_may_reason(const struct answer_reader *r);
bool answer_reasons(const struct answer_reader *r);
/* The rules are copied; what they point to outlives the reader. */
void answer_reader_init(struct answer_reader *r, const struct answer_rules *rules);
void answer_reader_free(struct answer_reader *r);
/* More of the answer; what is clear now is told. */
void answer_reader_push(struct answer_reader *r, const char *text, size_t n,
                        const struct answer_sink *sink);
/* Nothing more comes: the rest is told. */
void answer_reader_finish(struct answer_reader *r, const struct answer_sink *sink);

#endif
