/* Answers taken apart: calls, reasoning, text; whatever the pieces in which they come. */
#include <stdlib.h>

#include "coordinator/gateway/answer_reader.h"
#include "tests/test.h"

static char *offered[] = {"now", "weather"};
static const struct tool_names names = {offered, 2};
static const char hermes[] = "{{ '<tool_call>' }}", mistral[] = "[TOOL_CALLS]",
                  llama[] = "<|python_tag|>", pythonic[] = "[func_name1(",
                  channels[] = "<|channel|>";

/* What is told, as text: T(..) R(..) C(name arguments); neighbours of one kind are one. */
struct told_parts {
    struct buffer out;
    char kind;
};

static void told_begin(struct told_parts *t, char kind)
{
    if (t->kind == kind && kind != 'C')
        return;
    buffer_printf(&t->out, "%s%c(", t->kind ? ")" : "", kind);
    t->kind = kind;
}

static void on_text(void *ctx, const char *text, size_t n)
{
    struct told_parts *t = ctx;
    told_begin(t, 'T');
    buffer_append(&t->out, text, n);
}

static void on_reasoning(void *ctx, const char *text, size_t n)
{
    struct told_parts *t = ctx;
    told_begin(t, 'R');
    buffer_append(&t->out, text, n);
}

static void on_call(void *ctx, const struct tool_call *call)
{
    struct told_parts *t = ctx;
    told_begin(t, 'C');
    buffer_printf(&t->out, "%s %.*s", call->name, (int)call->n_arguments, call->arguments);
}

static struct buffer read_in_two(const struct answer_rules *rules, const char *text, size_t n,
                                 size_t cut, bool bytes)
{
    struct told_parts t = {0};
    struct answer_sink sink = {&t, on_text, on_reasoning, on_call};
    struct answer_reader r;
    answer_reader_init(&r, rules);
    for (size_t i = 0; bytes && i < n; i++)
        answer_reader_push(&r, text + i, 1, &sink);
    if (!bytes) {
        answer_reader_push(&r, text, cut, &sink);
        answer_reader_push(&r, text + cut, n - cut, &sink);
    }
    answer_reader_finish(&r, &sink);
    assert_false(r.held.failed);
    answer_reader_free(&r);
    buffer_printf(&t.out, "%s", t.kind ? ")" : "");
    return t.out;
}

/* The same however it is cut. */
static void assert_read(const struct answer_rules *rules, const char *text, const char *expected)
{
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        struct buffer got = read_in_two(rules, text, n, cut > n ? n : cut, cut > n);
        if (strcmp(buffer_cstr(&got), expected) != 0)
            fail_msg("%s\ncut at %zu of %zu:\n%s\nis not\n%s", text, cut, n, buffer_cstr(&got),
                     expected);
        buffer_free(&got);
    }
}

struct expectation {
    const char *text, *told;
};

static void assert_all(const struct answer_rules *rules, const struct expectation *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_read(rules, cases[i].text, cases[i].told);
}

#define ASSERT_ALL(rules, cases) assert_all(rules, cases, sizeof(cases) / sizeof *(cases))

TEST(calls_between_marks_are_told_and_what_is_none_stays_text)
{
    static const struct expectation cases[] = {
        {"Hello <b>you</b> <tool", "T(Hello <b>you</b> <tool)"},
        {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"a}\\\"]\", \"x\": 0.10}}"
         "\n</tool_call>",
         "C(weather {\"city\": \"a}\\\"]\", \"x\": 0.10})"},
        {"Let me see.\n<tool_call>{\"name\": \"now\"}</tool_call>\n<tool_call>{\"arguments\": "
         "{\"name\": 1}, \"name\": \"weather\"}</tool_call>\nDone. ",
         "T(Let me see.)C(now {})C(weather {\"name\": 1})T(Done. )"},
        {"<tool_call>{\"name\": \"now\"}", "C(now {})"},
        {"<tool_call>{\"name\": \"now\"}</tool", "C(now {})"},
        {"<tool_call>{\"name\": \"now\"}\n<tool_call>{\"name\": \"now\"}", "C(now {})C(now {})"},
        {" \n<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>",
         "T( \n<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>)"},
        {"<tool_call>no JSON</tool_call>", "T(<tool_call>no JSON</tool_call>)"},
        {"<tool_call>{\"name\": \"now\", \"arguments\": 5}</tool_call>",
         "T(<tool_call>{\"name\": \"now\", \"arguments\": 5}</tool_call>)"},
        {"<tool_call>{\"name\": \"now\"</tool_call><tool_call>{\"name\": \"now\"}</tool_call>",
         "T(<tool_call>{\"name\": \"now\"</tool_call>)C(now {})"},
        {"<tool_call>{\"name\": \"now\", \"arg", "T(<tool_call>{\"name\": \"now\", \"arg)"},
        {"<tool_call>{\"name\": \"now\", \"n\\u0061me\": \"now\"}</tool_call>",
         "T(<tool_call>{\"name\": \"now\", \"n\\u0061me\": \"now\"}</tool_call>)"},
        {"<tool_call>{\"name\": \"now\", \"arguments\": {\"x\": \"</tool_call>\"}}</tool_call>",
         "C(now {\"x\": \"</tool_call>\"})"},
    };
    struct answer_rules rules = {.format = tool_format_of(hermes), .names = &names};
    ASSERT_ALL(&rules, cases);
    rules.one_call = true;
    assert_read(&rules,
                "a<tool_call>{\"name\": \"now\"}</tool_call><tool_call>{\"name\": \"now\"}b",
                "T(a)C(now {})");
}

