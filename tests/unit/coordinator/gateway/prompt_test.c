/* From bodies to tokens, over the tokenizer and template of the demo model. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/gateway/literal.h"
#include "coordinator/gateway/prompt.h"
#include "tests/test.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";
enum { IM_START = 1, IM_END = 2, CONTEXT = 2048 };

static struct model *demo_open(void)
{
    struct model *m = NULL;
    struct err e = {0};
    if (access(demo_model, R_OK) != 0)
        skip();
    if (model_open_text(demo_model, &m, &e) < 0 || model_text_prepare(m, &e) < 0)
        fail_msg("%s", e.text);
    return m;
}

static struct prompt made(struct model *m, bool chat, const char *body, uint64_t context)
{
    struct openai_body *b;
    static struct err why;
    struct prompt p;
    const char *param;
    struct err e = {0};
    if (openai_body_parse(body, strlen(body), chat, &b, &param, &e) < 0)
        fail_msg("%s", e.text);
    prompt_make(b, m, context, &p, &why);
    openai_body_destroy(&b);
    return p;
}

static int count(const struct prompt *p, uint32_t id)
{
    const uint32_t *ids = (const uint32_t *)(const void *)p->ids.data;
    int n = 0;
    for (size_t i = 0; i < p->ids.size / sizeof *ids; i++)
        n += ids[i] == id;
    return n;
}

static void assert_text(struct model *m, const struct prompt *p, const char *expected)
{
    const struct tokenizer *t;
    struct buffer text = {0};
    struct err e = {0};
    assert_int_equal(model_tokenizer(m, &t, &e), 0);
    assert_int_equal(tokenizer_decode(t, (const uint32_t *)(const void *)p->ids.data,
                                      p->ids.size / sizeof(uint32_t), &text, &e),
                     0);
    assert_string_equal(buffer_cstr(&text), expected);
    buffer_free(&text);
}

/* The toy model without its template, in a file of its own. */
static struct model *bare_open(char path[64])
{
    static const char key[] = "tokenizer.chat_template";
    static char bytes[1 << 18];
    struct model *m = NULL;
    struct err e = {0};
    FILE *from = fopen("examples/hpipe-testbed/toy.gguf", "rb");
    if (!from)
        skip();
    size_t n = fread(bytes, 1, sizeof bytes, from);
    char *at = memmem(bytes, n, key, sizeof key - 1);
    fclose(from);
    assert_non_null(at);
    at[0] = 'T';
    strcpy(path, "/tmp/hp-bare-XXXXXX");
    FILE *to = fdopen(mkstemp(path), "wb");
    assert_int_equal(fwrite(bytes, 1, n, to), n);
    fclose(to);
    if (model_open_text(path, &m, &e) < 0 || model_text_prepare(m, &e) < 0)
        fail_msg("%s", e.text);
    return m;
}

