/* Masks over a vocabulary like those of large models: those that trying each token byte by byte
 * gives, under schemas, expressions, grammars and calls as people ask for them. */
#include "tests/unit/model/grammar/grammar_fixture.h"
#include "tests/unit/model/grammar/grammar_kinds.h"
#include "tests/unit/model/grammar/made_vocabulary.h"

enum { TOKENS = 24000, WALKS = 2, MOST = 14 };

/* What the kinds above lack: classes that divide characters of each width, counts, and names that
 * are any but some. */
static const struct grammar_kind others[] = {
    {"ideographs of a range", KIND_REGULAR, "[\u4e00-\u4e07\u5000-\u9fa5]{1,6}[a-z]"},
    {"letters of several scripts", KIND_REGULAR,
     "[\u00e0-\u00ff\u0430-\u044fa-z]+ [\u3041-\u3096]*!"},
    {"counted words", KIND_REGULAR, "([A-Za-z]{2,5}[ ,.-]){3,}"},
    {"any but some", KIND_REGULAR, "\"([^\"\\\\i]|i([^\"\\\\d]|d[^\"\\\\]))[^\"\\\\]*\""},
    {"lines without letters", KIND_REGULAR, "([^a-zA-Z\n]*\n)+"},
    {"more words than a set has places", KIND_WORDS, "12000"},
    {"letters that end in wide ones", KIND_REGULAR,
     "([a-z ]{1,9}[\u00e0-\u00ff\u0430-\u044f]|[a-z ]+[!?])+"},
    {"kinds with two rests", KIND_REGULAR, "([\ua000-\uc000]1|[\ud000-\ud7a0]2| )+"},
    {"names and words among them", KIND_REGULAR, "([ \\n]*(if|for|case 1|[a-z_][a-z0-9_]*)[;(.])+"},
    {"a letter apart", KIND_REGULAR, "( ?([a-hj-z][a-z]*|i[0-9]+)[.!])+"},
    {"names of two letters and more", KIND_REGULAR, "( ?[A-Z][a-z]{1,5}[.!]?)+"},
    {"counted with marks behind", KIND_REGULAR, "([a-z ]{4,7}[.!?]+)+"},
    {"nested marks", KIND_GBNF,
     "root ::= (\"(\" root \")\" | \"[\" root \"]\" | word)+\nword ::= [^()\\[\\]]"},
};

/* Whether a text that has these tokens goes on with each of all others. */
static void mask_check(struct automaton *a, const struct token_tree *t, const char *name,
                       const uint32_t *said, int n_said, const uint64_t *mask)
{
    struct matcher *m = NULL;
    uint32_t end = t->vocabulary - 1;
    assert_int_equal(matcher_create(a, 1 << 20, &end, 1, &m, NULL), 0);
    for (int i = 0; i < n_said; i++)
        matcher_accept(m, said[i]);
    for (uint32_t token = 0; token < end; token++)
        if (matcher_fits(m, token) != (mask[token / 64] >> token % 64 & 1))
            fail_msg("%s: token %u (%.*s) behind %d others", name, token,
                     (int)(t->offsets[token + 1] - t->offsets[token]), t->bytes + t->offsets[token],
                     n_said);
    assert_int_equal(matcher_error(m, NULL), 0);
    matcher_destroy(&m);
}

static void walk_check(struct automaton *a, const struct token_tree *t, const char *name,
                       uint64_t seed)
{
    struct matcher *m = NULL;
    uint32_t end = t->vocabulary - 1, said[MOST];
    assert_int_equal(matcher_create(a, 1 << 20, &end, 1, &m, NULL), 0);
    for (int n = 0; n < MOST; n++) {
        const uint64_t *mask = matcher_mask(m);
        assert_non_null(mask);
        mask_check(a, t, name, said, n, mask);
        said[n] = fixture_draw(mask, t->vocabulary, random_next(&seed));
        if (said[n] == end)
            break;
        matcher_accept(m, said[n]);
    }
    matcher_destroy(&m);
}