TEST(a_list_of_calls_is_told_whole)
{
    static const struct expectation cases[] = {
        {"[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"a\": [1, {}]}}, {\"name\": "
         "\"now\", \"arguments\": {}, \"id\": \"x\"} ]",
         "C(weather {\"a\": [1, {}]})C(now {})"},
        {"Well, [TOOL_CALLS][{\"name\": \"now\"}] so", "T(Well,)C(now {})T(so)"},
        {"[TOOL_CALLS][{\"name\": \"now\"}, {\"name\": \"other\"}]",
         "T([TOOL_CALLS][{\"name\": \"now\"}, {\"name\": \"other\"}])"},
        {"[TOOL_CALLS][]", "T([TOOL_CALLS][])"},
        {"[TOOL_CALLS]{\"name\": \"now\"}", "T([TOOL_CALLS]{\"name\": \"now\"})"},
        {"[{\"name\": \"now\"}]", "T([{\"name\": \"now\"}])"},
    };
    struct answer_rules rules = {.format = tool_format_of(mistral), .names = &names};
    ASSERT_ALL(&rules, cases);
    rules.one_call = true;
    assert_read(&rules, "[TOOL_CALLS][{\"name\": \"now\"}, {\"name\": \"weather\"}]", "C(now {})");
}

TEST(an_answer_that_is_a_call_is_one_and_one_that_has_a_call_is_text)
{
    static const struct expectation cases[] = {
        {" {\"name\": \"weather\", \"parameters\": {\"city\": \"Ulm\"}}\n",
         "C(weather {\"city\": \"Ulm\"})"},
        {"<|python_tag|>{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"weather\", "
         "\"parameters\": {\"a\": \"{\"}}",
         "C(now {})C(weather {\"a\": \"{\"})"},
        {"{\"name\": \"now\", \"parameters\": {}} is what I say",
         "T({\"name\": \"now\", \"parameters\": {}} is what I say)"},
        {"{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\"",
         "T({\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\")"},
        {"{\"name\": \"now\"}", "T({\"name\": \"now\"})"},
        {"\n{\"name\": \"Ann\", \"parameters\": {}}",
         "T(\n{\"name\": \"Ann\", \"parameters\": {}})"},
        {"I say {\"name\": \"now\", \"parameters\": {}}",
         "T(I say {\"name\": \"now\", \"parameters\": {}})"},
        {"<|python_tag|>print(1)", "T(print(1))"},
        {"<|python", "T(<|python)"},
        {"", ""},
    };
    struct answer_rules rules = {.format = tool_format_of(llama), .names = &names};
    ASSERT_ALL(&rules, cases);
}

