/* Stop strings over a stream. The tokenizer is a byte a token, so that every split is tried. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/completion.h"
#include "coordinator/gateway/openai_body.h"
#include "tests/unit/coordinator/gateway/byte_tokenizer.h"

/* Feeds text, a token a byte, and collects what is handed out after every `step` of them. */
static void feed(struct completion_text *c, const char *text, size_t step, struct buffer *out)
{
    size_t n = strlen(text), given;
    for (size_t i = 0; i < n && !c->stopped; i += step) {
        size_t take = i + step > n ? n - i : step;
        byte_tokens_push(c, text + i, take);
        const char *piece = completion_take(c, &given);
        buffer_append(out, piece, given);
    }
    completion_finish(c);
    const char *piece = completion_take(c, &given);
    buffer_append(out, piece, given);
}

TEST(a_stop_string_is_found_across_tokens_and_never_handed_out)
{
    static const struct {
        const char *text, *stops[3], *expected;
        bool stopped;
    } cases[] = {
        {"hello world", {NULL}, "hello world", false},
        {"hello world", {"wor"}, "hello ", true},
        {"hello world", {"world!"}, "hello world", false},
        {"aaab", {"ab"}, "aa", true},
        {"one\n\ntwo", {"\n\n", "two"}, "one", true},
        {"abcabd", {"abd"}, "abc", true},
        {"x<|e", {"<|end|>"}, "x<|e", false},
        {"stop", {"stop"}, "", true},
        {"h\u00e9llo \u20ac.", {"o \u20ac"}, "h\u00e9ll", true},
        {"\u20ac\u20ac", {"\u20ac!"}, "\u20ac\u20ac", false},
    };
    struct tokenizer *bytes = byte_tokenizer_create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 4; step++) {
            struct completion_text c;
            struct buffer out = {0};
            completion_init(&c, bytes, true);
            for (int k = 0; k < 3 && cases[i].stops[k]; k++)
                assert_true(completion_add_stop(&c, cases[i].stops[k]));
            feed(&c, cases[i].text, step, &out);
            assert_string_equal(buffer_cstr(&out), cases[i].expected);
            completion_fini(&c);
            buffer_free(&out);
        }
    tokenizer_destroy(&bytes);
}

/* The first line is the prompt's; blank ones count, as in llama-server. */
TEST(a_line_that_is_indented_too_little_ends_the_text_behind_its_blanks)
{
    static const struct {
        uint32_t least;
        const char *text, *stop, *expected;
        bool limited;
    } cases[] = {
        {4, "a\n    b\n\t\t\t\tc", NULL, "a\n    b\n\t\t\t\tc", false},
        {4, "a\n    b\n  c\n    d", NULL, "a\n    b\n  ", true},
        {4, "a\n    b\n   ", NULL, "a\n    b\n   ", false},
        {1, "a\n\nb", NULL, "a\n", true},
        {1, "a\n\xC3\xA9", NULL, "a\n", true},
        {2, "a\n  b\nc", "b", "a\n  ", false},
        {2, "a\nc", "c", "a\n", true},
        {0, "a\nb", NULL, "a\nb", false},
    };
    struct tokenizer *bytes = byte_tokenizer_create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 4; step++) {
            struct completion_text c;
            struct buffer out = {0};
            completion_init(&c, bytes, true);
            c.least_indent = cases[i].least;
            if (cases[i].stop)
                assert_true(completion_add_stop(&c, cases[i].stop));
            feed(&c, cases[i].text, step, &out);
            if (strcmp(buffer_cstr(&out), cases[i].expected) != 0 || c.limited != cases[i].limited)
                fail_msg("case %zu, step %zu: %s, %d", i, step, buffer_cstr(&out), c.limited);
            assert_int_equal(c.has_line, true);
            completion_fini(&c);
            buffer_free(&out);
        }
    tokenizer_destroy(&bytes);
}

TEST(bodies_are_refused_by_the_field_that_is_wrong)
{
    static const struct {
        bool chat;
        const char *body, *param;
    } cases[] = {
        {true, "{\"model\": \"m\"}", "messages"},
        {true, "{\"model\": \"m\", \"messages\": []}", "messages"},
        {true, "{\"model\": 7, \"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}", "model"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"samplers\": [\"infill\"]}", "samplers"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"samplers\": [\"top_p\", 7]}", "samplers"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"samplers\": {}}", "samplers"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"repeat_last_n\": 1e999}", NULL},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"min_keep\": 5}", "min_keep"},
        {true, "{\"model\": \"m\", \"messages\": [{\"content\": \"x\"}]}", "messages"},
        {true, "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"contents\": \"x\"}]}",
         "messages"},
        {true,
         "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
         "\"image_url\"}]}]}",
         "messages"},
        {false, "{\"model\": \"m\", \"prompt\": \"\"}", "prompt"},
        {false, "{\"model\": \"m\", \"prompt\": []}", "prompt"},
        {false, "{\"model\": \"m\", \"prompt\": [1, -2]}", "prompt"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"n\": 0}", "n"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"n\": 129}", "n"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"n\": 1000000000}", "n"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"n\": 1.5}", "n"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"n\": \"2\"}", "n"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"n\": 3, \"best_of\": 2}", "best_of"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"best_of\": 2, \"stream\": true}",
         "best_of"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"tools\": [{}]}", "tools"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"temperature\": -1}", "temperature"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"top_p\": \"a\"}", "top_p"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"max_tokens\": 1.5}", "max_tokens"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"max_tokens\": 0}", "max_tokens"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"max_completion_tokens\": -2}",
         "max_completion_tokens"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"stop\": [\"\", 1]}", "stop"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"logit_bias\": {\"a\": 1}}", "logit_bias"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"stream\": 1}", "stream"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"seed\": 99999999999999999999999}", "seed"},
        {false, "{\"model\": \"m\", \"prompt\": {\"a\": 1}}", "prompt"},
        {false, "{\"model\": \"m\", \"prompt\": [\"x\", \"\"]}", "prompt"},
        {false, "{\"model\": \"m\", \"prompt\": [\"x\", 1]}", "prompt"},
        {false, "{\"model\": \"m\", \"prompt\": [[1], [2, -1]]}", "prompt"},
        {false, "{\"model\": \"m\", \"prompt\": [\"a\", \"b\", \"c\", \"d\", \"e\"], \"n\": 128}",
         "n"},
        {true,
         "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], "
         "\"continue_final_message\": true}",
         "continue_final_message"},
        {true,
         "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], "
         "\"chat_template_kwargs\": {\"tools\": []}}",
         "chat_template_kwargs"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"stop_token_ids\": [-1]}",
         "stop_token_ids"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"tool_choice\": \"required\"}",
         "tool_choice"},
        {false, "{\"model\": \"m\", \"prompt\": \"x\", \"reasoning_format\": \"bold\"}",
         "reasoning_format"},
        {false, "{\"model\": \"m\", \"prompt\": \"\\u0000\"}", "prompt"},
        {false, "nonsense", NULL},
        {false, "{\"model\": \"m\", \"prompt\": \"\xff\"}", "prompt"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct openai_body *b = NULL;
        const char *param;
        struct err e = {0};
        assert_int_equal(
            openai_body_parse(cases[i].body, strlen(cases[i].body), cases[i].chat, &b, &param, &e),
            HP_EINVAL);
        if ((param == NULL) != (cases[i].param == NULL) ||
            (param && strcmp(param, cases[i].param) != 0))
            fail_msg("%s: refused by \"%s\": %s", cases[i].body, param ? param : "(none)", e.text);
    }
}

