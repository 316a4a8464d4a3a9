#include "coordinator/gateway/answer_reader.h"

/* So much white space is held back before what may be a call or the end of reasoning. */
enum { HELD_SPACE = 64 };

void answer_reader_init(struct answer_reader *r, const struct answer_rules *rules)
{
    *r = (struct answer_reader){.rules = *rules};
    bool looks = rules->reasons || (rules->format && rules->format->whole);
    r->state = rules->reasons && rules->begun ? ANSWER_REASONING
               : looks                        ? ANSWER_START
                                              : ANSWER_TEXT;
}

void answer_reader_free(struct answer_reader *r)
{
    buffer_free(&r->held);
}

/* ---- bytes ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static const char *held_text(const struct answer_reader *r)
{
    return (const char *)r->held.data;
}

static void skip_space(struct answer_reader *r)
{
    while (r->at < r->held.size && is_space(held_text(r)[r->at]))
        r->at++;
}

enum word_match { MATCH_NONE, MATCH_PART, MATCH_ALL };

/* Whether `word` stands where the reader looks; part of it: at the end of what has come. */
static enum word_match match_here(const struct answer_reader *r, const char *word)
{
    size_t n = strlen(word), left = r->held.size - r->at;
    if (memcmp(held_text(r) + r->at, word, n < left ? n : left) != 0)
        return MATCH_NONE;
    return n <= left ? MATCH_ALL : MATCH_PART;
}

static void move_to(struct answer_reader *r, enum answer_state state, size_t at)
{
    r->state = state;
    r->from = r->at = at;
}

static void part_tell(struct answer_reader *r, size_t end,
                      void (*to)(void *ctx, const char *text, size_t n), void *ctx)
{
    if (end > r->from)
        to(ctx, held_text(r) + r->from, end - r->from);
    r->from = end > r->from ? end : r->from;
}

static void tell_text(struct answer_reader *r, size_t end, const struct answer_sink *sink)
{
    part_tell(r, end, sink->text, sink->ctx);
}

/* Where white space before `end` begins, of what is not told. */
static size_t space_before(const struct answer_reader *r, size_t end)
{
    size_t least = end - r->from > HELD_SPACE ? end - HELD_SPACE : r->from;
    while (end > least && is_space(held_text(r)[end - 1]))
        end--;
    return end;
}

/* Looks for a word: true, and *where. Else *where is up to where nothing of it can be, and what was
 * looked at is not looked at again. */
static bool word_find(struct answer_reader *r, const char *word, size_t *where)
{
    size_t n = strlen(word), end = r->held.size;
    size_t begin = r->at > r->from + n - 1 ? r->at - (n - 1) : r->from;
    const char *hit = end > begin ? memmem(held_text(r) + begin, end - begin, word, n) : NULL;
    r->at = end;
    if (hit) {
        *where = (size_t)(hit - held_text(r));
        return true;
    }
    size_t part = n - 1 < end - r->from ? n - 1 : end - r->from;
    while (part > 0 && memcmp(held_text(r) + end - part, word, part) != 0)
        part--;
    *where = end - part;
    return false;
}

/* ---- states: each says whether there is more to do with what has come ---- */

static void call_begin(struct answer_reader *r, size_t at)
{
    r->state = ANSWER_CALL;
    r->at = r->value = at;
    r->depth = 0;
    r->in_string = r->escaped = false;
}

static bool in_start(struct answer_reader *r)
{
    const struct tool_format *f = r->rules.format;
    skip_space(r);
    if (r->at == r->held.size)
        return false;
    enum word_match thinks =
        r->rules.reasons && !r->reasoned ? match_here(r, REASONING_BEGIN) : MATCH_NONE;
    enum word_match calls = f && f->whole ? match_here(r, f->begin) : MATCH_NONE;
    if (thinks == MATCH_ALL) {
        move_to(r, ANSWER_REASONING, r->at + strlen(REASONING_BEGIN));
    } else if (calls == MATCH_ALL) {
        r->from = r->at + strlen(f->begin);
        call_begin(r, r->from);
    } else if (thinks == MATCH_PART || calls == MATCH_PART) {
        return false;
    } else if (f && f->whole && held_text(r)[r->at] == '{') {
        r->from = r->reasoned ? r->at : r->from;
        call_begin(r, r->at);
    } else {
        move_to(r, ANSWER_TEXT, r->reasoned ? r->at : r->from);
    }
    return true;
}

