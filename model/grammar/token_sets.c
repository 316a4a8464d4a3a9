#include "model/grammar/token_sets.h"

#include <stdlib.h>

enum { BLOCK = 64 }; /* words that are joined at once */

/* Masks: tokens that have a character of a kind, and those with at most 1, 2, .. characters. */
struct token_sets {
    uint32_t n_words;
    uint64_t *kinds, *chars; /* [CHAR_KINDS][n_words], [TOKEN_SETS_CHARS][n_words] */
};

static void token_add(struct token_sets *s, uint32_t token, uint16_t text)
{
    uint32_t chars = text_summary_chars(text), word = token / 64;
    uint64_t bit = UINT64_C(1) << token % 64;
    if (!text || chars > TOKEN_SETS_CHARS)
        return;
    for (uint32_t k = 0; k < CHAR_KINDS; k++)
        if (text_summary_kinds(text) >> k & 1)
            s->kinds[(size_t)k * s->n_words + word] |= bit;
    for (uint32_t n = chars; n <= TOKEN_SETS_CHARS; n++)
        s->chars[(size_t)(n - 1) * s->n_words + word] |= bit;
}

struct token_sets *token_sets_create(const uint16_t *texts, uint32_t vocabulary)
{
    struct token_sets *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->n_words = vocabulary / 64 + 1;
    s->kinds = calloc((size_t)CHAR_KINDS * s->n_words, sizeof *s->kinds);
    s->chars = calloc((size_t)TOKEN_SETS_CHARS * s->n_words, sizeof *s->chars);
    if (!s->kinds || !s->chars) {
        token_sets_destroy(&s);
        return NULL;
    }
    for (uint32_t token = 0; token < vocabulary; token++)
        token_add(s, token, texts[token]);
    return s;
}

void token_sets_destroy(struct token_sets **self)
{
    struct token_sets *s = *self;
    *self = NULL;
    if (!s)
        return;
    free(s->kinds);
    free(s->chars);
    free(s);
}

void token_sets_add(const struct token_sets *s, uint16_t kinds, uint32_t chars, uint64_t *words)
{
    const uint64_t *within = s->chars + (size_t)(chars - 1) * s->n_words;
    for (uint32_t from = 0; from < s->n_words; from += BLOCK) {
        uint32_t n = s->n_words - from < BLOCK ? s->n_words - from : BLOCK;
        uint64_t others[BLOCK] = {0}; /* tokens that have something else */
        for (uint32_t k = 0; k < CHAR_KINDS; k++)
            for (uint32_t i = 0; !(kinds >> k & 1) && i < n; i++)
                others[i] |= s->kinds[(size_t)k * s->n_words + from + i];
        for (uint32_t i = 0; i < n; i++)
            words[from + i] |= within[from + i] & ~others[i];
    }
}