TEST(calls_as_python_has_them_are_told_with_their_arguments_as_json)
{
    static const struct expectation cases[] = {
        {"<|python_tag|>weather(city=\"Ulm\")", "C(weather {\"city\":\"Ulm\"})"},
        {"<|python_tag|>weather.call(city='a\\'b\\n\\u00e9\\x41', n = -1.5e3)",
         "C(weather {\"city\":\"a'b\\né"
         "A\",\"n\":-1.5e3})"},
        {"<|python_tag|>now(); weather(a=[1, (2, {'x': None})], b=True,)",
         "C(now {})C(weather {\"a\":[1,[2,{\"x\":null}]],\"b\":true})"},
        {" [weather(city=\"[)\"), now()]\n", "C(weather {\"city\":\"[)\"})C(now {})"},
        {"[ now()]; [now(x={})]", "C(now {})C(now {\"x\":{}})"},
        {"<|python_tag|>print(1)", "T(print(1))"},
        {"<|python_tag|>weather(city)", "T(weather(city))"},
        {"<|python_tag|>weather(a=1, a=2)", "T(weather(a=1, a=2))"},
        {"<|python_tag|>weather(a=01)", "T(weather(a=01))"},
        {"<|python_tag|>weather(a=\"\\u0000\")", "T(weather(a=\"\\u0000\"))"},
        {"<|python_tag|>weather(a=\"\\ud800\")", "T(weather(a=\"\\ud800\"))"},
        {"<|python_tag|>weather(a=open('x'))", "T(weather(a=open('x')))"},
        {"now()", "T(now())"},
        {"[now() is a call", "T([now() is a call)"},
        {"[now()] is a call", "T([now()] is a call)"},
        {"[nowhere()]", "T([nowhere()])"},
        {"[1, 2]", "T([1, 2])"},
        {"[no", "T([no)"},
        {"[]", "T([])"},
    };
    struct answer_rules rules = {.format = tool_format_of(llama), .names = &names};
    ASSERT_ALL(&rules, cases);
    rules.format = tool_format_of(pythonic);
    assert_read(&rules, "<|python_start|>[now(), weather(a=0)]<|python_end|>",
                "C(now {})C(weather {\"a\":0})");
    assert_read(&rules, "{\"name\": \"now\", \"parameters\": {}}", "C(now {})");
    rules.one_call = true;
    assert_read(&rules, "[now(), now()]", "C(now {})");
}

#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL "<|channel|>final<|message|>"
#define TO(name) "<|channel|>commentary to=functions." name " json<|message|>"
#define NEXT "<|end|><|start|>assistant"

TEST(messages_on_channels_are_reasoning_text_and_calls)
{
    static const struct expectation cases[] = {
        {ANALYSIS "Hm. <|call|>" NEXT FINAL "Yes.\n", "R(Hm. <|call|>)T(Yes.\n)"},
        {ANALYSIS "Hm." NEXT TO("weather") "{\"city\": \"<|end|>\"}<|call|>",
         "R(Hm.)C(weather {\"city\": \"<|end|>\"})"},
        {TO("now") " {}", "C(now {})"},
        {TO("now") "{}<|call|><|start|>assistant" TO("weather") "{\"a\": 1}\n<|call|>",
         "C(now {})C(weather {\"a\": 1})"},
        {" to=functions.weather<|channel|>commentary<|message|>{\"a\": []}",
         "C(weather {\"a\": []})"},
        {"<|start|>assistant" ANALYSIS "a" NEXT ANALYSIS "b" NEXT FINAL "c", "R(a\n\nb)T(c)"},
        {"<|channel|>commentary<|message|>First." NEXT FINAL "Then.", "T(First.\n\nThen.)"},
        {TO("other") "{}<|call|><|start|>assistant" TO("now") "{}", "T({})C(now {})"},
        {TO("now") "{\"a\"", "T({\"a\")"},
        {TO("now") "{\"a\": 1e999}", "T({\"a\": 1e999})"},
        {TO("now") "now", "T(now)"},
        {"<|channel|>analysis to=functions.nowhere<|message|>x", "R(x)"},
        {"Hello " FINAL "you", "T(Hello " FINAL "you)"},
        {FINAL "a<|end|>b", "T(ab)"},
        {"<|channel|>ana", ""},
        {FINAL, ""},
        {" to", "T( to)"},
        {"", ""},
    };
    struct answer_rules rules = {
        .format = tool_format_of(channels), .names = &names, .reasons = true};
    ASSERT_ALL(&rules, cases);
    rules.one_call = true;
    assert_read(&rules, TO("now") "{}<|call|><|start|>assistant" FINAL "x", "C(now {})");
    rules.reasons = false;
    assert_read(&rules, ANALYSIS "Hm." NEXT FINAL "Yes.", "T(<think>Hm.</think>\n\nYes.)");
}

TEST(reasoning_is_split_off_and_calls_follow_it)
{
    static const struct expectation cases[] = {
        {"<think>\nHm, \n so\n</think>\n\nYes.", "R(Hm, \n so)T(Yes.)"},
        {"\n<think></think>Yes.\n", "T(Yes.\n)"},
        {" Yes <think>no</think>", "T( Yes <think>no</think>)"},
        {"<think>never ends </thi", "R(never ends </thi)"},
        {"<think>a</think>\n<tool_call>{\"name\": \"now\"}</tool_call>", "R(a)C(now {})"},
        {"<think><tool_call>{\"name\": \"now\"}</tool_call></think>b",
         "R(<tool_call>{\"name\": \"now\"}</tool_call>)T(b)"},
        {"<thin", "T(<thin)"},
        {"  \n", "T(  \n)"},
        {"<think>a</think>  ", "R(a)"},
    };
    struct answer_rules rules = {
        .format = tool_format_of(hermes), .names = &names, .reasons = true};
    ASSERT_ALL(&rules, cases);
    rules.begun = true;
    assert_read(&rules, "\nso\n</think>\n\nYes", "R(so)T(Yes)");
    rules.format = tool_format_of(llama);
    assert_read(&rules, "so</think> {\"name\": \"now\", \"parameters\": {}}", "R(so)C(now {})");
    rules = (struct answer_rules){0};
    assert_read(&rules, "<think>a</think><tool_call>{}", "T(<think>a</think><tool_call>{})");
}

