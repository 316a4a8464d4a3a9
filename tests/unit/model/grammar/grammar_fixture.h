/* A vocabulary of bytes and pieces, texts that a grammar allows, drawn by lot, and whether it
 * allows one. */
#ifndef HP_TESTS_UNIT_MODEL_GRAMMAR_GRAMMAR_FIXTURE_H
#define HP_TESTS_UNIT_MODEL_GRAMMAR_GRAMMAR_FIXTURE_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "model/grammar/automaton.h"
#include "model/grammar/grammar_source.h"
#include "tests/test.h"

enum { FIXTURE_END = 256, FIXTURE_PIECES = 257 };

static const char *const fixture_pieces[] = {
    "{\"",      "\":",  "\": ",     "\": \"",      "\",",      "\", \"",
    "\"}",      "},",   "}]",       "[{",          "[\"",      "true",
    "false",    "null", "the",      "a b",         "abc",      "ab",
    "12",       "123",  "0.5",      "1e",          "\n  ",     "\n",
    "  ",       "é",    "日本",     "😀",           "\\n",      "\\\"",
    "\\u",      "00e9", "name",     "\"name\"",    "age",      "x\":",
    "}}",       "]]",   ", ",       "hello world", "----",     "-1",
    "T1",       "Z",    "\xE2\x82", "a\xC3",       "\x82\xAC", "aaaaaaaaaaaaaaaaaaaa",
    "abcdefgh", "x1",   "a1b",      "1a",          "if",       "id",
    "idea",     "ide",  "i9",       "ixé"};

/* Of this thread: other programs do not count. */
static inline uint64_t fixture_cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline struct token_tree *fixture_tree(void)
{
    enum { N = FIXTURE_PIECES + sizeof fixture_pieces / sizeof *fixture_pieces };
    static char bytes[256];
    struct token_text texts[N] = {{0}};
    struct token_tree *t = NULL;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        texts[i] = (struct token_text){&bytes[i], 1};
    }
    for (size_t i = FIXTURE_PIECES; i < N; i++) {
        const char *piece = fixture_pieces[i - FIXTURE_PIECES];
        texts[i] = (struct token_text){piece, (uint32_t)strlen(piece)};
    }
    assert_int_equal(token_tree_make(texts, N, &t, NULL), 0);
    return t;
}

/* Bytes, and many texts that begin alike: whole parts of its tree are made of a few kinds of
 * characters. */
static inline struct token_tree *fixture_dense_tree(void)
{
    static const char *const beginnings[] = {".", " ", "\"", "a", "-a", "é", "\xC3"};
    static const char *const letters[] = {"a", "b", "g", "A", "7", "-", ".", " ", "é", ",\""};
    enum { DENSE = 900, BEGINNINGS = 7, ROOM = 48, N = FIXTURE_PIECES + DENSE };
    static char bytes[256], pieces[DENSE][ROOM];
    struct token_text texts[N] = {{0}};
    struct token_tree *t = NULL;
    uint64_t state = 5;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        texts[i] = (struct token_text){&bytes[i], 1};
    }
    for (size_t i = 0; i < DENSE; i++) {
        /* Half of them have letters alone; some are long. */
        size_t n = i % 30 == 1 ? 16 + i / 30 % 4 : 1 + random_next(&state) % 5,
               known = i % 2 ? 3 : sizeof letters / sizeof *letters;
        snprintf(pieces[i], ROOM, "%s", beginnings[i / 2 % BEGINNINGS]);
        for (size_t k = 0; k < n; k++)
            strcat(pieces[i], letters[random_next(&state) % known]);
        texts[FIXTURE_PIECES + i] = (struct token_text){pieces[i], (uint32_t)strlen(pieces[i])};
    }
    assert_int_equal(token_tree_make(texts, N, &t, NULL), 0);
    return t;
}

static inline struct automaton *fixture_automaton(const struct buffer *wire,
                                                  const struct token_tree *t)
{
    struct grammar *g = NULL;
    struct automaton *a = NULL;
    struct err e = {0};
    assert_int_equal(grammar_read(wire->data, wire->size, &g, &e), 0);
    assert_int_equal(automaton_create(&g, t, &a, &e), 0);
    return a;
}

/* One of the allowed tokens, each as likely, but for NUL, which ends C's texts. */
static inline uint32_t fixture_draw(const uint64_t *mask, uint32_t vocabulary, uint64_t chance)
{
    uint32_t n = 0, token = 1;
    for (uint32_t i = 1; i < vocabulary; i++)
        n += mask[i / 64] >> i % 64 & 1;
    assert_true(n > 0);
    for (uint64_t left = chance % n + 1; left; token++)
        left -= mask[token / 64] >> token % 64 & 1;
    return token - 1;
}

/* A text that ends within so many tokens; the caller's. */
static inline char *fixture_text(struct automaton *a, const struct token_tree *t, uint64_t most,
                                 uint64_t seed)
{
    struct matcher *m = NULL;
    struct buffer out = {0};
    struct err e = {0};
    uint32_t end = FIXTURE_END;
    int rc = matcher_create(a, most, &end, 1, &m, &e);
    if (rc < 0)
        printf("# %s\n", e.text);
    assert_int_equal(rc, 0);
    for (uint64_t n = 0;; n++) {
        const uint64_t *mask = matcher_mask(m);
        if (!mask)
            matcher_error(m, &e), printf("# %s\n", e.text);
        assert_true(mask);
        uint32_t token =
            fixture_draw(mask, t->vocabulary,
                         seed = seed * 6364136223846793005u + (seed >> 33) + 1442695040888963407u);
        for (int tries = 0; tries < 4 && !matcher_fits(m, token); tries++)
            token = fixture_draw(mask, t->vocabulary,
                                 seed = seed * 6364136223846793005u + (seed >> 29) + 99);
        if (!matcher_fits(m, token))
            token = matcher_shortest(m);
        assert_true(token != TOKEN_NONE);
        assert_true(n < most);
        matcher_accept(m, token);
        assert_int_equal(matcher_error(m, NULL), 0);
        if (token == FIXTURE_END)
            break;
        buffer_append(&out, t->bytes + t->offsets[token],
                      t->offsets[token + 1] - t->offsets[token]);
    }
    matcher_destroy(&m);
    char *text = strdup(buffer_cstr(&out));
    buffer_free(&out);
    return text;
}

/* Whether a grammar allows this text, byte by byte. */
static inline bool fixture_allows(struct automaton *a, const char *text)
{
    struct matcher *m = NULL;
    uint32_t end = FIXTURE_END;
    assert_int_equal(matcher_create(a, 1 << 20, &end, 1, &m, NULL), 0);
    for (; *text; text++)
        matcher_accept(m, (uint8_t)*text);
    bool whole = matcher_error(m, NULL) == 0 && matcher_whole(m);
    matcher_destroy(&m);
    return whole;
}

#endif
