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
        pretokenize(&p, text, strlen(text), true, &w, &e) < 0)
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
        cmocka_unit_test(ordinary_classes_are_left_as_they_are),
    };
    return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