static bool in_reasoning(struct answer_reader *r, const struct answer_sink *sink)
{
    size_t where;
    while (!r->spoken && r->from < r->held.size && is_space(held_text(r)[r->from]))
        r->from++;
    r->at = r->at > r->from ? r->at : r->from;
    bool over = word_find(r, REASONING_END, &where);
    size_t end = space_before(r, where);
    r->spoken |= end > r->from;
    part_tell(r, end, sink->reasoning, sink->ctx);
    if (!over)
        return false;
    r->reasoned = true;
    move_to(r, ANSWER_START, where + strlen(REASONING_END));
    return true;
}

static bool in_text(struct answer_reader *r, const struct answer_sink *sink)
{
    const struct tool_format *f = r->rules.format;
    size_t where;
    if (!f || f->whole) {
        tell_text(r, r->held.size, sink);
        r->at = r->from;
        return false;
    }
    bool found = word_find(r, f->begin, &where);
    tell_text(r, space_before(r, where), sink);
    if (found)
        call_begin(r, where + strlen(f->begin));
    return found;
}

/* What was looked at is no call. What follows is looked at as text. */
static bool call_reject(struct answer_reader *r, const struct answer_sink *sink)
{
    size_t at = r->at;
    tell_text(r, at, sink);
    move_to(r, ANSWER_TEXT, at);
    return true;
}

struct call_teller {
    struct answer_reader *reader;
    const struct answer_sink *sink;
};

static void tell_call(void *ctx, const struct tool_call *call)
{
    struct call_teller *t = ctx;
    if (t->reader->rules.one_call && t->reader->n_calls > 0)
        return;
    t->reader->n_calls++;
    t->sink->call(t->sink->ctx, call);
}

/* The calls of the JSON in [value, end), told if there is a sink. */
static size_t calls_in(struct answer_reader *r, size_t value, size_t end,
                       const struct answer_sink *sink)
{
    struct call_teller teller = {r, sink};
    char *text = (char *)r->held.data;
    char kept = '\0';
    if (end == r->held.size)
        buffer_cstr(&r->held), text = (char *)r->held.data;
    else
        kept = text[end], text[end] = '\0';
    size_t n = r->held.failed ? 0
                              : tool_calls_read(r->rules.format, r->rules.names, text + value,
                                                end - value, sink ? tell_call : NULL, &teller);
    if (end < r->held.size)
        text[end] = kept;
    return n;
}

static bool call_complete(struct answer_reader *r, const struct answer_sink *sink)
{
    bool whole = r->rules.format->whole; /* told when the answer is over */
    if (!calls_in(r, r->value, r->at, whole ? NULL : sink))
        return call_reject(r, sink);
    r->state = ANSWER_AFTER;
    r->ended = !r->rules.format->end;
    if (!whole)
        r->from = r->at;
    if (!whole && r->rules.one_call)
        r->state = ANSWER_DONE;
    return true;
}

/* Takes a byte of JSON that has begun: false where it cannot stand there. */
static bool json_step(struct answer_reader *r, char c)
{
    if (r->in_string) {
        r->in_string = r->escaped || c != '"';
        r->escaped = !r->escaped && c == '\\';
        return true;
    }
    r->in_string = c == '"';
    if (c == '{' || c == '[')
        return ++r->depth <= TOOL_CALL_MAX_DEPTH;
    if (c == '}' || c == ']') {
        r->depth--;
        return true;
    }
    return is_space(c) || (c && strchr("\",:+-.0123456789truefalsnE", c));
}

