#include <stdio.h>
#include <string.h>

#include "model/tokenizer/bpe.h"
#include "tests/test.h"

struct bpe_fixture {
    struct arena arena;
    struct vocabulary vocabulary;
    struct bpe bpe;
    bool plain;
};

/* Tokens and merges separated by blanks; a merge is "left+right". */
static void make(struct bpe_fixture *f, const char *tokens, const char *merges)
{
    char token[64], left[64], right[64];
    int used;
    uint32_t n = 0;
    struct err e;
    *f = (struct bpe_fixture){0};
    assert_int_equal(vocabulary_init(&f->vocabulary, &f->arena, 64, &e), 0);
    for (const char *at = tokens; sscanf(at, "%63s%n", token, &used) == 1; at += used, n++) {
        assert_int_equal(vocabulary_set(&f->vocabulary, &f->arena, n, token, strlen(token), &e), 0);
        vocabulary_index(&f->vocabulary, n);
    }
    assert_int_equal(bpe_init(&f->bpe, &f->arena, &f->vocabulary, 64, &e), 0);
    uint32_t rank = 0;
    for (const char *at = merges; sscanf(at, " %63[^+]+%63s%n", left, right, &used) == 2;
         at += used) {
        snprintf(token, sizeof token, "%.30s%.30s", left, right);
        bpe_add_merge(&f->bpe, (uint32_t)vocabulary_find(&f->vocabulary, left, strlen(left)),
                      (uint32_t)vocabulary_find(&f->vocabulary, right, strlen(right)), rank++,
                      (uint32_t)vocabulary_find(&f->vocabulary, token, strlen(token)));
    }
}

/* The tokens of a word, as text with blanks between. */
static int split(struct bpe_fixture *f, const char *word, char *out, struct err *e)
{
    struct buffer ids = {0};
    struct bpe_scratch scratch = {.plain = f->plain};
    int rc = bpe_word(&f->bpe, &scratch, word, strlen(word), &ids, e);
    const uint32_t *id = (const uint32_t *)(const void *)ids.data;
    *out = 0;
    for (size_t i = 0; i < ids.size / sizeof *id; i++)
        sprintf(out + strlen(out), "%s%s", i ? " " : "", f->vocabulary.tokens[id[i]].text);
    bpe_scratch_free(&scratch);
    buffer_free(&ids);
    return rc;
}

static void expect(struct bpe_fixture *f, const char *word, const char *expected)
{
    char got[512];
    struct err e = {0};
    if (split(f, word, got, &e) < 0)
        fail_msg("%s: %s", word, e.text);
    assert_string_equal(got, expected);
}

TEST(the_best_rank_merges_first_and_the_leftmost_of_equals)
{
    struct bpe_fixture f;
    make(&f, "a b c ab bc aa abc aaa", "b+c a+b a+a aa+a ab+c a+bc");
    static const struct {
        const char *word, *tokens;
    } cases[] = {{"abc", "abc"},      {"ab", "ab"},    {"aaaa", "aa aa"}, {"aaa", "aaa"},
                 {"aaaaa", "aa aaa"}, {"cab", "c ab"}, {"bcbc", "bc bc"}, {"", ""},
                 {"c", "c"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(&f, cases[i].word, cases[i].tokens);
    arena_free(&f.arena);
}

TEST(a_merge_without_a_rank_does_not_happen)
{
    struct bpe_fixture f;
    make(&f, "a b ab abab", "ab+ab");
    expect(&f, "abab", "a b a b");
    f.bpe.ignore_merges = true;
    expect(&f, "abab", "abab");
    expect(&f, "ababa", "a b a b a");
    arena_free(&f.arena);
}

TEST(strangers_become_bytes_or_the_unknown_token_or_nothing)
{
    struct bpe_fixture f;
    make(&f, "a ? <0xC3> <0xA9> aa", "a+a");
    expect(&f, "aéa", "aa");
    expect(&f, "é", "");
    f.bpe.unknown = 1;
    expect(&f, "aééa", "a ? ? a");
    f.bpe.fuse_unknown = true;
    expect(&f, "aééaé", "a ? a ?");
    f.bpe.byte_ids[0xC3] = 2;
    f.bpe.byte_ids[0xA9] = 3;
    expect(&f, "éaè", "<0xC3> <0xA9> a ?");
    f.vocabulary.tokens[4].special = true;
    expect(&f, "aa", "aa");
    f.plain = true;
    expect(&f, "aa", "a a");
    f.bpe.ignore_merges = true;
    expect(&f, "aa", "a a");
    arena_free(&f.arena);
}

TEST(scores_imply_merges)
{
    struct bpe_fixture f;
    struct err e = {0};
    make(&f, "a b c ab bc abc cc", "");
    const float scores[64] = {0, 0, 0, -3, -1, -2, -9};
    assert_int_equal(
        bpe_init_scores(&f.bpe, &f.arena, &f.vocabulary, scores, BPE_TIES_LOWER_ID, NULL, &e), 0);
    expect(&f, "abc", "abc");
    expect(&f, "abcc", "abc c");
    expect(&f, "aab", "a ab");
    const bool takes_part[64] = {true, true, true, true, false, true, true};
    assert_int_equal(
        bpe_init_scores(&f.bpe, &f.arena, &f.vocabulary, scores, BPE_TIES_LOWER_ID, takes_part, &e),
        0);
    expect(&f, "bcab", "b c ab");
    expect(&f, "abc", "abc");
    arena_free(&f.arena);
}

TEST(a_long_word_takes_its_time_but_not_quadratically)
{
    enum { N = 300000 };
    static char word[N];
    struct bpe_fixture f;
    struct err e = {0};
    struct buffer ids = {0};
    struct bpe_scratch scratch = {0};
    make(&f, "a aa aaaa aaaaaaaa", "a+a aa+aa aaaa+aaaa");
    memset(word, 'a', N);
    assert_int_equal(bpe_word(&f.bpe, &scratch, word, N, &ids, &e), 0);
    assert_int_equal(ids.size / sizeof(uint32_t), N / 8);
    bpe_scratch_free(&scratch);
    buffer_free(&ids);
    arena_free(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_rank_merges_first_and_the_leftmost_of_equals),
        cmocka_unit_test(a_merge_without_a_rank_does_not_happen),
        cmocka_unit_test(strangers_become_bytes_or_the_unknown_token_or_nothing),
        cmocka_unit_test(scores_imply_merges),
        cmocka_unit_test(a_long_word_takes_its_time_but_not_quadratically),
    };
    return cmocka_run_group_tests_name("bpe", tests, NULL, NULL);
}
