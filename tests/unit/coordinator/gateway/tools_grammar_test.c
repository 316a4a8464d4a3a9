/* Answers that are drawn by lot from what holds their calls, read as answers are: each call fits.
 */
#include <jansson.h>
#include <stdlib.h>

#include "coordinator/gateway/answer_reader.h"
#include "coordinator/gateway/tools_grammar.h"
#include "tests/unit/model/grammar/grammar_fixture.h"

static const char *const marks[] = {"<tool_call>",
                                    "\xFF<tool_call>",
                                    "</tool_call>",
                                    "[TOOL_CALLS]",
                                    "\xFF[TOOL_CALLS]",
                                    "[{\"name\": \"",
                                    "<|python_tag|>",
                                    "\xFF<|python_tag|>",
                                    "{\"name\": \"",
                                    "<think>",
                                    "</think>",
                                    "\xFF</think>",
                                    "\xFF<|im_start|>",
                                    "weather\", \"arguments\": {",
                                    "{}}",
                                    "\"city\": ",
                                    "\"Ulm\"",
                                    "now\", \"",
                                    "<|channel|>",
                                    "\xFF<|channel|>",
                                    "\xFF<|start|>",
                                    "assistant",
                                    "\xFF<|message|>",
                                    "\xFF<|end|>",
                                    "commentary to=functions.",
                                    "analysis",
                                    "[now("};

/* Bytes (without NUL, which ends C's texts), marks, and pieces of calls. */
static struct token_tree *tree_make(void)
{
    enum { N = FIXTURE_PIECES + sizeof marks / sizeof *marks };
    static char bytes[256];
    struct token_text texts[N] = {{0}};
    struct token_tree *t = NULL;
    for (int i = 1; i < 256; i++) {
        bytes[i] = (char)i;
        texts[i] = (struct token_text){&bytes[i], 1};
    }
    for (size_t i = FIXTURE_PIECES; i < N; i++) {
        const char *mark = marks[i - FIXTURE_PIECES];
        texts[i] = (struct token_text){mark, (uint32_t)strlen(mark)};
    }
    assert_int_equal(token_tree_make(texts, N, &t, NULL), 0);
    return t;
}

struct told_tally {
    size_t n_calls, n_text;
    const char *forced;
};

static void on_text(void *ctx, const char *text, size_t n)
{
    struct told_tally *t = ctx;
    for (size_t i = 0; i < n; i++)
        t->n_text += strchr(" \t\r\n", text[i]) == NULL;
}

static void on_reasoning(void *ctx, const char *text, size_t n)
{
    (void)ctx, (void)text, (void)n;
}

/* "weather" takes {"city": "Ulm" or "Bonn"}, "now" nothing. */
static void on_call(void *ctx, const struct tool_call *call)
{
    struct told_tally *t = ctx;
    json_t *all = json_loadb(call->arguments, call->n_arguments, JSON_REJECT_DUPLICATES, NULL);
    const char *city = json_string_value(json_object_get(all, "city"));
    bool weather = strcmp(call->name, "weather") == 0;
    assert_true(json_is_object(all));
    assert_int_equal(json_object_size(all), weather);
    assert_true(!weather || (city && (!strcmp(city, "Ulm") || !strcmp(city, "Bonn"))));
    assert_true(!t->forced || strcmp(call->name, t->forced) == 0);
    t->n_calls++;
    json_decref(all);
}

static struct told_tally answer_read(const char *text, const struct openai_body *b,
                                     const struct answer_rules *rules)
{
    struct told_tally told = {.forced = b->forced_name};
    struct answer_sink sink = {&told, on_text, on_reasoning, on_call};
    struct answer_reader r;
    answer_reader_init(&r, rules);
    for (; *text; text++) /* special tokens are shown as they are spelled */
        if ((uint8_t)*text != TOKEN_SPECIAL_BYTE)
            answer_reader_push(&r, text, 1, &sink);
    answer_reader_finish(&r, &sink);
    assert_false(r.held.failed);
    answer_reader_free(&r);
    return told;
}

#define BODY                                                                                       \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":["            \
    "{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"strict\":true,\"parameters\":{"   \
    "\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Ulm\",\"Bonn\"]}},\"required\":["   \
    "\"city\"],\"additionalProperties\":false}}},{\"type\":\"function\",\"function\":{\"name\":"   \
    "\"now\",\"strict\":true}}]"
