/* The tokens of a vocabulary by what they are made of: those that begin with a character of some
 * kinds (char_kinds.h) and have of others behind it, and at most so many, as masks. Never changed
 * after they are made: any thread may ask. */
#ifndef HP_MODEL_GRAMMAR_TOKEN_SETS_H
#define HP_MODEL_GRAMMAR_TOKEN_SETS_H

#include "model/grammar/char_kinds.h"

enum {
    TOKEN_SETS_BLOCK = 64,  /* words of masks, which are joined block by block */
    TOKEN_SETS_CHARS = 28,  /* tokens with more behind their first are in no set */
    TOKEN_SETS_MANY = 4096, /* tokens that begin alike: it pays to join sets */
    TEXT_SUMMARY_LONG = TOKEN_SETS_CHARS + 1,
    TEXT_SUMMARY_NEVER = 31,
};

/* Of a text that is of no kind. */
#define TEXT_SUMMARY_OF_NO_KIND ((uint64_t)TEXT_SUMMARY_NEVER << CHAR_KINDS | CHAR_KINDS_ALL)

/* Kinds in the low bits, above them how many characters a text (the longest of several) has;
 * TEXT_SUMMARY_LONG: more than a set's; TEXT_SUMMARY_NEVER and all kinds: some are of no kind. 0:
 * there is no text. A character that is not whole at the end of a text counts as one. */
static inline uint64_t text_summary(struct char_count c)
{
    uint64_t n = c.n > TOKEN_SETS_CHARS ? TEXT_SUMMARY_LONG : c.n;
    return c.none ? TEXT_SUMMARY_OF_NO_KIND : n << CHAR_KINDS | c.kinds;
}

static inline uint64_t text_summary_kinds(uint64_t s)
{
    return s & CHAR_KINDS_ALL;
}

static inline uint32_t text_summary_chars(uint64_t s)
{
    return (uint32_t)(s >> CHAR_KINDS);
}

static inline uint64_t text_summary_join(uint64_t a, uint64_t b)
{
    uint64_t n = a >> CHAR_KINDS, m = b >> CHAR_KINDS;
    return (n > m ? n : m) << CHAR_KINDS | text_summary_kinds(a | b);
}

/* A text with a character of this kind before it; kind < 0: of none. */
static inline uint64_t text_summary_behind(int kind, uint64_t s)
{
    uint32_t n = text_summary_chars(s);
    struct char_count c = {.kinds = text_summary_kinds(s) | (kind < 0 ? 0 : UINT64_C(1) << kind),
                           .n = (uint8_t)(n + 1),
                           .none = kind < 0 || n == TEXT_SUMMARY_NEVER};
    return text_summary(c);
}

/* What a token is made of. */
struct token_text_kinds {
    uint64_t rest; /* summary of what is behind its first character */
    int first;     /* that one's kind; < 0: it is of none, and the token in no set */
};

/* Words of a mask of so many tokens: whole blocks. */
static inline uint32_t token_sets_words(uint32_t vocabulary)
{
    return (vocabulary / 64 / TOKEN_SETS_BLOCK + 1) * TOKEN_SETS_BLOCK;
}

struct token_sets;
/* `texts`: of the tokens, [vocabulary]. NULL: no memory. */
struct token_sets *token_sets_create(const struct token_text_kinds *texts, uint32_t vocabulary);
void token_sets_destroy(struct token_sets **s);
/* How many begin with a character of these kinds, about. */
uint32_t token_sets_count(const struct token_sets *s, uint64_t firsts);
/* Adds to a mask of token_sets_words() the tokens that begin with a character of `firsts`
 * and have behind it n more, all of kinds[n], where those of more characters are among those of
 * fewer. */
void token_sets_add(const struct token_sets *s, uint64_t firsts,
                    const uint64_t kinds[TOKEN_SETS_CHARS + 1], uint64_t *words);

#endif