static void kind_check(const struct grammar_kind *kind, const struct token_tree *t)
{
    struct buffer wire = {0};
    struct err e = {0};
    if (grammar_kind_make(kind, &wire, &e) < 0)
        fail_msg("%s: %s", kind->name, e.text);
    struct automaton *a = fixture_automaton(&wire, t);
    for (uint64_t seed = 1; seed <= WALKS; seed++)
        walk_check(a, t, kind->name, seed);
    automaton_destroy(&a);
    buffer_free(&wire);
}

/* What words of a language are not: pieces of all sorts, most behind a space, so that tokens differ
 * from what grammars allow at each of their characters. */
static struct token_tree *mixed_tree(void)
{
    enum { N = 20000, ROOM = 40 };
    static const char *const pieces[] = {"a", "b", "g", "if", "for", "z",  "Q",  "B", "7",  "_",
                                         "0", ".", "!", "?",  ";",   "(",  "\n", " ", "é",  "ж",
                                         "x", "i", "c", "e",  "\"",  "\\", ",",  "-", "한", "世"};
    enum { PIECES = sizeof pieces / sizeof *pieces, LETTERS = 6 };
    static struct made_tokens v;
    struct token_tree *t = NULL;
    uint64_t state = 21;
    v = (struct made_tokens){.wanted = N, .texts = calloc(N, sizeof *v.texts)};
    for (int b = 0; b < 256; b++)
        vocabulary_add(&v, (const char[]){(char)b}, 1);
    while (v.n < N) {
        char text[ROOM] = " ";
        size_t n = 1 + random_next(&state) % 6, few = random_next(&state) % 3 ? LETTERS : PIECES;
        for (size_t i = 0; i < n; i++) /* letters, then anything */
            strcat(text, pieces[random_next(&state) % (i + 2 < n ? few : (size_t)PIECES)]);
        size_t from = random_next(&state) % 10 < 3;
        vocabulary_add(&v, text + from, strlen(text) - from);
    }
    for (uint32_t i = 0; i < v.n; i++)
        v.texts[i].bytes = (const char *)v.bytes.data + (size_t)v.texts[i].bytes;
    assert_int_equal(token_tree_make(v.texts, v.n, &t, NULL), 0);
    free(v.texts);
    buffer_free(&v.bytes);
    return t;
}

static void kinds_check(struct token_tree *t)
{
    assert_non_null(t);
    assert_non_null(t->spaced);
    for (size_t i = 0; i < GRAMMAR_KINDS; i++)
        kind_check(&grammar_kinds[i], t);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        kind_check(&others[i], t);
    token_tree_destroy(&t);
}

TEST(masks_allow_the_tokens_that_can_be_read_byte_by_byte_and_no_others)
{
    kinds_check(made_tree(TOKENS));
}

TEST(masks_of_tokens_that_mix_characters_are_those_that_can_be_read_byte_by_byte)
{
    kinds_check(mixed_tree());
}

/* Where all tokens below one byte end within a character, what is behind it says nothing of them.
 */
TEST(characters_of_a_range_are_told_apart_by_their_last_bytes)
{
    enum { N = 257 + 64 };
    static char bytes[256], chars[64][4];
    struct token_text texts[N] = {{0}};
    struct token_tree *t = NULL;
    struct grammar_kind kind = {"a few ideographs", KIND_REGULAR, "[\u4e00-\u4e07]+"};
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        texts[i] = (struct token_text){&bytes[i], 1};
    }
    for (int i = 0; i < 64; i++) {
        memcpy(chars[i], (const char[]){'\xE4', '\xB8', (char)(0x80 + i)}, 3);
        texts[256 + i] = (struct token_text){chars[i], 3};
    }
    assert_int_equal(token_tree_make(texts, N, &t, NULL), 0);
    kind_check(&kind, t);
    token_tree_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_of_a_range_are_told_apart_by_their_last_bytes),
        cmocka_unit_test(
            masks_of_tokens_that_mix_characters_are_those_that_can_be_read_byte_by_byte),
        cmocka_unit_test(masks_allow_the_tokens_that_can_be_read_byte_by_byte_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