static const char *const bodies[] = {
    BODY "}",
    BODY ",\"parallel_tool_calls\":false}",
    BODY ",\"tool_choice\":\"required\"}",
    BODY ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false}",
    BODY ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"weather\"}}}",
    BODY ",\"response_format\":{\"type\":\"json_object\",\"schema\":{\"const\":5}}}"};

/* How many calls were told. */
static size_t answers_draw(const struct openai_body *b, const struct answer_rules *rules,
                           struct token_tree *t)
{
    enum { DRAWN = 10 };
    struct pack_span wire = {0};
    const char *param = NULL;
    struct err e = {0};
    size_t n_calls = 0;
    int rc = tools_grammar_make(b, rules->format, rules->reasons, rules->begun, &wire, &param, &e);
    if (rc < 0)
        fail_msg("%s", e.text);
    struct buffer bytes = {.data = (uint8_t *)wire.data, .size = wire.size};
    struct automaton *a = fixture_automaton(&bytes, t);
    for (uint64_t seed = 1; seed <= DRAWN; seed++) {
        char *text = fixture_text(a, t, 120, seed);
        struct told_tally told = answer_read(text, b, rules);
        n_calls += told.n_calls;
        /* Reasoning on a channel that is not split off stands in the text. */
        bool quiet = rules->reasons || rules->format->syntax != TOOL_CHANNELS;
        if (b->must_call && (told.n_calls == 0 || (told.n_text > 0 && quiet)))
            fail_msg("seed %d: %zu calls and %zu bytes of text in %s", (int)seed, told.n_calls,
                     told.n_text, text);
        if (b->formats_text && quiet && (told.n_calls > 0) == (told.n_text > 0))
            fail_msg("seed %d: neither calls nor JSON alone: %s", (int)seed, text);
        free(text);
    }
    automaton_destroy(&a);
    free((void *)wire.data);
    return n_calls;
}

TEST(what_is_drawn_under_held_calls_is_read_as_calls_that_fit)
{
    static const char *const templates[] = {"<tool_call>", "[TOOL_CALLS]", "<|python_tag|>",
                                            "[func_name1(", "<|channel|>"};
    struct token_tree *t = tree_make();
    size_t n_free = 0; /* where none is required */
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct openai_body *b = NULL;
        const char *param;
        struct err e = {0};
        if (openai_body_parse(bodies[i], strlen(bodies[i]), true, &b, &param, &e) < 0)
            fail_msg("%s", e.text);
        for (size_t f = 0; f < 5; f++)
            for (int reasons = 0; reasons < 3; reasons++) {
                struct answer_rules rules = {.format = tool_format_of(templates[f]),
                                             .names = &b->tool_names,
                                             .one_call = b->one_call,
                                             .reasons = reasons > 0,
                                             .begun = reasons > 1};
                n_free += answers_draw(b, &rules, t) * !b->must_call;
            }
        openai_body_destroy(&b);
    }
    assert_true(n_free > 0);
    token_tree_destroy(&t);
}

static void assert_refused(const char *fields, const char *field, const char *why)
{
    struct buffer text = {0};
    struct openai_body *b = NULL;
    const char *param = NULL;
    struct err e = {0};
    buffer_printf(&text, "%s,%s}", BODY, fields);
    int rc = openai_body_parse(buffer_cstr(&text), text.size, true, &b, &param, &e);
    if (rc != HP_EINVAL || !param || strcmp(param, field) != 0 || !strstr(e.text, why))
        fail_msg("%s: %d %s %s", fields, rc, param ? param : "", e.text);
    buffer_free(&text);
}

TEST(choices_that_cannot_be_are_refused)
{
    assert_refused("\"tool_choice\":\"any\"", "tool_choice", "may be");
    assert_refused("\"tool_choice\":{\"type\":\"function\"}", "tool_choice", "may be");
    assert_refused("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}}",
                   "tool_choice", "do not have");
    assert_refused("\"ignore_eos\":true", "ignore_eos", "held to a grammar");
    assert_refused("\"guided_regex\":\"a\"", "tools", "response_format");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_drawn_under_held_calls_is_read_as_calls_that_fit),
        cmocka_unit_test(choices_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
