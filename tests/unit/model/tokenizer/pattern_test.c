/* Patterns against the library whose dialect they are in:
 * tests/unit/model/tokenizer/cases/patterns.json, made by make_patterns.py beside it. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "model/tokenizer/pattern_rewrite.h"
#include "model/tokenizer/pretokenize.h"
#include "tests/test.h"

static int check(json_t *c)
{
    const char *text = json_string_value(json_object_get(c, "text")),
               *regex = json_string_value(json_object_get(c, "pattern"));
    struct pretokenizer p = {.n_steps = 0};
    struct words w = {0};
    struct buffer got = {0}, wanted = {0};
    struct err e = {0};
    if (pretokenizer_add_split(&p, regex, SPLIT_ISOLATED, false, &e) < 0 ||
        pretokenizer_run(&p, text, strlen(text), true, &w, &e) < 0)
        fail_msg("%s: %s", regex, e.text);
    const struct word *words = (const struct word *)(const void *)w.ranges.data;
    for (size_t i = 0; i < w.ranges.size / sizeof *words; i++)
        buffer_printf(&got, "%.*s|", (int)(words[i].end - words[i].start),
                      (const char *)w.text.data + words[i].start);
    size_t i;
    json_t *word;
    json_array_foreach(json_object_get(c, "words"), i, word)
        buffer_printf(&wanted, "%s|", json_string_value(word));
    int bad = strcmp(buffer_cstr(&got), buffer_cstr(&wanted)) != 0;
    if (bad)
        print_error("%s on \"%s\": %s, expected %s\n", regex, text, buffer_cstr(&got),
                    buffer_cstr(&wanted));
    buffer_free(&got);
    buffer_free(&wanted);
    words_free(&w);
    pretokenizer_fini(&p);
    return bad;
}

TEST(words_are_those_of_the_library)
{
    json_t *cases, *c;
    struct json_at at;
    struct err e = {0};
    size_t i;
    int bad = 0;
    if (json_load_at("tests/unit/model/tokenizer/cases/patterns.json", &cases, &at, &e) < 0)
        fail_msg("%s", e.text);
    json_array_foreach(cases, i, c) bad += check(c);
    assert_int_equal(bad, 0);
    assert_true(json_array_size(cases) > 300);
    json_decref(cases);
}

/* Places where no match can begin are passed over without being tried: none that counts. */
TEST(matches_begin_wherever_they_may)
{
    static const struct {
        const char *regex, *text;
        size_t start, end;
    } cases[] = {
        {"\\p{N}{1,3}", "ab 1234", 3, 6},
        {"(?<=a)b", "b ab", 3, 4},
        {"(?<!a)b", "ab b", 3, 4},
        {"\\bb", "ab b", 3, 4},
        {"^b", "a\nb", 2, 3},
        {"x(?=y)|\\p{Lu}z", "x xy", 2, 3},
        {"(?!a)\\p{L}+", "aab", 2, 3},
        {"(?i:s)\\p{L}", "aSb", 1, 3},
        {"\\p{L}$", "1ab", 2, 3},
        {"(?>a|b)c?", "xb", 1, 2},
        {"(?i)\u017f", "xs", 1, 2}, /* a long s is an s */
        {"[^\\p{L}]\\p{M}", "ab\u0301 \u0301", 4, 7},
        {"\\s*$", "ab", 2, 2}, /* nothing, behind the last character */
        {"(?!\\p{L})", "ab", 2, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pattern *p;
        struct pattern_search *search = pattern_search_create();
        struct err e = {0};
        size_t start = 99, end = 99;
        if (pattern_compile(cases[i].regex, strlen(cases[i].regex), &p, &e) < 0)
            fail_msg("%s: %s", cases[i].regex, e.text);
        int rc = pattern_find(p, search, cases[i].text, strlen(cases[i].text), 0, &start, &end, &e);
        if (rc != 1 || start != cases[i].start || end != cases[i].end)
            fail_msg("%s on \"%s\": %d, %zu to %zu", cases[i].regex, cases[i].text, rc, start, end);
        pattern_search_destroy(&search);
        pattern_destroy(&p);
    }
}

TEST(ordinary_classes_are_left_as_they_are)
{
    static const char *const same[] = {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+",
                                       "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+",
                                       "[[:space:]a]", "a[", "\\"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct buffer out = {0};
        pattern_rewrite(same[i], strlen(same[i]), &out);
        if (i < 3)
            assert_string_equal(buffer_cstr(&out), same[i]);
        buffer_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_those_of_the_library),
        cmocka_unit_test(matches_begin_wherever_they_may),
        cmocka_unit_test(ordinary_classes_are_left_as_they_are),
    };
    return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