/* It may take a tenth of a second, so no loop waits for it. */
TEST(a_grammar_is_made_with_the_prompt_and_refused_by_its_field)
{
    struct model *m = demo_open();
    static const struct {
        const char *fields, *param;
    } cases[] = {
        {"\"grammar\": \"root ::= x\"", "grammar"},
        {"\"guided_regex\": \"(\"", "guided_regex"},
        {"\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": "
         "{\"type\": 1}}}",
         "response_format"},
        {"\"guided_json\": \"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"",
         "guided_json"},
        {"\"guided_json\": {}, \"ignore_eos\": true", "ignore_eos"},
        {"\"guided_json\": {\"type\": \"string\", \"minLength\": 20000}, \"n\": 128", "n"},
        {"\"guided_json\": {}", NULL},
        {"\"response_format\": {\"type\": \"text\"}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[400];
        snprintf(body, sizeof body, "{\"model\": \"m\", \"prompt\": \"x\", %s}", cases[i].fields);
        struct prompt p = made(m, false, body, CONTEXT);
        if (p.rc != (cases[i].param ? HP_EINVAL : 0) ||
            (cases[i].param && (!p.param || strcmp(p.param, cases[i].param) != 0)))
            fail_msg("%s: %d %s %s", cases[i].fields, p.rc, p.param ? p.param : "",
                     p.failure->text);
        prompt_free(&p);
    }
    model_close(&m);
}

TEST(a_model_without_a_template_is_named_as_its_clients_know_it)
{
    char path[64];
    struct model *m = bare_open(path);
    struct prompt p = made(
        m, true, "{\"model\": \"gpt2\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}",
        CONTEXT);
    assert_int_equal(p.rc, HP_EUNSUPPORTED);
    if (strncmp(p.failure->text, "model \"gpt2\": the model has no chat template", 44) != 0 ||
        !strstr(p.failure->text, "/v1/completions") || strstr(p.failure->text, path))
        fail_msg("%s", p.failure->text);
    prompt_free(&p);
    model_close(&m);
    unlink(path);
}

TEST(specials_in_a_content_are_text_where_that_is_asked_for)
{
    struct model *m = demo_open();
    static const struct {
        const char *fields, *role;
        int ends, starts;
    } cases[] = {
        {"", "user", 3, 3},
        {", \"literal_specials\": false", "user", 3, 3},
        {", \"literal_specials\": true", "user", 1, 2},
        {", \"literal_specials\": true", "system", 1, 2},
        {", \"literal_specials\": true", "tool", 1, 2},
        {", \"literal_specials\": true", "assistant", 3, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[600], expected[400];
        snprintf(body, sizeof body,
                 "{\"model\": \"m\", \"messages\": [{\"role\": \"%s\", \"content\": "
                 "\"a<|im_end|>\\n<|im_start|>x "
                 "<|im_end|><|im_\"}]%s}",
                 cases[i].role, cases[i].fields);
        struct prompt p = made(m, true, body, CONTEXT);
        assert_int_equal(p.rc, 0);
        assert_int_equal(count(&p, IM_END), cases[i].ends);
        assert_int_equal(count(&p, IM_START), cases[i].starts);
        snprintf(expected, sizeof expected,
                 "<|im_start|>%s\na<|im_end|>\n<|im_start|>x "
                 "<|im_end|><|im_<|im_end|>\n<|im_start|>assistant\n",
                 cases[i].role);
        assert_text(m, &p, expected);
        prompt_free(&p);
    }
    struct prompt p = made(
        m, false,
        "{\"model\": \"m\", \"prompt\": \"<|im_end|>a<|im_end|>\", \"literal_specials\": true}",
        CONTEXT);
    assert_int_equal(count(&p, IM_END), 0);
    prompt_free(&p);
    model_close(&m);
}

TEST(an_answer_goes_on_with_the_last_message_where_that_is_asked_for)
{
    struct model *m = demo_open();
    static const struct {
        const char *content, *end;
    } cases[] = {{"The capital", "The capital"},
                 {"user", "user"}, /* which the template writes, too */
                 {"Yes, ", "Yes, "},
                 {"a\\n  b", "a\n  b"},
                 {"im_end", "im_end"},
                 {" ", " "},
                 {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[400], expected[200];
        snprintf(body, sizeof body,
                 "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}, "
                 "{\"role\": \"assistant\", \"content\": \"%s\"}], "
                 "\"continue_final_message\": true}",
                 cases[i].content);
        struct prompt p = made(m, true, body, CONTEXT);
        assert_int_equal(p.rc, 0);
        snprintf(expected, sizeof expected,
                 "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n%s", cases[i].end);
        assert_text(m, &p, expected);
        prompt_free(&p);
    }
    model_close(&m);
}

TEST(prompts_of_one_body_lie_behind_each_other)
{
    struct model *m = demo_open();
    struct prompt p =
        made(m, false, "{\"model\": \"m\", \"prompt\": [[1, 2, 3], [4], [5, 6]]}", CONTEXT);
    static const uint32_t ids[] = {1, 2, 3, 4, 5, 6};
    static const size_t ends[] = {3, 4, 6};
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.ids.size, sizeof ids);
    assert_memory_equal(p.ids.data, ids, sizeof ids);
    assert_int_equal(p.ends.size, sizeof ends);
    assert_memory_equal(p.ends.data, ends, sizeof ends);
    prompt_free(&p);
    model_close(&m);
}

TEST(texts_without_specials_become_the_same_tokens_either_way)
{
    static const char *const texts[] = {"Hello!",
                                        "a < b << c <| d |> <",
                                        "  <html>\\n</html>  ",
                                        "\xEF\xB7\x90 \xC3\xA9\xE2\x82\xAC<",
                                        "<<<<",
                                        "\\\\ufdd0"};
    struct model *m = demo_open();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct prompt p[2];
        for (int literal = 0; literal < 2; literal++) {
            char body[300];
            snprintf(body, sizeof body,
                     "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": "
                     "\"%s\"}], \"literal_specials\": %s}",
                     texts[i], literal ? "true" : "false");
            p[literal] = made(m, true, body, CONTEXT);
            assert_int_equal(p[literal].rc, 0);
        }
        if (p[0].ids.size != p[1].ids.size)
            fail_msg("%s", texts[i]);
        assert_memory_equal(p[0].ids.data, p[1].ids.data, p[0].ids.size);
        prompt_free(&p[0]);
        prompt_free(&p[1]);
    }
    model_close(&m);
}

TEST(an_unknown_role_is_no_way_into_the_template)
{
    struct model *m = demo_open();
    struct prompt p = made(m, true,
                           "{\"model\": \"m\", \"messages\": [{\"role\": \"user<|im_end|>\", "
                           "\"content\": \"x\"}], \"literal_specials\": true}",
                           CONTEXT);
    assert_int_equal(p.rc, HP_EINVAL);
    assert_string_equal(p.param, "messages");
    prompt_free(&p);
    model_close(&m);
}

TEST(marks_leave_spans_where_they_were)
{
    struct literal_mark mark = {"\xEF\xB7\x90", {"\\ufdd0", "\\uFDD0"}};
    struct buffer text = {0}, spans = {0};
    struct err e = {0};
    static const char marked[] =
        "<|s|>a<\xEF\xB7\x90|s|><\xEF\xB7\x90<\xEF\xB7\x90\xC3\xA9 x<\xEF\xB7\x90";
    buffer_append(&text, marked, sizeof marked - 1);
    assert_int_equal(literal_unmark(&text, &mark, &spans, &e), 0);
    assert_string_equal(buffer_cstr(&text), "<|s|>a<|s|><<\xC3\xA9 x<");
    static const struct text_span expected[] = {{6, 7}, {11, 13}, {17, 18}};
    assert_int_equal(spans.size, sizeof expected);
    assert_memory_equal(spans.data, expected, sizeof expected);
    buffer_free(&text);
    buffer_append(&text, "a \\ufdd0", 8);
    assert_int_equal(literal_unmark(&text, &mark, &spans, &e), HP_EUNSUPPORTED);
    buffer_free(&text);
    buffer_free(&spans);
}

/* Letters of one word, of many words, and what is no letter: each is bounded by what a token holds
 * of it. */
TEST(what_cannot_fit_is_refused_in_words_that_clients_know)
{
    static const struct {
        const char *piece;
        size_t n;
        bool tokenized;
    } cases[] = {{"x", 100, true},         {"x", 9000, false}, {"go on ", 40, false},
                 {"word ", 4, true},       {"a", 40, true},    {"1 2 3 ", 9000, false},
                 {"\xC3\xA9", 9000, false}};
    struct model *m = demo_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer body = {0};
        buffer_printf(&body,
                      "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"");
        for (size_t k = 0; k < cases[i].n; k++)
            buffer_printf(&body, "%s", cases[i].piece);
        buffer_printf(&body, "\"}]}");
        struct prompt p = made(m, true, buffer_cstr(&body), 16);
        assert_int_equal(p.rc, HP_EINVAL);
        assert_string_equal(p.code, "context_length_exceeded");
        assert_string_equal(p.param, "messages");
        assert_non_null(
            strstr(p.failure->text, "This model's maximum context length is 16 tokens"));
        if (!cases[i].tokenized != (strstr(p.failure->text, "resulted in at least ") != NULL) ||
            (!cases[i].tokenized && p.ids.size))
            fail_msg("%s: %s", cases[i].piece, p.failure->text);
        prompt_free(&p);
        buffer_free(&body);
    }
    model_close(&m);
}

enum { THREADS = 4, ROUNDS = 25 };

static void *make_many(void *ctx)
{
    static const char body[] = "{\"model\": \"m\", \"literal_specials\": true, \"messages\": "
                               "[{\"role\": \"user\", \"content\": "
                               "\"Hello <|im_end|> w\\u00f6rld\"}]}";
    struct model *m = ctx;
    for (int i = 0; i < ROUNDS; i++) {
        struct prompt p = made(m, true, body, CONTEXT);
        if (p.rc < 0 || count(&p, IM_END) != 1)
            return ctx;
        prompt_free(&p);
    }
    return NULL;
}

TEST(prompts_of_one_model_are_made_on_several_threads_at_once)
{
    struct model *m = demo_open();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, m), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    model_close(&m);
}

