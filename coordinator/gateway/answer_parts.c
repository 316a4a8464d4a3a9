#include "coordinator/gateway/answer_parts.h"

#include <string.h>

/* So much white space is held back before what may be a call or the end of reasoning. */
enum { HELD_SPACE = 64 };

bool answer_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

void answer_skip_space(struct answer_reader *r)
{
    while (r->at < r->held.size && answer_is_space(answer_held(r)[r->at]))
        r->at++;
}

enum answer_match answer_match_here(const struct answer_reader *r, const char *word)
{
    size_t n = strlen(word), left = r->held.size - r->at;
    if (memcmp(answer_held(r) + r->at, word, n < left ? n : left) != 0)
        return MATCH_NONE;
    return n <= left ? MATCH_ALL : MATCH_PART;
}

void answer_move_to(struct answer_reader *r, enum answer_state state, size_t at)
{
    r->state = state;
    r->from = r->at = at;
}

static void part_tell(struct answer_reader *r, size_t end,
                      void (*to)(void *ctx, const char *text, size_t n), void *ctx)
{
    if (end > r->from)
        to(ctx, answer_held(r) + r->from, end - r->from);
    r->from = end > r->from ? end : r->from;
}

void answer_tell_text(struct answer_reader *r, size_t end, const struct answer_sink *sink)
{
    part_tell(r, end, sink->text, sink->ctx);
}

size_t answer_space_before(const struct answer_reader *r, size_t end)
{
    size_t least = end - r->from > HELD_SPACE ? end - HELD_SPACE : r->from;
    while (end > least && answer_is_space(answer_held(r)[end - 1]))
        end--;
    return end;
}

bool answer_word_find(struct answer_reader *r, const char *word, size_t *where)
{
    size_t n = strlen(word), end = r->held.size;
    size_t begin = r->at > r->from + n - 1 ? r->at - (n - 1) : r->from;
    const char *hit = end > begin ? memmem(answer_held(r) + begin, end - begin, word, n) : NULL;
    r->at = end;
    if (hit) {
        *where = (size_t)(hit - answer_held(r));
        return true;
    }
    size_t part = n - 1 < end - r->from ? n - 1 : end - r->from;
    while (part > 0 && memcmp(answer_held(r) + end - part, word, part) != 0)
        part--;
    *where = end - part;
    return false;
}

void answer_tell_reasoning(struct answer_reader *r, size_t end, const struct answer_sink *sink)
{
    part_tell(r, end, sink->reasoning, sink->ctx);
}

void answer_tell_call(struct answer_reader *r, const struct tool_call *call,
                      const struct answer_sink *sink)
{
    if (r->rules.one_call && r->n_calls > 0)
        return;
    r->n_calls++;
    sink->call(sink->ctx, call);
}

bool answer_value_step(struct answer_reader *r, char c)
{
    bool python = r->kind == VALUE_PYTHON;
    if (r->quote) {
        r->quote = r->escaped || c != r->quote ? r->quote : '\0';
        r->escaped = !r->escaped && c == '\\';
        return true;
    }
    if (c == '"' || (python && c == '\'')) {
        r->quote = c;
        return true;
    }
    if (c == '{' || c == '[' || (python && c == '('))
        return ++r->depth <= TOOL_CALL_MAX_DEPTH;
    if (c == '}' || c == ']' || (python && c == ')')) {
        r->depth--;
        return true;
    }
    return python || answer_is_space(c) || (c && strchr("\",:+-.0123456789truefalsnE", c));
}
