/* The tokens of a vocabulary by what they are made of: those of some kinds of characters
 * (char_kinds.h) and at most so many of them, as masks. Never changed after they are made: any
 * thread may ask. */
#ifndef HP_MODEL_GRAMMAR_TOKEN_SETS_H
#define HP_MODEL_GRAMMAR_TOKEN_SETS_H

#include "model/grammar/char_kinds.h"

enum {
    TOKEN_SETS_CHARS = 16, /* longer tokens are in no set */
    TEXT_SUMMARY_LONG = TOKEN_SETS_CHARS + 1,
    TEXT_SUMMARY_NEVER = 31,
};

/* Kinds in the low bits, above them how many characters a text (the longest of several) has;
 * TEXT_SUMMARY_LONG: more than a set's; TEXT_SUMMARY_NEVER and all kinds: some are of no kind. 0:
 * there is no text. A character that is not whole at the end of a text counts as one. */
static inline uint16_t text_summary(struct char_count c)
{
    uint32_t n = c.n > TOKEN_SETS_CHARS ? TEXT_SUMMARY_LONG : c.n;
    return c.none ? (uint16_t)(TEXT_SUMMARY_NEVER << CHAR_KINDS | CHAR_KINDS_ALL)
                  : (uint16_t)(n << CHAR_KINDS | c.kinds);
}

static inline uint16_t text_summary_kinds(uint16_t s)
{
    return s & CHAR_KINDS_ALL;
}

static inline uint16_t text_summary_chars(uint16_t s)
{
    return s >> CHAR_KINDS;
}

static inline uint16_t text_summary_join(uint16_t a, uint16_t b)
{
    uint16_t n = text_summary_chars(a), m = text_summary_chars(b);
    return (uint16_t)((n > m ? n : m) << CHAR_KINDS | text_summary_kinds(a | b));
}

struct token_sets;
/* `texts`: the summaries of the tokens, [vocabulary]; 0: a token is in no set. NULL: no memory. */
struct token_sets *token_sets_create(const uint16_t *texts, uint32_t vocabulary);
void token_sets_destroy(struct token_sets **s);
/* Adds the tokens of these kinds with at most `chars` characters (1 to TOKEN_SETS_CHARS) to a mask
 * of vocabulary / 64 + 1 words. */
void token_sets_add(const struct token_sets *s, uint16_t kinds, uint32_t chars, uint64_t *words);

#endif