static bool in_call(struct answer_reader *r, const struct answer_sink *sink)
{
    if (r->depth == 0) {
        skip_space(r);
        if (r->at == r->held.size)
            return false;
        if (held_text(r)[r->at] != (r->rules.format->list ? '[' : '{'))
            return call_reject(r, sink);
        r->value = r->at++;
        r->depth = 1;
    }
    while (r->at < r->held.size) {
        if (!json_step(r, held_text(r)[r->at]))
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
    while (r->at < r->held.size && (is_space(held_text(r)[r->at]) || held_text(r)[r->at] == ';'))
        r->at++;
    if (r->at == r->held.size)
        return false;
    if (held_text(r)[r->at] != '{')
        return call_reject(r, sink);
    call_begin(r, r->at);
    return true;
}

static bool in_after(struct answer_reader *r, const struct answer_sink *sink)
{
    const char *end = r->rules.format->end;
    if (r->rules.format->whole)
        return after_whole(r, sink);
    skip_space(r);
    if (r->at == r->held.size)
        return false;
    enum word_match ends = r->ended ? MATCH_NONE : match_here(r, end);
    if (ends == MATCH_PART)
        return false;
    if (ends == MATCH_ALL) {
        move_to(r, ANSWER_AFTER, r->at + strlen(end));
        r->ended = true;
    } else {
        move_to(r, ANSWER_TEXT, r->at);
    }
    return true;
}

static bool answer_step(struct answer_reader *r, const struct answer_sink *sink)
{
    switch (r->state) {
    case ANSWER_START: return in_start(r);
    case ANSWER_REASONING: return in_reasoning(r, sink);
    case ANSWER_TEXT: return in_text(r, sink);
    case ANSWER_CALL: return in_call(r, sink);
    case ANSWER_AFTER: return in_after(r, sink);
    case ANSWER_DONE: r->from = r->at = r->held.size; return false;
    }
    return false;
}

/* Drops what was told. */
static void held_trim(struct answer_reader *r)
{
    size_t n = r->from;
    if (n == 0)
        return;
    memmove(r->held.data, r->held.data + n, r->held.size - n);
    r->held.size -= n;
    r->at -= r->at < n ? r->at : n;
    r->value -= r->value < n ? r->value : n;
    r->from = 0;
}

void answer_reader_push(struct answer_reader *r, const char *text, size_t n,
                        const struct answer_sink *sink)
{
    if (!r->rules.reasons && !r->rules.format) { /* nothing is looked for, nothing held */
        sink->text(sink->ctx, text, n);
        return;
    }
    buffer_append(&r->held, text, n);
    while (!r->held.failed && r->from < r->held.size && answer_step(r, sink))
        ;
    held_trim(r);
}

/* ---- the end ---- */

/* The JSON values of an answer that is calls and nothing else, in order. */
static void tell_whole(struct answer_reader *r, const struct answer_sink *sink)
{
    size_t end = r->held.size;
    r->at = r->from;
    while (r->at < end) {
        size_t value = r->at;
        r->depth = 0;
        r->in_string = r->escaped = false;
        if (held_text(r)[r->at] != '{') {
            r->at++; /* what stands between them */
            continue;
        }
        do
            json_step(r, held_text(r)[r->at++]);
        while (r->depth > 0 && r->at < end);
        calls_in(r, value, r->at, sink);
    }
    r->from = end;
}

void answer_reader_finish(struct answer_reader *r, const struct answer_sink *sink)
{
    size_t end = r->held.size;
    switch (r->state) {
    case ANSWER_START:
        if (r->reasoned && r->at == end)
            break;
        __attribute__((fallthrough));
    case ANSWER_TEXT:
    case ANSWER_CALL: tell_text(r, end, sink); break;
    case ANSWER_REASONING:
        r->at = end;
        part_tell(r, space_before(r, end), sink->reasoning, sink->ctx);
        break;
    case ANSWER_AFTER:
        if (r->rules.format->whole)
            tell_whole(r, sink);
        break;
    case ANSWER_DONE: break;
    }
    r->state = ANSWER_DONE;
    r->from = r->held.size;
    held_trim(r);
}
