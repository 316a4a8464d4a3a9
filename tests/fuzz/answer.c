/* What models write, taken apart into text, reasoning and calls: any bytes, in the pieces that they
 * come in. The first byte chooses the rules, the second the pieces. What is told does not depend on
 * these, and the arguments of a call are a JSON object. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/answer_reader.h"

struct told_answer {
    struct buffer out;
    char kind;
};

static void told_begin(struct told_answer *t, char kind)
{
    if (t->kind != kind || kind == 'C')
        buffer_printf(&t->out, "%c(", kind);
    t->kind = kind;
}

static void on_text(void *ctx, const char *text, size_t n)
{
    struct told_answer *t = ctx;
    told_begin(t, 'T');
    buffer_append(&t->out, text, n);
}

static void on_reasoning(void *ctx, const char *text, size_t n)
{
    struct told_answer *t = ctx;
    told_begin(t, 'R');
    buffer_append(&t->out, text, n);
}

static void on_call(void *ctx, const struct tool_call *call)
{
    struct told_answer *t = ctx;
    json_t *arguments =
        json_loadb(call->arguments, call->n_arguments, JSON_DECODE_INT_AS_REAL, NULL);
    if (!json_is_object(arguments))
        abort();
    json_decref(arguments);
    told_begin(t, 'C');
    buffer_printf(&t->out, "%s", call->name);
    buffer_append(&t->out, call->arguments, call->n_arguments);
}

static struct buffer answer_read(const struct answer_rules *rules, const char *text, size_t n,
                                 size_t piece)
{
    struct told_answer t = {0};
    struct answer_sink sink = {&t, on_text, on_reasoning, on_call};
    struct answer_reader r;
    answer_reader_init(&r, rules);
    for (size_t at = 0; at < n; at += piece)
        answer_reader_push(&r, text + at, n - at < piece ? n - at : piece, &sink);
    answer_reader_finish(&r, &sink);
    answer_reader_free(&r);
    return t.out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char *offered[] = {"f", "weather"};
    static const struct tool_names names = {offered, 2};
    static const char *const sources[] = {
        NULL, "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[func_name1(", "<|channel|>"};
    if (size < 2)
        return 0;
    struct answer_rules rules = {
        .format = tool_format_of(sources[(data[0] & 3) + (data[0] >> 5 & 1) * 2]),
        .names = &names,
        .one_call = data[0] & 4,
        .reasons = data[0] & 8,
        .begun = data[0] & 16};
    const char *text = (const char *)data + 2;
    struct buffer whole = answer_read(&rules, text, size - 2, size),
                  pieces = answer_read(&rules, text, size - 2, 1 + data[1] % 8);
    if (whole.size != pieces.size || (whole.size && memcmp(whole.data, pieces.data, whole.size)))
        abort();
    buffer_free(&whole);
    buffer_free(&pieces);
    return 0;
}
