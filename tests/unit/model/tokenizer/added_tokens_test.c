/* Tokens spelled out in text: which one counts, against a plain search, and that the search is
 * linear. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "model/tokenizer/added_tokens.h"
#include "tests/test.h"

struct added_tokens_fixture {
    struct arena arena;
    struct added_tokens tokens;
};

static void make(struct added_tokens_fixture *f, const char *const *texts, int n, unsigned special)
{
    *f = (struct added_tokens_fixture){0};
    f->tokens.arena = &f->arena;
    struct err e = {0};
    for (int i = 0; i < n; i++) {
        struct added_token t = {.id = (uint32_t)i, .special = special >> i & 1};
        assert_int_equal(added_tokens_add(&f->tokens, texts[i], strlen(texts[i]), &t, &e), 0);
    }
    assert_int_equal(added_tokens_finish(&f->tokens, &e), 0);
}

static char *found(struct added_tokens_fixture *f, const char *text,
                   const struct text_span *literal, size_t n, char *out, size_t size)
{
    struct added_scan s = {0};
    struct err e = {0};
    size_t at = 0, start, end, used = 0;
    uint32_t id;
    out[0] = '\0';
    assert_int_equal(added_scan_start(&s, &f->tokens, text, strlen(text), literal, n, &e), 0);
    while (added_scan_next(&s, at, &start, &end, &id)) {
        assert_true(start >= at && end > start);
        used += (size_t)snprintf(out + used, size - used, "%s%u@%zu", used ? " " : "", id, start);
        at = end;
    }
    added_scan_free(&s);
    return out;
}

/* What the scan must say: at each place the longest token, from left to right. */
static void plainly(const char *const *texts, int n, const char *text, char *out, size_t size)
{
    size_t used = 0, length = strlen(text);
    out[0] = '\0';
    for (size_t at = 0; at < length;) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (strncmp(text + at, texts[i], strlen(texts[i])) == 0 &&
                (best < 0 || strlen(texts[i]) >= strlen(texts[best])))
                best = i;
        if (best >= 0)
            used +=
                (size_t)snprintf(out + used, size - used, "%s%d@%zu", used ? " " : "", best, at);
        at += best < 0 ? 1 : strlen(texts[best]);
    }
}

TEST(random_tokens_are_found_as_by_a_plain_search)
{
    uint64_t seed = 20240607;
    for (int round = 0; round < 3000; round++) {
        char words[12][8], text[64], got[1024], wanted[1024];
        const char *texts[12];
        int n = 1 + (int)(random_next(&seed) % 12);
        for (int i = 0; i < n; i++) {
            size_t length = 1 + random_next(&seed) % 6;
            for (size_t k = 0; k < length; k++)
                words[i][k] = (char)('a' + random_next(&seed) % 2);
            words[i][length] = '\0';
            texts[i] = words[i];
        }
        size_t length = random_next(&seed) % 60;
        for (size_t k = 0; k < length; k++)
            text[k] = (char)('a' + random_next(&seed) % 3);
        text[length] = '\0';
        struct added_tokens_fixture f;
        make(&f, texts, n, 0);
        plainly(texts, n, text, wanted, sizeof wanted);
        if (strcmp(found(&f, text, NULL, 0, got, sizeof got), wanted) != 0)
            fail_msg("round %d: \"%s\": %s, expected %s", round, text, got, wanted);
        arena_free(&f.arena);
    }
}

TEST(special_tokens_that_touch_literal_text_are_not_found)
{
    static const char *const texts[] = {"<s>", "<s><s>", "s>", "\n\n"};
    static const struct {
        const char *text;
        struct text_span literal[2];
        size_t n;
        const char *found;
    } cases[] = {
        {"<s>a<s>", {{0}}, 0, "0@0 0@4"},
        {"<s>a<s>", {{4, 7}}, 1, "0@0 2@5"},
        {"<s>a<s>", {{0, 3}, {4, 7}}, 2, "2@1 2@5"},
        {"<s><s>", {{3, 6}}, 1, "0@0 2@4"},
        {"<s><s>", {{0}}, 0, "1@0"},
        {"<s>", {{1, 2}}, 1, "2@1"},
        {"<s>", {{2, 2}}, 1, "2@1"},
        {"\n\n<s>", {{0, 2}}, 1, "3@0 0@2"},
    };
    struct added_tokens_fixture f;
    char got[256];
    make(&f, texts, 4, 3); /* the first two are special */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(found(&f, cases[i].text, cases[i].literal, cases[i].n, got, sizeof got),
                   cases[i].found) != 0)
            fail_msg("case %zu: %s, expected %s", i, got, cases[i].found);
    arena_free(&f.arena);
}

/* A walk from every place to the end of the longest token took 21 s. */
TEST(a_megabyte_beside_3000_nested_tokens_takes_less_than_a_second)
{
    enum { TOKENS = 3000, SIZE = 1 << 20 };
    struct added_tokens_fixture f = {{0}, {0}};
    f.tokens.arena = &f.arena;
    struct err e = {0};
    char *text = malloc(SIZE);
    memset(text, 'a', SIZE);
    for (uint32_t i = 1; i <= TOKENS; i++) {
        text[i] = 'b';
        assert_int_equal(
            added_tokens_add(&f.tokens, text, i + 1, &(struct added_token){.id = i}, &e), 0);
        text[i] = 'a';
    }
    assert_int_equal(added_tokens_finish(&f.tokens, &e), 0);
    struct added_scan s = {0};
    size_t start, end;
    uint32_t id;
    clock_t before = clock();
    assert_int_equal(added_scan_start(&s, &f.tokens, text, SIZE, NULL, 0, &e), 0);
    assert_false(added_scan_next(&s, 0, &start, &end, &id));
    text[SIZE - 1] = 'b';
    assert_int_equal(added_scan_start(&s, &f.tokens, text, SIZE, NULL, 0, &e), 0);
    assert_true(added_scan_next(&s, 0, &start, &end, &id));
    assert_int_equal(end - start, TOKENS + 1);
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    if (seconds > env_time_scale())
        fail_msg("%.1f s", seconds);
    added_scan_free(&s);
    arena_free(&f.arena);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_tokens_are_found_as_by_a_plain_search),
        cmocka_unit_test(special_tokens_that_touch_literal_text_are_not_found),
        cmocka_unit_test(a_megabyte_beside_3000_nested_tokens_takes_less_than_a_second),
    };
    return cmocka_run_group_tests_name("added_tokens", tests, NULL, NULL);
}
