/* What the states of an answer's reader stand on: looking at what is held, and telling it. */
#ifndef HP_COORDINATOR_GATEWAY_ANSWER_PARTS_H
#define HP_COORDINATOR_GATEWAY_ANSWER_PARTS_H

#include "coordinator/gateway/answer_reader.h"

bool answer_is_space(char c);
static inline const char *answer_held(const struct answer_reader *r)
{
    return (const char *)r->held.data;
}

void answer_skip_space(struct answer_reader *r);

enum answer_match { MATCH_NONE, MATCH_PART, MATCH_ALL };
/* Whether `word` stands where the reader looks; part of it: at the end of what has come. */
enum answer_match answer_match_here(const struct answer_reader *r, const char *word);
/* Looks for a word: true, and *where. Else *where is up to where nothing of it can be, and what was
 * looked at is not looked at again. */
bool answer_word_find(struct answer_reader *r, const char *word, size_t *where);
/* Where white space before `end` begins, of what is not told. */
size_t answer_space_before(const struct answer_reader *r, size_t end);

void answer_move_to(struct answer_reader *r, enum answer_state state, size_t at);
/* What is not told yet, up to `end`. */
void answer_tell_text(struct answer_reader *r, size_t end, const struct answer_sink *sink);
void answer_tell_reasoning(struct answer_reader *r, size_t end, const struct answer_sink *sink);
/* Unless one was told and there may be no more. */
void answer_tell_call(struct answer_reader *r, const struct tool_call *call,
                      const struct answer_sink *sink);

/* Takes a byte of a call's text that has begun: false where it cannot stand there. Its depth is 0
 * when it has ended. */
bool answer_value_step(struct answer_reader *r, char c);

#endif
