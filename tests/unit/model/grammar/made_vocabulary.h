/* A vocabulary like those of large models, made for tests and benchmarks of masks. */
#ifndef HP_TESTS_UNIT_MODEL_GRAMMAR_MADE_VOCABULARY_H
#define HP_TESTS_UNIT_MODEL_GRAMMAR_MADE_VOCABULARY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/env.h"
#include "model/grammar/token_tree.h"

enum { VOCABULARY = 151936, SLOTS = 1 << 19 }; /* the most tokens */

struct made_tokens {
    uint32_t wanted;
    struct buffer bytes;
    struct token_text *texts;
    uint32_t n, slots[SLOTS]; /* a hash table of numbers + 1 */
};

/* Vocabularies have no token twice. */
static inline bool token_is_new(struct made_tokens *v, const char *bytes, size_t n)
{
    uint32_t at = 2166136261u;
    for (size_t i = 0; i < n; i++)
        at = (at ^ (uint8_t)bytes[i]) * 16777619u;
    for (at %= SLOTS; v->slots[at]; at = (at + 1) % SLOTS) {
        struct token_text t = v->texts[v->slots[at] - 1];
        if (t.size == n && memcmp(v->bytes.data + (size_t)t.bytes, bytes, n) == 0)
            return false;
    }
    v->slots[at] = v->n + 1;
    return true;
}

static inline bool vocabulary_add(struct made_tokens *v, const char *bytes, size_t n)
{
    if (v->n < v->wanted && !token_is_new(v, bytes, n))
        return true;
    if (v->n == v->wanted)
        return false;
    v->texts[v->n++] = (struct token_text){(const char *)v->bytes.size, (uint32_t)n};
    buffer_append(&v->bytes, bytes, n);
    return true;
}

/* Syllables are joined to words of many lengths, as merges make them, alone, behind a space and
 * with a capital; beside them a large vocabulary has bytes, digits, marks and their runs, and
 * characters of other scripts, one to four at a time. */
static inline void words_add(struct made_tokens *v, uint64_t *state)
{
    static const char *const syllables[] = {
        "a",  "e",   "in", "er", "on", "re", "at", "st",  "en",  "or",  "al",  "it",   "le",  "ing",
        "th", "ion", "an", "ed", "es", "de", "to", "con", "pro", "un",  "ly",  "ment", "ver", "s",
        "ti", "ra",  "co", "ma", "li", "ne", "ro", "ch",  "di",  "per", "tra", "sub",  "com", "ex"};
    char word[64];
    int parts = 1 + (int)(random_unit(state) * random_unit(state) * 7);
    bool spaced = random_unit(state) < 0.55, capital = random_unit(state) < 0.25;
    size_t n = 0;
    word[n] = ' ';
    n += spaced;
    size_t from = n;
    for (int i = 0; i < parts; i++) {
        const char *s =
            syllables[(size_t)(random_unit(state) * sizeof syllables / sizeof *syllables)];
        memcpy(word + n, s, strlen(s));
        n += strlen(s);
    }
    word[from] = (char)(word[from] - 32 * capital);
    vocabulary_add(v, word, n);
}

static inline void marks_add(struct made_tokens *v, uint64_t *state)
{
    static const char marks[] = "\"'()[]{}<>=+-*/\\\\|,.:;!?#$%&@^_~` \n\n\t0123456789";
    char text[16];
    size_t n = 1 + (size_t)(random_unit(state) * random_unit(state) * 8);
    for (size_t i = 0; i < n; i++)
        text[i] = marks[(size_t)(random_unit(state) * (sizeof marks - 1))];
    vocabulary_add(v, text, n);
}

static inline void scripts_add(struct made_tokens *v, uint64_t *state)
{
    static const struct {
        uint32_t from, n;
    } blocks[] = {{0x4E00, 7000}, {0x430, 32}, {0x627, 36}, {0xAC00, 3000},
                  {0x3041, 90},   {0xE0, 32},  {0x905, 50}, {0xE01, 58}};
    char text[32];
    size_t n = 0, block = (size_t)(random_unit(state) * sizeof blocks / sizeof *blocks);
    size_t chars = 1 + (size_t)(random_unit(state) * random_unit(state) * 5);
    if (random_unit(state) < 0.2)
        text[n++] = ' ';
    for (size_t i = 0; i < chars; i++) {
        uint32_t c = blocks[block].from + (uint32_t)(random_unit(state) * blocks[block].n);
        if (c >= 0x800)
            text[n++] = (char)(0xE0 | c >> 12), text[n++] = (char)(0x80 | (c >> 6 & 63));
        else
            text[n++] = (char)(0xC0 | c >> 6);
        text[n++] = (char)(0x80 | (c & 63));
    }
    vocabulary_add(v, text, n);
}

static inline void vocabulary_make(struct made_tokens *v)
{
    uint64_t state = 7;
    for (int b = 0; b < 256; b++)
        vocabulary_add(v, (const char[]){(char)b}, 1);
    while (v->n < v->wanted) {
        double kind = random_unit(&state);
        if (kind < 0.64)
            words_add(v, &state);
        else if (kind < 0.665)
            marks_add(v, &state);
        else
            scripts_add(v, &state);
    }
}

/* Of so many tokens, the first 256 all bytes; NULL: no memory. */
static inline struct token_tree *made_tree(uint32_t wanted)
{
    static struct made_tokens v;
    v = (struct made_tokens){.wanted = wanted, .texts = calloc(wanted, sizeof *v.texts)};
    struct token_tree *t = NULL;
    if (!v.texts)
        return NULL;
    vocabulary_make(&v);
    for (uint32_t i = 0; i < v.n; i++)
        v.texts[i].bytes = (const char *)v.bytes.data + (size_t)v.texts[i].bytes;
    if (token_tree_make(v.texts, v.n, &t, NULL) < 0)
        t = NULL;
    free(v.texts);
    buffer_free(&v.bytes);
    return t;
}

#endif
