#include "coordinator/gateway/tool_format.h"

#include <stddef.h>
#include <string.h>

/* The first that fits: templates of derived models keep the words of their base. `<function=` is
 * Qwen3-Coder's and `<arg_key>` GLM's, which put no JSON between these marks; `[ARGS]` is that of
 * Mistral's from 2025 on. */
static const struct tool_format formats[] = {
    {.name = "gpt-oss", .syntax = TOOL_CHANNELS, .signs = {CHANNEL_HEAD}, .begin = CHANNEL_HEAD},
    {.name = "hermes",
     .signs = {"<tool_call>"},
     .foreign = "<function=",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .arguments = "arguments"},
    {.name = "mistral",
     .signs = {"[TOOL_CALLS]"},
     .foreign = "[ARGS]",
     .begin = "[TOOL_CALLS]",
     .arguments = "arguments",
     .list = true,
     .short_ids = true},
    {.name = "pythonic",
     .syntax = TOOL_PYTHON,
     .signs = {"[func_name1("},
     .begin = "<|python_start|>",
     .end = "<|python_end|>",
     .arguments = "parameters",
     .whole = true},
    {.name = "llama3",
     .syntax = TOOL_PYTHON,
     .signs = {"<|python_tag|>", "\"parameters\": dictionary of argument name"},
     .begin = "<|python_tag|>",
     .arguments = "parameters",
     .whole = true},
};

static bool source_has(const char *source, const char *word)
{
    return word && strstr(source, word) != NULL;
}

const struct tool_format *tool_format_of(const char *source)
{
    if (!source || source_has(source, "<arg_key>"))
        return NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const struct tool_format *f = &formats[i];
        if (source_has(source, f->signs[0]) || source_has(source, f->signs[1]))
            return source_has(source, f->foreign) ? NULL : f;
    }
    return NULL;
}

bool template_knows_reasoning(const char *source)
{
    return source && (source_has(source, REASONING_END) || source_has(source, CHANNEL_HEAD));
}
