/* Calls of tools as Python writes them: [f(a=1), g(b="x")], or f(a=1) alone, with literals for
 * arguments; `f.call(..)` is f (LLaMA 3's built-in tools). Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_TOOL_PYTHON_H
#define HP_COORDINATOR_GATEWAY_TOOL_PYTHON_H

#include "coordinator/gateway/tool_call.h"

enum tool_python_head {
    TOOL_PYTHON_NONE, /* no call begins so */
    TOOL_PYTHON_PART, /* one may: more has to come */
    TOOL_PYTHON_CALL, /* up to its parenthesis */
};

/* Whether calls begin at `text`: a list of them, or with `bare` one alone. Looks at as many bytes
 * as the longest name has, and some. */
enum tool_python_head tool_python_begins(const struct tool_names *names, const char *text, size_t n,
                                         bool bare);

/* Tells the calls, their arguments as JSON, in order: all of them, or none. How many; 0: the text
 * is something else, names a function that is not offered, or has arguments that are no literals
 * (also where memory ran out: the text stays text). */
size_t tool_python_read(const struct tool_names *names, const char *text, size_t size,
                        void (*each)(void *ctx, const struct tool_call *call), void *ctx);

#endif