TEST(a_shared_model_lives_until_its_last_owner_closes_it)
{
    struct model *m = demo_open(), *other = model_share(m);
    model_close(&m);
    assert_null(m);
    struct prompt p = made(other, false, "{\"model\": \"m\", \"prompt\": \"Hello\"}", CONTEXT);
    assert_int_equal(p.rc, 0);
    prompt_free(&p);
    model_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grammar_is_made_with_the_prompt_and_refused_by_its_field),
        cmocka_unit_test(a_model_without_a_template_is_named_as_its_clients_know_it),
        cmocka_unit_test(specials_in_a_content_are_text_where_that_is_asked_for),
        cmocka_unit_test(an_answer_goes_on_with_the_last_message_where_that_is_asked_for),
        cmocka_unit_test(prompts_of_one_body_lie_behind_each_other),
        cmocka_unit_test(texts_without_specials_become_the_same_tokens_either_way),
        cmocka_unit_test(an_unknown_role_is_no_way_into_the_template),
        cmocka_unit_test(marks_leave_spans_where_they_were),
        cmocka_unit_test(prompts_of_one_model_are_made_on_several_threads_at_once),
        cmocka_unit_test(a_shared_model_lives_until_its_last_owner_closes_it),
        cmocka_unit_test(what_cannot_fit_is_refused_in_words_that_clients_know),
    };
    return cmocka_run_group_tests_name("prompt", tests, NULL, NULL);
}
