/* How models write calls of tools: a row each. Which one a model speaks is told by the text of its
 * chat template. Source: the templates that the models are published with. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_TOOL_FORMAT_H
#define HP_COORDINATOR_GATEWAY_TOOL_FORMAT_H

#include <stdbool.h>

enum tool_syntax {
    TOOL_JSON,     /* {"name": "f", "arguments": {..}} between marks */
    TOOL_PYTHON,   /* the same, or as Python has it: [f(a=1), g(b="x")] */
    TOOL_CHANNELS, /* all of an answer is messages, each on a channel; a call is one with a
                      recipient (gpt-oss: https://cookbook.openai.com/articles/openai-harmony) */
};

struct tool_format {
    const char *name;
    enum tool_syntax syntax;
    const char *signs[2];  /* a template that has one of them speaks it ... */
    const char *foreign;   /* ... unless it has this, too; NULL: nothing */
    const char *begin;     /* what stands before the calls */
    const char *end;       /* what stands behind each, or behind all; NULL: nothing */
    const char *arguments; /* the member of a call that holds them */
    bool list;             /* calls stand in an array */
    bool whole;            /* calls are the whole answer, and `begin` may be missing */
    bool short_ids;        /* its template takes ids of nine letters and digits alone */
};

/* Marks of TOOL_CHANNELS. */
#define CHANNEL_HEAD "<|channel|>"
#define CHANNEL_START "<|start|>"
#define CHANNEL_BODY "<|message|>"
#define CHANNEL_END "<|end|>"
#define CHANNEL_CALL "<|call|>"

/* NULL: none that is known; `source` may be NULL. */
const struct tool_format *tool_format_of(const char *source);

/* What reasoning stands between, and whether a template knows of it. */
#define REASONING_BEGIN "<think>"
#define REASONING_END "</think>"
bool template_knows_reasoning(const char *source);

#endif
