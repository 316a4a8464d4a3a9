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

TEST(masks_allow_the_tokens_that_can_be_read_byte_by_byte_and_no_others)
{
    struct token_tree *t = made_tree(TOKENS);
    assert_non_null(t);
    for (size_t i = 0; i < GRAMMAR_KINDS; i++)
        kind_check(&grammar_kinds[i], t);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        kind_check(&others[i], t);
    token_tree_destroy(&t);
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
        cmocka_unit_test(masks_allow_the_tokens_that_can_be_read_byte_by_byte_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
