#include "coordinator/gateway/answer_channels.h"

#include <string.h>

enum { MOST_HEAD_BYTES = 1024 };
static const char recipient[] = "to=functions.";

bool answer_channel_begin(struct answer_reader *r, const struct answer_sink *sink)
{
    static const char *const begins[] = {CHANNEL_HEAD, CHANNEL_START, " to="};
    bool part = false;
    (void)sink;
    r->at = r->from;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        enum answer_match here = answer_match_here(r, begins[i]);
        if (here == MATCH_ALL) {
            answer_move_to(r, ANSWER_HEAD, r->at);
            return true;
        }
        part |= here == MATCH_PART;
    }
    if (!part)
        answer_move_to(r, ANSWER_TEXT, r->at);
    return !part;
}

/* ---- heads ---- */

static const char *word_in(const char *text, size_t n, const char *word)
{
    const char *hit = memmem(text, n, word, strlen(word));
    return hit ? hit + strlen(word) : NULL;
}

/* Whether a text begins with this word, and nothing that goes on with it. */
static bool word_is(const char *text, size_t n, const char *word, size_t of)
{
    return n >= of && memcmp(text, word, of) == 0 &&
           (n == of || text[of] == '<' || answer_is_space(text[of]));
}

/* The function that a head names; NULL: none that is offered. */
static const char *head_callee(const struct answer_reader *r, const char *head, size_t n)
{
    const char *name = word_in(head, n, recipient);
    for (size_t i = 0; name && i < r->rules.names->n; i++) {
        const char *one = r->rules.names->items[i];
        if (word_is(name, n - (size_t)(name - head), one, strlen(one)))
            return one;
    }
    return NULL;
}

static bool head_is_analysis(const char *head, size_t n)
{
    static const char analysis[] = "analysis";
    const char *channel = word_in(head, n, CHANNEL_HEAD);
    return channel && word_is(channel, n - (size_t)(channel - head), analysis, sizeof analysis - 1);
}

bool answer_in_head(struct answer_reader *r, const struct answer_sink *sink)
{
    size_t where;
    (void)sink;
    if (!answer_word_find(r, CHANNEL_BODY, &where)) {
        if (r->held.size - r->from > MOST_HEAD_BYTES)
            answer_move_to(r, ANSWER_TEXT, r->from);
        return r->state == ANSWER_TEXT;
    }
    const char *head = answer_held(r) + r->from;
    r->callee = head_callee(r, head, where - r->from);
    r->thinks = !r->callee && head_is_analysis(head, where - r->from);
    r->addressed = word_in(head, where - r->from, "to=") != NULL;
    answer_move_to(r, r->callee ? ANSWER_CALL : ANSWER_BODY, where + strlen(CHANNEL_BODY));
    r->spoken = false;
    r->kind = VALUE_ARGUMENTS;
    r->depth = 0;
    r->quote = '\0';
    r->escaped = false;
    return true;
}

/* ---- bodies ---- */

static void text_add(const struct answer_sink *sink, const char *text)
{
    sink->text(sink->ctx, text, strlen(text));
}

/* Reasoning that is not split off stands in the text as others write it. */
static void body_tell(struct answer_reader *r, size_t end, const struct answer_sink *sink)
{
    bool splits = r->thinks && r->rules.reasons;
    if (end > r->from && !r->spoken) {
        if (splits && r->reasoned)
            sink->reasoning(sink->ctx, "\n\n", 2);
        else if (!splits && r->gap)
            text_add(sink, "\n\n");
        if (r->thinks && !splits)
            text_add(sink, REASONING_BEGIN);
        r->wrapped = r->thinks && !splits;
        r->reasoned |= splits;
        r->gap |= !splits;
        r->spoken = true;
    }
    if (splits)
        answer_tell_reasoning(r, end, sink);
    else
        answer_tell_text(r, end, sink);
}

static void body_end(struct answer_reader *r, const struct answer_sink *sink)
{
    if (r->wrapped)
        text_add(sink, REASONING_END);
    r->wrapped = false;
}

bool answer_in_body(struct answer_reader *r, const struct answer_sink *sink)
{
    size_t where;
    const char *end = r->addressed ? CHANNEL_CALL : CHANNEL_END;
    bool over = answer_word_find(r, end, &where);
    body_tell(r, where, sink);
    if (!over)
        return false;
    body_end(r, sink);
    answer_move_to(r, ANSWER_START, where + strlen(end));
    return true;
}

/* They are no JSON object: text. */
static bool arguments_reject(struct answer_reader *r)
{
    r->callee = NULL;
    r->at = r->from;
    r->state = ANSWER_BODY;
    return true;
}

bool answer_in_arguments(struct answer_reader *r, const struct answer_sink *sink)
{
    if (r->depth == 0) {
        answer_skip_space(r);
        if (r->at == r->held.size)
            return false;
        if (answer_held(r)[r->at] != '{')
            return arguments_reject(r);
        r->value = r->at++;
        r->depth = 1;
    }
    while (r->at < r->held.size && r->depth > 0)
        if (!answer_value_step(r, answer_held(r)[r->at++]))
            return arguments_reject(r);
    if (r->depth > 0)
        return false;
    struct tool_call call = {r->callee, answer_held(r) + r->value, r->at - r->value};
    if (!tool_arguments_are(call.arguments, call.n_arguments))
        return arguments_reject(r);
    answer_tell_call(r, &call, sink);
    answer_move_to(r, r->rules.one_call ? ANSWER_DONE : ANSWER_AFTER, r->at);
    return true;
}

void answer_channels_finish(struct answer_reader *r, const struct answer_sink *sink)
{
    if (r->state == ANSWER_CALL)
        arguments_reject(r);
    if (r->state == ANSWER_BODY) {
        body_tell(r, r->held.size, sink);
        body_end(r, sink);
    }
}
