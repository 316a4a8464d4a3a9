#include "coordinator/gateway/tools_grammar.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/openai_grammar.h"
#include "model/grammar/grammar_source.h"

/* Rows of calls, with the texts and schemas that they borrow. */
struct held_calls {
    struct grammar_call *rows;
    size_t n;
};

/* What a function takes, which is an object; without parameters it takes none. NULL: no memory. */
static json_t *arguments_schema(const json_t *function)
{
    json_t *parameters = json_object_get(function, "parameters");
    if (!parameters || json_is_null(parameters))
        return json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties",
                         0);
    json_t *schema = json_copy(parameters);
    if (schema && json_object_set_new(schema, "type", json_string("object")) < 0) {
        json_decref(schema);
        return NULL;
    }
    return schema;
}

/* {"name": "f", "arguments": and what comes behind. NULL: no memory. */
static char *call_begin(const char *name, const char *arguments)
{
    struct buffer text = {0};
    json_t *quoted = json_string(name);
    char *word = quoted ? json_dumps(quoted, JSON_ENCODE_ANY) : NULL;
    buffer_printf(&text, "{\"name\": %s, \"%s\": ", word ? word : "", arguments);
    char *copy = word && !text.failed ? strdup(buffer_cstr(&text)) : NULL;
    buffer_free(&text);
    free(word);
    json_decref(quoted);
    return copy;
}

static bool call_add(struct held_calls *h, const json_t *function, size_t place,
                     const struct tool_format *f)
{
    struct grammar_call *c = &h->rows[h->n++];
    bool channels = f->syntax == TOOL_CHANNELS;
    const char *name = json_string_value(json_object_get(function, "name"));
    *c = (struct grammar_call){.begin = channels ? strdup(name) : call_begin(name, f->arguments),
                               .schema = arguments_schema(function),
                               .end = channels ? "" : "}",
                               .place = place,
                               .lenient = !json_is_true(json_object_get(function, "strict"))};
    return c->begin && c->schema;
}

static bool calls_fill(struct held_calls *h, const struct openai_body *b,
                       const struct tool_format *f)
{
    size_t n = json_array_size(b->tools);
    h->rows = calloc(n + 1, sizeof *h->rows);
    bool fine = h->rows != NULL;
    for (size_t i = 0; fine && i < n; i++) {
        const json_t *function = json_object_get(json_array_get(b->tools, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (!b->forced_name || strcmp(name, b->forced_name) == 0)
            fine = call_add(h, function, i, f);
    }
    return fine;
}

static void calls_free(struct held_calls *h)
{
    for (size_t i = 0; i < h->n; i++) {
        free((char *)h->rows[i].begin);
        json_decref((json_t *)h->rows[i].schema);
    }
    free(h->rows);
}

int tools_grammar_make(const struct openai_body *b, const struct tool_format *f, bool reasons,
                       bool begun, struct pack_span *out, const char **param, struct err *e)
{
    struct held_calls h = {0};
    struct buffer wire = {0};
    reasons &= f->syntax != TOOL_CHANNELS; /* which say themselves what is reasoning */
    int rc = calls_fill(&h, b, f) ? 0 : err_set(e, HP_ENOMEM, "out of memory for a request");
    struct grammar_calls calls = {
        .trigger = f->begin,
        .open = f->list ? "[" : "",
        .between = f->list    ? ", "
                   : f->whole ? "; "
                              : NULL,
        .close = f->list               ? "]"
                 : f->end && !f->whole ? f->end
                                       : "",
        .calls = h.rows,
        .n_calls = h.n,
        .whole = f->whole,
        .python = f->syntax == TOOL_PYTHON,
        .channels = f->syntax == TOOL_CHANNELS,
        .required = b->must_call,
        .parallel = !b->one_call,
        .reasoning_begin = reasons ? REASONING_BEGIN : NULL,
        .reasoning_end = reasons ? REASONING_END : NULL,
        .reasoning_begun = begun,
    };
    *param = "tools";
    if (rc == 0 && b->formats_text) {
        calls.text_is_json = true;
        rc = openai_grammar_format(json_object_get(b->root, "response_format"), &calls.text_schema,
                                   &calls.text_field, e);
        *param = rc < 0 ? "response_format" : *param;
    }
    if (rc == 0)
        rc = grammar_source_calls(&calls, "tools", &wire, e);
    if (rc < 0 && calls.text_field && strncmp(e->text, "response_format", 15) == 0)
        *param = "response_format";
    calls_free(&h);
    if (rc < 0) {
        buffer_free(&wire);
        if (e && rc != HP_ENOMEM) /* whatever it is, the request is what has to change */
            e->code = HP_EINVAL;
        return rc == HP_ENOMEM ? rc : HP_EINVAL;
    }
    *param = NULL;
    *out = (struct pack_span){wire.data, wire.size};
    return 0;
}