static struct buffer repeated(const char *head, const char *word, size_t times)
{
    struct buffer b = {0};
    buffer_append(&b, head, strlen(head));
    for (size_t i = 0; i < times; i++)
        buffer_append(&b, word, strlen(word));
    return b;
}

/* A token at a time, as it would come; seconds of processor time tell what is not linear. */
TEST(hostile_answers_come_out_as_text_in_time_that_grows_with_them)
{
    static const struct {
        const char *source, *head, *word;
        size_t times;
    } cases[] = {
        {hermes, "<tool_call>", "{\"a\":", 100000},
        {hermes, "<tool_call>{\"name\": ", "[", 100000},
        {hermes, "<tool_call>{\"name\": \"", "never ends ", 100000},
        {hermes, "", "<tool_call>", 100000},
        {hermes, "", "<tool_call>{", 100000},
        {hermes, "<tool_call>", " ", 1000000},
        {hermes, "x", "\n", 1000000},
        {mistral, "[TOOL_CALLS]", "[", 100000},
        {mistral, "", "[TOOL_CALLS][{\"name\": \"now\"},1]", 30000},
        {llama, "", "{\"name\": ", 100000},
        {llama, "{\"name\": \"now\", \"parameters\": {\"a\": [", "1,", 400000},
        {llama, "", "\n", 1000000},
        {llama, "[", " ", 1000000},
        {llama, "[now(a=", "[", 100000},
        {llama, "[now(a='", "\\'", 300000},
        {llama, "", "[now(a=1),", 100000},
        {channels, "", "<|start|>", 100000},
        {channels, " to=", "x", 1000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer_rules rules = {
            .format = tool_format_of(cases[i].source), .names = &names, .reasons = true};
        struct buffer text = repeated(cases[i].head, cases[i].word, cases[i].times), got;
        got = read_in_two(&rules, (const char *)text.data, text.size, 0, true);
        if (got.size != text.size + 3 || memcmp(got.data + 2, text.data, text.size) != 0)
            fail_msg("case %zu: %zu bytes became %zu: %.100s", i, text.size, got.size,
                     (const char *)got.data);
        buffer_free(&text);
        buffer_free(&got);
    }
}

TEST(a_template_tells_the_format)
{
    assert_string_equal(tool_format_of(hermes)->name, "hermes");
    assert_string_equal(tool_format_of(mistral)->name, "mistral");
    assert_string_equal(tool_format_of(llama)->name, "llama3");
    assert_string_equal(tool_format_of("{\"name\": function name, \"parameters\": dictionary of "
                                       "argument name and its value}")
                            ->name,
                        "llama3");
    assert_string_equal(tool_format_of(pythonic)->name, "pythonic");
    assert_string_equal(tool_format_of(channels)->name, "gpt-oss");
    assert_true(template_knows_reasoning(channels));
    assert_null(tool_format_of("<tool_call><function=x>"));
    assert_null(tool_format_of("<tool_call>f<arg_key>"));
    assert_null(tool_format_of("[TOOL_CALLS]f[ARGS]{}"));
    assert_null(tool_format_of("<|im_start|>"));
    assert_null(tool_format_of(NULL));
    assert_true(template_knows_reasoning("x</think>") && !template_knows_reasoning("think"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_between_marks_are_told_and_what_is_none_stays_text),
        cmocka_unit_test(a_list_of_calls_is_told_whole),
        cmocka_unit_test(an_answer_that_is_a_call_is_one_and_one_that_has_a_call_is_text),
        cmocka_unit_test(calls_as_python_has_them_are_told_with_their_arguments_as_json),
        cmocka_unit_test(messages_on_channels_are_reasoning_text_and_calls),
        cmocka_unit_test(reasoning_is_split_off_and_calls_follow_it),
        cmocka_unit_test(hostile_answers_come_out_as_text_in_time_that_grows_with_them),
        cmocka_unit_test(a_template_tells_the_format),
    };
    return cmocka_run_group_tests_name("answer_reader", tests, NULL, NULL);
}
