#include "model/grammar/token_sets.h"

#include <stdlib.h>

enum { BLOCK = TOKEN_SETS_BLOCK, CLASSES = 7, MASKS = CHAR_KINDS + CLASSES };

/* Masks of tokens by what they have: one for each kind, and one for each class of kinds that
 * grammars often leave out together. */
struct token_sets {
    uint32_t n_words;
    uint64_t classes[CLASSES]; /* their kinds */
    uint64_t *firsts, *rests;  /* [MASKS][n_words]: by first characters, and by those behind them */
    uint64_t *chars;           /* [TOKEN_SETS_CHARS + 1][n_words]: with at most 0, 1, .. behind */
    uint32_t counts[CHAR_KINDS];
};

static void token_add(struct token_sets *s, uint32_t token, struct token_text_kinds text)
{
    uint64_t kinds = text_summary_kinds(text.rest), bit = UINT64_C(1) << token % 64;
    uint32_t chars = text_summary_chars(text.rest), word = token / 64;
    if (text.first < 0 || chars > TOKEN_SETS_CHARS)
        return;
    s->counts[text.first]++;
    s->firsts[(size_t)text.first * s->n_words + word] |= bit;
    for (; kinds; kinds &= kinds - 1)
        s->rests[(size_t)__builtin_ctzll(kinds) * s->n_words + word] |= bit;
    s->chars[(size_t)chars * s->n_words + word] |= bit;
}

static void mask_join(uint64_t *restrict to, const uint64_t *restrict from, uint32_t n_words)
{
    for (uint32_t i = 0; i < n_words; i++)
        to[i] |= from[i];
}

static void classes_join(const struct token_sets *s, uint64_t *masks)
{
    for (uint32_t class = 0; class < CLASSES; class ++)
        for (uint64_t left = s->classes[class]; left; left &= left - 1)
            mask_join(masks + (size_t)(CHAR_KINDS + class) * s->n_words,
                      masks + (size_t)__builtin_ctzll(left) * s->n_words, s->n_words);
}

static void classes_make(struct token_sets *s)
{
    static const char *const texts[CLASSES] = {"\t\n\r\"\\",
                                               "agAG0",
                                               "-._,:'/",
                                               "()[]{}<>=",
                                               "!#$%&*+;?@^`|~",
                                               "\xC2\xC3\xC4\xD0\xD1\xD2\xD7",
                                               "\xE0\xE1\xE2\xE3\xE4\xE5\xE9\xEA\xEE\xF0\xF1"};
    for (int class = 0; class < CLASSES; class ++)
        for (const char *c = texts[class]; *c; c++)
            s->classes[class] |= UINT64_C(1) << char_kind_begun((uint8_t)*c);
}

struct token_sets *token_sets_create(const struct token_text_kinds *texts, uint32_t vocabulary)
{
    struct token_sets *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->n_words = token_sets_words(vocabulary);
    s->firsts = calloc((size_t)MASKS * s->n_words, sizeof *s->firsts);
    s->rests = calloc((size_t)MASKS * s->n_words, sizeof *s->rests);
    s->chars = calloc((size_t)(TOKEN_SETS_CHARS + 1) * s->n_words, sizeof *s->chars);
    if (!s->firsts || !s->rests || !s->chars) {
        token_sets_destroy(&s);
        return NULL;
    }
    for (uint32_t token = 0; token < vocabulary; token++)
        token_add(s, token, texts[token]);
    classes_make(s);
    classes_join(s, s->firsts);
    classes_join(s, s->rests);
    for (int n = 1; n <= TOKEN_SETS_CHARS; n++)
        mask_join(s->chars + (size_t)n * s->n_words, s->chars + (size_t)(n - 1) * s->n_words,
                  s->n_words);
    return s;
}

void token_sets_destroy(struct token_sets **self)
{
    struct token_sets *s = *self;
    *self = NULL;
    if (!s)
        return;
    free(s->firsts);
    free(s->rests);
    free(s->chars);
    free(s);
}

uint32_t token_sets_count(const struct token_sets *s, uint64_t firsts)
{
    uint32_t n = 0;
    for (; firsts; firsts &= firsts - 1)
        n += s->counts[__builtin_ctzll(firsts)];
    return n;
}

/* Masks whose union has the tokens that have one of some kinds. */
struct mask_union {
    const uint64_t *list[MASKS];
    int n;
};

static struct mask_union union_find(const struct token_sets *s, const uint64_t *masks,
                                    uint64_t kinds)
{
    struct mask_union u = {.n = 0};
    for (uint32_t class = 0; class < CLASSES; class ++)
        if (!(s->classes[class] & ~kinds)) {
            u.list[u.n++] = masks + (size_t)(CHAR_KINDS + class) * s->n_words;
            kinds &= ~s->classes[class];
        }
    for (; kinds; kinds &= kinds - 1)
        u.list[u.n++] = masks + (size_t)__builtin_ctzll(kinds) * s->n_words;
    return u;
}

static void block_join(const struct mask_union *u, uint32_t from, uint64_t words[BLOCK])
{
    for (int k = 0; k < u->n; k++)
        mask_join(words, u->list[k] + from, BLOCK);
}

/* Adds the tokens that begin with one of `begun` and have of `others` nothing behind it, and no
 * more characters than those of `within`. */
static void part_add(const struct token_sets *s, const struct mask_union *begun,
                     const struct mask_union *others, const uint64_t *within, uint64_t *words)
{
    for (uint32_t from = 0; from < s->n_words; from += BLOCK) {
        uint64_t yes[BLOCK] = {0}, no[BLOCK] = {0};
        block_join(begun, from, yes);
        block_join(others, from, no);
        for (uint32_t i = 0; i < BLOCK; i++)
            words[from + i] |= within[from + i] & yes[i] & ~no[i];
    }
}

/* Shorter texts are a part of their own only where longer ones are of fewer kinds. */
void token_sets_add(const struct token_sets *s, uint64_t firsts,
                    const uint64_t kinds[TOKEN_SETS_CHARS + 1], uint64_t *words)
{
    struct mask_union begun = union_find(s, s->firsts, firsts), others = {.n = 0};
    if (!kinds[1])
        part_add(s, &begun, &others, s->chars, words);
    for (uint32_t n = 1; n <= TOKEN_SETS_CHARS && kinds[n]; n++)
        if (n == TOKEN_SETS_CHARS || kinds[n + 1] != kinds[n]) {
            others = union_find(s, s->rests, ~kinds[n] & CHAR_KINDS_ALL);
            part_add(s, &begun, &others, s->chars + (size_t)n * s->n_words, words);
        }
}