/* `n` times `part` between `head` and `tail`. */
static void refused_before_a_tree_is_built(const char *head, const char *part, size_t n,
                                           const char *tail, const char *word)
{
    struct buffer text = {0};
    struct openai_body *b = NULL;
    const char *param;
    struct err e = {0};
    buffer_append(&text, head, strlen(head));
    for (size_t i = 0; i < n; i++)
        buffer_append(&text, part, strlen(part));
    buffer_append(&text, tail, strlen(tail));
    assert_int_equal(openai_body_parse(buffer_cstr(&text), text.size, true, &b, &param, &e),
                     HP_EINVAL);
    if (!strstr(e.text, word))
        fail_msg("\"%s\" does not say \"%s\"", e.text, word);
    buffer_free(&text);
}

TEST(bodies_of_too_many_values_or_levels_are_refused_before_a_tree_is_built)
{
    refused_before_a_tree_is_built("{\"x\": [", "[],", 600000, "[]]}", "values");
    refused_before_a_tree_is_built("{\"x\": [", "1,", 1000001, "1]}", "values");
    refused_before_a_tree_is_built("", "[", 65, "", "nested");
    refused_before_a_tree_is_built("", "{\"a\":", 100, "", "nested");
    /* Brackets and commas inside a text are text; what is missing here is another thing. */
    refused_before_a_tree_is_built("{\"x\": \"", "[,\\\"{", 400000, "\"}", "messages");
}

TEST(what_was_handed_out_is_forgotten_and_stops_are_still_found)
{
    struct completion_text c;
    struct buffer all = {0};
    size_t n;
    struct tokenizer *bytes = byte_tokenizer_create();
    completion_init(&c, bytes, true);
    assert_true(completion_add_stop(&c, "END"));
    for (int i = 0; i < 10000; i++) {
        byte_tokens_push(&c, i == 9000 ? "..E" : i == 9001 ? "ND.." : "abE", 3);
        const char *text = completion_take(&c, &n);
        buffer_append(&all, text, n);
        completion_forget_given(&c);
        assert_true(c.text.capacity <= 4096);
        if (c.stopped)
            break;
    }
    assert_true(c.stopped);
    assert_int_equal(all.size, 9000 * 3 + 2);
    completion_fini(&c);
    buffer_free(&all);
    tokenizer_destroy(&bytes);
}

TEST(a_body_is_read_with_its_defaults)
{
    static const char text[] =
        "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"a\"}, {\"type\": \"text\", "
        "\"text\": \"b\"}]}], \"stream\": true, \"stream_options\": {\"include_usage\": true}, "
        "\"max_completion_tokens\": 7, \"seed\": 5, \"priority\": -3, "
        "\"stop\": \"x\", \"unknown\": 1, \"n\": 1, \"tools\": null, \"logit_bias\": {\"3\": "
        "-100}}";
    struct openai_body *b = NULL;
    const char *param;
    struct err e = {0};
    if (openai_body_parse(text, strlen(text), true, &b, &param, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(b->stream && b->include_usage && b->max_tokens == 7 && b->n_stops == 1 &&
                b->priority == -3);
    assert_true(b->sampling.seed == 5 && b->sampling.temperature == 1 &&
                b->sampling.bias.count == 1);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(b->messages, 0), "content")), "ab");
    openai_body_destroy(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_string_is_found_across_tokens_and_never_handed_out),
        cmocka_unit_test(a_line_that_is_indented_too_little_ends_the_text_behind_its_blanks),
        cmocka_unit_test(bodies_are_refused_by_the_field_that_is_wrong),
        cmocka_unit_test(bodies_of_too_many_values_or_levels_are_refused_before_a_tree_is_built),
        cmocka_unit_test(what_was_handed_out_is_forgotten_and_stops_are_still_found),
        cmocka_unit_test(a_body_is_read_with_its_defaults),
    };
    return cmocka_run_group_tests_name("completion", tests, NULL, NULL);
}
