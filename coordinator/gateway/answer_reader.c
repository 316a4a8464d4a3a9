#include "coordinator/gateway/answer_reader.h"

#include <string.h>

#include "coordinator/gateway/answer_calls.h"
#include "coordinator/gateway/answer_channels.h"

static bool has_channels(const struct answer_reader *r)
{
    return r->rules.format && r->rules.format->syntax == TOOL_CHANNELS;
}

void answer_reader_init(struct answer_reader *r, const struct answer_rules *rules)
{
    *r = (struct answer_reader){.rules = *rules};
    bool looks = rules->reasons || has_channels(r) || (rules->format && rules->format->whole);
    r->state = rules->reasons && rules->begun && !has_channels(r) ? ANSWER_REASONING
               : looks                                            ? ANSWER_START
                                                                  : ANSWER_TEXT;
}

bool answer_may_reason(const struct answer_reader *r)
{
    return r->rules.reasons || has_channels(r);
}

bool answer_reasons(const struct answer_reader *r)
{
    return r->state == ANSWER_REASONING || (r->state == ANSWER_BODY && r->thinks);
}

void answer_reader_free(struct answer_reader *r)
{
    buffer_free(&r->held);
    buffer_free(&r->calls);
}

/* ---- states: each says whether there is more to do with what has come ---- */

static bool in_start(struct answer_reader *r)
{
    const struct tool_format *f = r->rules.format;
    answer_skip_space(r);
    if (r->at == r->held.size)
        return false;
    enum answer_match thinks =
        r->rules.reasons && !r->reasoned ? answer_match_here(r, REASONING_BEGIN) : MATCH_NONE;
    enum answer_match calls = f && f->whole ? answer_match_here(r, f->begin) : MATCH_NONE;
    enum answer_match bare = f && f->whole ? answer_call_here(r) : MATCH_NONE;
    if (thinks == MATCH_ALL) {
        answer_move_to(r, ANSWER_REASONING, r->at + strlen(REASONING_BEGIN));
    } else if (calls == MATCH_ALL) {
        r->from = r->at + strlen(f->begin);
        answer_call_begin(r, r->from, true);
    } else if (thinks == MATCH_PART || calls == MATCH_PART || bare == MATCH_PART) {
        return false;
    } else if (bare == MATCH_ALL) {
        r->from = r->reasoned ? r->at : r->from;
        answer_call_begin(r, r->at, false);
    } else {
        answer_move_to(r, ANSWER_TEXT, r->reasoned ? r->at : r->from);
    }
    return true;
}

static bool in_reasoning(struct answer_reader *r, const struct answer_sink *sink)
{
    size_t where;
    while (!r->spoken && r->from < r->held.size && answer_is_space(answer_held(r)[r->from]))
        r->from++;
    r->at = r->at > r->from ? r->at : r->from;
    bool over = answer_word_find(r, REASONING_END, &where);
    size_t end = answer_space_before(r, where);
    r->spoken |= end > r->from;
    answer_tell_reasoning(r, end, sink);
    if (!over)
        return false;
    r->reasoned = true;
    answer_move_to(r, ANSWER_START, where + strlen(REASONING_END));
    return true;
}

static bool in_text(struct answer_reader *r, const struct answer_sink *sink)
{
    const struct tool_format *f = r->rules.format;
    size_t where;
    if (!f || f->whole || has_channels(r)) {
        answer_tell_text(r, r->held.size, sink);
        r->at = r->from;
        return false;
    }
    bool found = answer_word_find(r, f->begin, &where);
    answer_tell_text(r, answer_space_before(r, where), sink);
    if (found)
        answer_call_begin(r, where + strlen(f->begin), true);
    return found;
}

/* Behind the JSON of a message's arguments: what ends it is no part of the answer. */
static bool after_arguments(struct answer_reader *r)
{
    static const char *const ends[] = {CHANNEL_CALL, CHANNEL_END};
    answer_skip_space(r);
    if (r->at == r->held.size)
        return false;
    for (int i = 0; i < 2; i++) {
        enum answer_match here = answer_match_here(r, ends[i]);
        if (here == MATCH_PART)
            return false;
        if (here == MATCH_ALL) {
            answer_move_to(r, ANSWER_START, r->at + strlen(ends[i]));
            return true;
        }
    }
    answer_move_to(r, ANSWER_START, r->at);
    return true;
}

static bool answer_step(struct answer_reader *r, const struct answer_sink *sink)
{
    bool channels = has_channels(r);
    switch (r->state) {
    case ANSWER_START: return channels ? answer_channel_begin(r, sink) : in_start(r);
    case ANSWER_REASONING: return in_reasoning(r, sink);
    case ANSWER_TEXT: return in_text(r, sink);
    case ANSWER_CALL: return channels ? answer_in_arguments(r, sink) : answer_in_call(r, sink);
    case ANSWER_AFTER: return channels ? after_arguments(r) : answer_after_call(r, sink);
    case ANSWER_HEAD: return answer_in_head(r, sink);
    case ANSWER_BODY: return answer_in_body(r, sink);
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

void answer_reader_finish(struct answer_reader *r, const struct answer_sink *sink)
{
    size_t end = r->held.size;
    if (has_channels(r))
        answer_channels_finish(r, sink);
    switch (r->state) {
    case ANSWER_START:
        if (r->reasoned && r->at == end)
            break;
        __attribute__((fallthrough));
    case ANSWER_TEXT:
    case ANSWER_CALL: answer_tell_text(r, end, sink); break;
    case ANSWER_REASONING:
        r->at = end;
        answer_tell_reasoning(r, answer_space_before(r, end), sink);
        break;
    case ANSWER_AFTER: answer_calls_finish(r, sink); break;
    case ANSWER_HEAD: /* nothing was said yet */
    case ANSWER_BODY:
    case ANSWER_DONE: break;
    }
    r->state = ANSWER_DONE;
    r->from = r->held.size;
    held_trim(r);
}
