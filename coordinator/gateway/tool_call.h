/* Calls of tools, as JSON that a model wrote (as Python: tool_python.h). Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_TOOL_CALL_H
#define HP_COORDINATOR_GATEWAY_TOOL_CALL_H

#include <stddef.h>

#include "coordinator/gateway/tool_format.h"

/* The functions that a request offers. */
struct tool_names {
    char **items;
    size_t n;
};

/* Borrowed for the length of a callback. */
struct tool_call {
    const char *name;
    const char *arguments; /* a JSON object as the model wrote it, or "{}" */
    size_t n_arguments;
};

enum { TOOL_CALL_MAX_DEPTH = 64 };

/* Whether these bytes are a JSON object. */
bool tool_arguments_are(const char *text, size_t size);

/* Tells the calls of one JSON value, in order: all of them, or none. How many; 0: the text is not
 * JSON, is no call in this format, or names a function that is not offered (also where memory ran
 * out: the text stays text). `size` bytes, ended by a NUL. */
size_t tool_calls_read(const struct tool_format *f, const struct tool_names *names,
                       const char *text, size_t size,
                       void (*each)(void *ctx, const struct tool_call *call), void *ctx);

#endif
