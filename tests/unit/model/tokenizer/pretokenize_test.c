/* Text to words by the patterns that files name or spell out, and what is done to text before. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "common/json.h"
#include "model/tokenizer/normalize.h"
#include "model/tokenizer/pretokenize.h"
#include "tests/share.h"
#include "tests/test.h"

/* Words with | between them. */
static void expect_words(const struct pretokenizer *p, const char *text, const char *expected)
{
    struct words w = {0};
    struct buffer got = {0};
    struct err e = {0};
    if (pretokenizer_run(p, text, strlen(text), true, &w, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    const struct word *words = (const struct word *)(const void *)w.ranges.data;
    for (size_t i = 0; i < w.ranges.size / sizeof *words; i++) {
        if (i)
            buffer_append(&got, "|", 1);
        buffer_append(&got, w.text.data + words[i].start, words[i].end - words[i].start);
    }
    if (strcmp(buffer_cstr(&got), expected) != 0)
        fail_msg("\"%s\": \"%s\", expected \"%s\"", text, buffer_cstr(&got), expected);
    buffer_free(&got);
    words_free(&w);
}

TEST(named_patterns_cut_as_their_models_do)
{
    static const struct {
        const char *name, *text, *words;
    } cases[] = {
        {"llama-bpe", "Hello  world, I'LL pay 12345$!\n\n x",
         "Hello|Ġ|Ġworld|,|ĠI|'LL|Ġpay|Ġ|123|45|$!ĊĊ|Ġx"},
        {"qwen2", "Hello  world, I'LL pay 123$!\n x",
         "Hello|Ġ|Ġworld|,|ĠI|'LL|Ġpay|Ġ|1|2|3|$!Ċ|Ġx"},
        {"gpt-2", "Hello  world, I'LL I'll 123$!\n x",
         "Hello|Ġ|Ġworld|,|ĠI|'|LL|ĠI|'ll|Ġ123|$!|Ċ|Ġx"},
        {"starcoder", "a12 b", "a|1|2|Ġb"},
        {"gpt-4o", "camelCase ABCdef don't", "camel|Case|ĠABCdef|Ġdon't"},
        {"tekken", "camelCase 12", "camel|Case|Ġ|1|2"},
        {"deepseek-v3", "ab12345 cd,ef", "ab|123|45|Ġcd|,ef"},
        {"afmoe", "ab1234567 cd,ef 12345 x\xe6\xbc\xa2\xe5\xad\x97y",
         "ab|1|234|567|Ġcd|,ef|Ġ|12|345|Ġx|æ¼¢åŃĹ|y"},
        {"default", "ab... 1234", "ab|...|Ġ|123|4"},
        {"llama-bpe", "", ""},
        {"llama-bpe", " \t ", "ĠĉĠ"},
        {"llama-bpe", "a \r\n \n b", "a|ĠčĊĠĊ|Ġb"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pretokenizer p = {.n_steps = 0};
        struct err e = {0};
        if (pretokenizer_add_named(&p, cases[i].name, strlen(cases[i].name), &e) < 0)
            fail_msg("%s: %s", cases[i].name, e.text);
        expect_words(&p, cases[i].text, cases[i].words);
        pretokenizer_fini(&p);
    }
}

/* What Hugging Face's library makes of texts: cases/names.json, made by make_names.py beside it. */
TEST(names_of_gguf_files_cut_as_the_library_does_with_the_models_own_files)
{
    struct json_at at;
    json_t *root, *entry, *one;
    struct err e = {0};
    size_t i, k, w;
    if (json_load_at("tests/unit/model/tokenizer/cases/names.json", &root, &at, &e) < 0)
        fail_msg("%s", e.text);
    json_array_foreach(root, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        struct pretokenizer p = {.n_steps = 0};
        if (pretokenizer_add_named(&p, name, strlen(name), &e) < 0)
            fail_msg("%s: %s", name, e.text);
        json_array_foreach(json_object_get(entry, "cases"), k, one)
        {
            struct buffer words = {0};
            const json_t *list = json_array_get(one, 1);
            for (w = 0; w < json_array_size(list); w++)
                buffer_printf(&words, w ? "|%s" : "%s", json_string_value(json_array_get(list, w)));
            expect_words(&p, json_string_value(json_array_get(one, 0)), buffer_cstr(&words));
            buffer_free(&words);
        }
        pretokenizer_fini(&p);
    }
    assert_true(i >= 20);
    json_decref(root);
}

TEST(an_unknown_name_is_refused_with_the_list_of_those_that_are_known)
{
    struct pretokenizer p = {.n_steps = 0};
    struct err e = {0};
    assert_int_equal(pretokenizer_add_named(&p, "made-up", 7, &e), HP_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "the pre-tokenizer \"made-up\" is not known; known are llama"));
    assert_non_null(strstr(e.text, ", default")); /* the last one: all fit */
    pretokenizer_fini(&p);
}

TEST(white_space_is_what_unicode_says)
{
    struct pretokenizer p = {.n_steps = 0};
    struct err e = {0};
    assert_int_equal(pretokenizer_add_split(&p, "\\s+", SPLIT_ISOLATED, false, &e), 0);
    expect_words(&p, "a\u2028\u00a0\u3000b\u180ec\u200bd", "a|\u2028\u00a0\u3000|b\u180ec\u200bd");
    pretokenizer_fini(&p);
    assert_int_equal(pretokenizer_add_split(&p, "[^\\s\\w]\\S?", SPLIT_ISOLATED, false, &e), 0);
    expect_words(&p, "a-b -\u0301c_-", "a|-b| |-\u0301|c_|-");
    pretokenizer_fini(&p);
}

TEST(matches_are_kept_dropped_or_joined)
{
    static const struct {
        enum split_behavior behavior;
        bool invert;
        const char *words;
    } cases[] = {
        {SPLIT_ISOLATED, false, "-|-|a|-|b|-"},  {SPLIT_REMOVED, false, "a|b"},
        {SPLIT_WITH_BEFORE, false, "-|-|a-|b-"}, {SPLIT_WITH_NEXT, false, "-|-a|-b|-"},
        {SPLIT_CONTIGUOUS, false, "--|a|-|b|-"}, {SPLIT_REMOVED, true, "-|-|-|-"},
        {SPLIT_WITH_BEFORE, true, "-|-a|-b|-"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pretokenizer p = {.n_steps = 0};
        struct err e = {0};
        assert_int_equal(pretokenizer_add_split(&p, "-", cases[i].behavior, cases[i].invert, &e),
                         0);
        expect_words(&p, "--a-b-", cases[i].words);
        pretokenizer_fini(&p);
    }
}

TEST(byte_characters_go_there_and_back)
{
    for (int i = 0; i < 256; i++) {
        struct buffer b = {0};
        pretokenize_byte_append(&b, (uint8_t)i);
        uint32_t c =
            b.size == 1 ? b.data[0] : (uint32_t)(b.data[0] & 0x1F) << 6 | (b.data[1] & 0x3F);
        assert_int_equal(pretokenize_byte_of(c), i);
        buffer_free(&b);
    }
    static const uint32_t strangers[] = {' ', '\n', 0xAD, 0x144, 0x2581, 0x10FFFF};
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        assert_int_equal(pretokenize_byte_of(strangers[i]), -1);
}

/* What backtracks without end, in one match or a little in each of very many, and what looks ahead
 * to the end from every place. */
TEST(hostile_patterns_are_stopped_by_name_in_time)
{
    static const struct {
        const char *regex;
        size_t size;
    } cases[] = {
        {"(a+)+$", 64},
        {"(?:a|a){26}c|a", 300},
        {"(?:a|a){26}[cd]", 300},
        {"(?:a|a){18}c|a", 100000},
        {"(?=.*x)a|a", 1000000},
        {"(?=[a-w]*x)a|a", 1000000},
        {"(?:(?=[a-w]*x)b|a)*[cd]", 1000000},
    };
    enum { LONGEST = 1000000 };
    char *text = malloc(LONGEST);
    memset(text, 'a', LONGEST);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += (size_t)test_stride()) {
        struct pretokenizer p = {.n_steps = 0};
        struct words w = {0};
        struct err e = {0};
        text[63] = cases[i].size == 64 ? 'b' : 'a';
        assert_int_equal(pretokenizer_add_split(&p, cases[i].regex, SPLIT_ISOLATED, false, &e), 0);
        clock_t before = clock();
        int rc = pretokenizer_run(&p, text, cases[i].size, true, &w, &e);
        double seconds = (double)(clock() - before) / CLOCKS_PER_SEC,
               allowed = 1 + (double)cases[i].size * 4e-6;
        if (rc != HP_ELIMIT || !strstr(e.text, "the tokenizer's pattern \"") ||
            !strstr(e.text, cases[i].regex))
            fail_msg("%s: %d %s", cases[i].regex, rc, e.text);
        if (seconds > allowed * env_time_scale())
            fail_msg("%s: %.2f s", cases[i].regex, seconds);
        words_free(&w);
        pretokenizer_fini(&p);
    }
    free(text);
}

TEST(text_is_normalised_step_by_step)
{
    static const struct normalizer nfc = {.steps = {{.kind = NORMALIZE_NFC}}, .n_steps = 1},
                                   nfd = {.steps = {{.kind = NORMALIZE_NFD}}, .n_steps = 1},
                                   nfkc = {.steps = {{.kind = NORMALIZE_NFKC}}, .n_steps = 1},
                                   pieces = {.steps = {{.kind = NORMALIZE_PREPEND,
                                                        .with = "_",
                                                        .with_size = 1},
                                                       {.kind = NORMALIZE_REPLACE,
                                                        .what = "ab",
                                                        .with = "x",
                                                        .what_size = 2,
                                                        .with_size = 1}},
                                             .n_steps = 2};
    static const struct {
        const struct normalizer *n;
        const char *text, *expected;
    } cases[] = {
        {&nfc, "e\u0301 \u212b \u1100\u1161\u11a8", "é Å 각"},
        {&nfc, "a\u0301\u0323", "\u1ea1\u0301"},
        {&nfd, "é 각", "e\u0301 \u1100\u1161\u11a8"},
        {&nfkc, "\ufb01 \u2460 \u00bd", "fi 1 1\u20442"},
        {&pieces, "abcab", "_xcx"},
        {&pieces, "", ""},
        {&nfc, "plain", "plain"},
        {&nfc, "\u0958\u0344", "\u0915\u093c\u0308\u0301"},
    };
    struct buffer out = {0}, scratch = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(normalizer_run(cases[i].n, cases[i].text, strlen(cases[i].text), true,
                                        &out, &scratch, NULL),
                         0);
        assert_string_equal(buffer_cstr(&out), cases[i].expected);
    }
    buffer_free(&out);
    buffer_free(&scratch);
}

TEST(a_long_run_of_marks_is_ordered_without_quadratic_time)
{
    enum { PAIRS = 100000 };
    static const struct normalizer nfd = {.steps = {{.kind = NORMALIZE_NFD}}, .n_steps = 1};
    char *text = malloc(PAIRS * 4);
    assert_non_null(text);
    for (size_t i = 0; i < PAIRS; i++)
        memcpy(text + 4 * i, "\u0301\u0323", 4);
    struct buffer out = {0}, scratch = {0};
    assert_int_equal(normalizer_run(&nfd, text, PAIRS * 4, true, &out, &scratch, NULL), 0);
    assert_int_equal(out.size, PAIRS * 4);
    assert_memory_equal(out.data, "\u0323\u0323", 4);
    assert_memory_equal(out.data + out.size - 4, "\u0301\u0301", 4);
    free(text);
    buffer_free(&out);
    buffer_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_patterns_cut_as_their_models_do),
        cmocka_unit_test(names_of_gguf_files_cut_as_the_library_does_with_the_models_own_files),
        cmocka_unit_test(an_unknown_name_is_refused_with_the_list_of_those_that_are_known),
        cmocka_unit_test(white_space_is_what_unicode_says),
        cmocka_unit_test(matches_are_kept_dropped_or_joined),
        cmocka_unit_test(byte_characters_go_there_and_back),
        cmocka_unit_test(hostile_patterns_are_stopped_by_name_in_time),
        cmocka_unit_test(text_is_normalised_step_by_step),
        cmocka_unit_test(a_long_run_of_marks_is_ordered_without_quadratic_time),
    };
    return cmocka_run_group_tests_name("pretokenize", tests, NULL, NULL);
}
