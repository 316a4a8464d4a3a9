#include "coordinator/gateway/answer_calls.h"

#include <string.h>

#include "coordinator/gateway/tool_python.h"

void answer_call_begin(struct answer_reader *r, size_t at, bool marked)
{
    r->state = ANSWER_CALL;
    r->at = r->value = at;
    r->depth = 0;
    r->quote = '\0';
    r->escaped = false;
    r->marked = marked;
}

/* Whether calls begin here as Python has them. */
static enum answer_match python_here(const struct answer_reader *r)
{
    static const enum answer_match as[] = {MATCH_NONE, MATCH_PART, MATCH_ALL};
    return as[tool_python_begins(r->rules.names, answer_held(r) + r->at, r->held.size - r->at,
                                 r->marked)];
}

enum answer_match answer_call_here(const struct answer_reader *r)
{
    const struct tool_format *f = r->rules.format;
    if (answer_held(r)[r->at] == '{')
        return MATCH_ALL;
    return f->syntax == TOOL_PYTHON && answer_held(r)[r->at] == '[' ? python_here(r) : MATCH_NONE;
}

/* What was looked at is no call. What follows is looked at as text. */
static bool call_reject(struct answer_reader *r, const struct answer_sink *sink)
{
    size_t at = r->at;
    answer_tell_text(r, at, sink);
    answer_move_to(r, ANSWER_TEXT, at);
    r->calls.size = 0;
    return true;
}

/* ---- what was found ---- */

struct call_teller {
    struct answer_reader *reader;
    const struct answer_sink *sink;
};

static void call_tell(void *ctx, const struct tool_call *call)
{
    struct call_teller *t = ctx;
    answer_tell_call(t->reader, call, t->sink);
}

struct held_call {
    size_t n_name, n_arguments; /* with its NUL; without */
};

static void call_hold(void *ctx, const struct tool_call *call)
{
    struct call_teller *t = ctx;
    struct held_call h = {strlen(call->name) + 1, call->n_arguments};
    buffer_append(&t->reader->calls, &h, sizeof h);
    buffer_append(&t->reader->calls, call->name, h.n_name);
    buffer_append(&t->reader->calls, call->arguments, h.n_arguments);
    t->reader->held.failed |= t->reader->calls.failed;
}

void answer_calls_finish(struct answer_reader *r, const struct answer_sink *sink)
{
    const char *all = (const char *)r->calls.data;
    for (size_t at = 0; at < r->calls.size && !r->calls.failed;) {
        struct held_call h;
        memcpy(&h, all + at, sizeof h);
        at += sizeof h;
        struct tool_call call = {all + at, all + at + h.n_name, h.n_arguments};
        answer_tell_call(r, &call, sink);
        at += h.n_name + h.n_arguments;
    }
    r->calls.size = 0;
}

/* The calls of the text in [value, at), told or held. */
static size_t calls_in(struct answer_reader *r, const struct answer_sink *sink)
{
    struct call_teller teller = {r, sink};
    void (*each)(void *, const struct tool_call *) = r->rules.format->whole ? call_hold : call_tell;
    size_t end = r->at, n;
    if (r->kind == VALUE_PYTHON)
        return tool_python_read(r->rules.names, answer_held(r) + r->value, end - r->value, each,
                                &teller);
    if (r->held.failed)
        return 0;
    buffer_cstr(&r->held); /* a NUL behind all of it, and for now one behind the call */
    char *text = (char *)r->held.data, behind = text[end];
    text[end] = '\0';
    n = tool_calls_read(r->rules.format, r->rules.names, text + r->value, end - r->value, each,
                        &teller);
    text[end] = behind;
    return n;
}

static bool call_complete(struct answer_reader *r, const struct answer_sink *sink)
{
    bool whole = r->rules.format->whole; /* told when the answer is over */
    if (!calls_in(r, sink))
        return call_reject(r, sink);
    r->state = ANSWER_AFTER;
    r->ended = !r->rules.format->end;
    if (!whole)
        r->from = r->at;
    if (!whole && r->rules.one_call)
        r->state = ANSWER_DONE;
    return true;
}

/* ---- states ---- */

/* The first byte of a call's text: MATCH_ALL, and it has begun. */
static enum answer_match value_begin(struct answer_reader *r)
{
    const struct tool_format *f = r->rules.format;
    char first = answer_held(r)[r->at];
    enum answer_match here = first == (f->list ? '[' : '{') ? MATCH_ALL : MATCH_NONE;
    r->kind = VALUE_JSON;
    if (here == MATCH_NONE && f->syntax == TOOL_PYTHON) {
        r->kind = VALUE_PYTHON;
        here = python_here(r);
    }
    if (here != MATCH_ALL)
        return here;
    r->value = r->at;
    while (r->at < r->held.size && r->depth == 0) /* behind a name, up to its parenthesis */
        answer_value_step(r, answer_held(r)[r->at++]);
    return r->depth ? MATCH_ALL : MATCH_NONE;
}

bool answer_in_call(struct answer_reader *r, const struct answer_sink *sink)
{
    if (r->depth == 0) {
        answer_skip_space(r);
        if (r->at == r->held.size)
            return false;
        enum answer_match here = value_begin(r);
        if (here != MATCH_ALL)
            return here == MATCH_NONE && call_reject(r, sink);
    }
    while (r->at < r->held.size) {
        if (!answer_value_step(r, answer_held(r)[r->at]))
            return call_reject(r, sink);
        r->at++;
        if (r->depth == 0)
            return call_complete(r, sink);
    }
    return false;
}

/* Where calls are the whole answer, nothing but more of them may follow. */
static bool after_whole(struct answer_reader *r, const struct answer_sink *sink)
{
    const struct tool_format *f = r->rules.format;
    while (r->at < r->held.size &&
           (answer_is_space(answer_held(r)[r->at]) || answer_held(r)[r->at] == ';'))
        r->at++;
    if (r->at == r->held.size)
        return false;
    enum answer_match ends = f->end ? answer_match_here(r, f->end) : MATCH_NONE,
                      calls = answer_call_here(r);
    if (ends == MATCH_ALL)
        r->at += strlen(f->end);
    else if (ends == MATCH_PART)
        return false;
    else if (calls == MATCH_NONE && (!r->marked || f->syntax != TOOL_PYTHON))
        return call_reject(r, sink);
    else
        answer_call_begin(r, r->at, r->marked);
    return true;
}

bool answer_after_call(struct answer_reader *r, const struct answer_sink *sink)
{
    const char *end = r->rules.format->end;
    if (r->rules.format->whole)
        return after_whole(r, sink);
    answer_skip_space(r);
    if (r->at == r->held.size)
        return false;
    enum answer_match ends = r->ended ? MATCH_NONE : answer_match_here(r, end);
    if (ends == MATCH_PART)
        return false;
    if (ends == MATCH_ALL) {
        answer_move_to(r, ANSWER_AFTER, r->at + strlen(end));
        r->ended = true;
    } else {
        answer_move_to(r, ANSWER_TEXT, r->at);
    }
    return true;
}
