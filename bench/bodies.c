/* What it costs to refuse, or to take, bodies that are made to be expensive: reading the body, and
 * making the grammar that it asks for. Milliseconds of processor time, the median and the most of
 * ten, and what is said. 50 are asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/bytes.h"
#include "common/doubles.h"
#include "coordinator/gateway/embedding_body.h"
#include "coordinator/gateway/openai_body.h"
#include "coordinator/gateway/openai_grammar.h"
#include "coordinator/gateway/tools_grammar.h"

enum { TURNS = 10, MANY = 100000 };

#define CHAT "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- bodies ---- */

/* `item` (which may have one %d) so many times. */
static void repeat(struct buffer *b, const char *item, int n)
{
    for (int i = 0; i < n; i++) {
        buffer_printf(b, i ? "," : "");
        buffer_printf(b, item, i);
    }
}

static void messages(struct buffer *b)
{
    buffer_printf(b, "{\"model\":\"m\",\"messages\":[");
    repeat(b, "{\"role\":\"user\",\"content\":\"x\"}", MANY);
    buffer_printf(b, "]}");
}

static void messages_last(struct buffer *b)
{
    buffer_printf(b, "{\"messages\":[");
    repeat(b, "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}", 4096);
    buffer_printf(b, "],\"model\":\"m\",\"n\":0}");
}

static void biases(struct buffer *b)
{
    buffer_printf(b, CHAT "\"logit_bias\":{");
    repeat(b, "\"%d\":1", MANY);
    buffer_printf(b, "}}");
}

static void stops(struct buffer *b)
{
    buffer_printf(b, CHAT "\"stop\":[");
    repeat(b, "\"s%d\"", MANY);
    buffer_printf(b, "]}");
}

static void prompts(struct buffer *b)
{
    buffer_printf(b, "{\"model\":\"m\",\"prompt\":[");
    repeat(b, "\"p%d\"", MANY);
    buffer_printf(b, "]}");
}

static void id_lists(struct buffer *b)
{
    buffer_printf(b, "{\"model\":\"m\",\"prompt\":[");
    repeat(b, "[%d]", MANY);
    buffer_printf(b, "]}");
}

static void ids(struct buffer *b)
{
    buffer_printf(b, "{\"model\":\"m\",\"prompt\":[");
    repeat(b, "%d", 10 * MANY - 100);
    buffer_printf(b, "]}");
}

static void ids_refused(struct buffer *b)
{
    buffer_printf(b, "{\"model\":\"m\",\"prompt\":[[");
    repeat(b, "%d", 10 * MANY - 100);
    buffer_printf(b, "]],\"n\":0}");
}

static void stop_ids(struct buffer *b)
{
    buffer_printf(b, CHAT "\"stop_token_ids\":[");
    repeat(b, "%d", 2 * MANY);
    buffer_printf(b, "]}");
}

static void members(struct buffer *b)
{
    buffer_printf(b, CHAT);
    repeat(b, "\"f%d\":0", MANY);
    buffer_printf(b, "}");
}

static void values(struct buffer *b)
{
    buffer_printf(b, CHAT "\"metadata\":[");
    repeat(b, "{\"a\":[]}", 3 * MANY);
    buffer_printf(b, "]}");
}

static void kwargs(struct buffer *b)
{
    buffer_printf(b, CHAT "\"chat_template_kwargs\":{");
    repeat(b, "\"k%d\":{}", MANY);
    buffer_printf(b, "},\"n\":0}");
}

/* As many as are read. */
static void texts_ignored(struct buffer *b)
{
    buffer_printf(b, CHAT "\"metadata\":[");
    repeat(b, "\"a text of some sixty bytes, as they are found in lists, %6d\"", 12 * MANY / 10);
    buffer_printf(b, "],\"n\":0}");
}

static void members_ignored(struct buffer *b)
{
    buffer_printf(b, CHAT "\"metadata\":{");
    repeat(b, "\"k%d\":1", MANY * 55 / 100);
    buffer_printf(b, "},\"n\":0}");
}

static void text_long(struct buffer *b)
{
    buffer_printf(b, "{\"model\":\"m\",\"n\":0,\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 8 * MANY; i++)
        buffer_printf(b, "ten bytes ");
    buffer_printf(b, "\"}]}");
}

static void tools(struct buffer *b, int n, const char *parameters)
{
    buffer_printf(b, CHAT "\"tool_choice\":\"required\",\"tools\":[");
    for (int i = 0; i < n; i++)
        buffer_printf(b,
                      "%s{\"type\":\"function\",\"function\":{\"name\":\"function_%d\","
                      "\"description\":\"Does something of kind %d.\",\"parameters\":%s}}",
                      i ? "," : "", i, i, parameters);
    buffer_printf(b, "]}");
}

static const char usual_parameters[] =
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":"
    "\"integer\",\"minimum\":1,\"maximum\":14},\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"city\"]}";

static void tools_128(struct buffer *b)
{
    tools(b, 128, usual_parameters);
}

static void tools_1024(struct buffer *b)
{
    tools(b, 1024, usual_parameters);
}

static void tools_many(struct buffer *b)
{
    tools(b, 20000, "{}");
}

/* Each tool's parameters are another schema. */
static void tools_unlike(struct buffer *b)
{
    buffer_printf(b, CHAT "\"tool_choice\":\"required\",\"tools\":[");
    for (int i = 0; i < 128; i++) {
        buffer_printf(b,
                      "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\",\"parameters\":{"
                      "\"type\":\"object\",\"properties\":{",
                      i ? "," : "", i);
        for (int k = 0; k < 12; k++)
            buffer_printf(b,
                          "%s\"p%d_%d\":{\"type\":\"string\",\"maxLength\":%d,\"description\":"
                          "\"a member of its own\"}",
                          k ? "," : "", i, k, 10 + i + k);
        buffer_printf(b, "}}}}");
    }
    buffer_printf(b, "]}");
}

static void schema_begin(struct buffer *b)
{
    buffer_printf(b, CHAT "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":"
                          "\"s\",\"schema\":");
}

static void schema_end(struct buffer *b)
{
    buffer_printf(b, "}}}");
}

static void all_of_any_of(struct buffer *b)
{
    schema_begin(b);
    buffer_printf(b, "{\"allOf\":[");
    for (int i = 0; i < 12; i++)
        buffer_printf(b,
                      "%s{\"anyOf\":[{\"properties\":{\"a%d\":{\"type\":\"string\"}}},{"
                      "\"properties\":{\"b%d\":{\"type\":\"integer\"}}}]}",
                      i ? "," : "", i, i);
    buffer_printf(b, "]}");
    schema_end(b);
}

static void any_of_wide(struct buffer *b)
{
    schema_begin(b);
    buffer_printf(b, "{\"allOf\":[");
    for (int i = 0; i < 3; i++) {
        buffer_printf(b, "%s{\"anyOf\":[", i ? "," : "");
        repeat(b, "{\"type\":\"string\",\"maxLength\":%d}", 60);
        buffer_printf(b, "]}");
    }
    buffer_printf(b, "]}");
    schema_end(b);
}

static void references(struct buffer *b)
{
    schema_begin(b);
    buffer_printf(b, "{\"$defs\":{");
    for (int i = 0; i < 40; i++)
        buffer_printf(b,
                      "%s\"d%d\":{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
                      "d%d\"},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"title\":\"x%d\"}]}}}",
                      i ? "," : "", i, i + 1, i + 1, i);
    buffer_printf(b, ",\"d40\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/d0\"}");
    schema_end(b);
}

static void properties(struct buffer *b)
{
    schema_begin(b);
    buffer_printf(b, "{\"type\":\"object\",\"properties\":{");
    repeat(b, "\"property_%d\":{\"type\":[\"string\",\"null\"],\"maxLength\":8}", 2000);
    buffer_printf(b, "}}");
    schema_end(b);
}

static void enumeration(struct buffer *b)
{
    schema_begin(b);
    buffer_printf(b, "{\"enum\":[");
    repeat(b, "\"word number %d\"", MANY);
    buffer_printf(b, "]}");
    schema_end(b);
}

static void choices(struct buffer *b)
{
    buffer_printf(b, CHAT "\"guided_choice\":[");
    repeat(b, "\"word number %d\"", MANY);
    buffer_printf(b, "]}");
}

static void repeats(struct buffer *b)
{
    buffer_printf(b, CHAT "\"guided_regex\":\"((((a{1,50}b){1,50}c){1,50}d){1,50}e){1,50}\"}");
}

static void regular(struct buffer *b)
{
    buffer_printf(b, CHAT "\"guided_regex\":\"");
    for (int i = 0; i < MANY; i++)
        buffer_printf(b, "(a|b)*c?");
    buffer_printf(b, "\"}");
}

static void rules(struct buffer *b)
{
    buffer_printf(b, CHAT "\"grammar\":\"root ::= r0\\n");
    for (int i = 0; i < 20000; i++)
        buffer_printf(b, "r%d ::= \\\"a\\\" r%d | \\\"b\\\"\\n", i, i + 1);
    buffer_printf(b, "r20000 ::= \\\"c\\\"\\n\"}");
}

static const struct {
    const char *name;
    void (*write)(struct buffer *b);
    bool chat;
} cases[] = {{"100 000 messages", messages, true},
             {"4096 messages of parts, n 0", messages_last, true},
             {"100 000 of logit_bias", biases, true},
             {"100 000 stop texts", stops, true},
             {"100 000 prompts", prompts, false},
             {"100 000 prompts of an id", id_lists, false},
             {"999 900 ids", ids, false},
             {"999 900 ids, n 0", ids_refused, false},
             {"200 000 stop ids", stop_ids, true},
             {"100 000 unknown fields", members, true},
             {"300 000 objects ignored", values, true},
             {"100 000 variables, n 0", kwargs, true},
             {"120 000 texts, n 0", texts_ignored, true},
             {"55 000 members, n 0", members_ignored, true},
             {"a text of 8 MB, n 0", text_long, true},
             {"128 tools", tools_128, true},
             {"128 tools of 12 members", tools_unlike, true},
             {"1024 tools", tools_1024, true},
             {"20 000 tools", tools_many, true},
             {"allOf of 12 anyOf", all_of_any_of, true},
             {"allOf of 3 anyOf of 60", any_of_wide, true},
             {"40 references, twice each", references, true},
             {"2000 properties", properties, true},
             {"enum of 100 000", enumeration, true},
             {"100 000 choices", choices, true},
             {"repeats of repeats", repeats, true},
             {"expression of 800 KB", regular, true},
             {"grammar of 20 000 rules", rules, true}};

/* ---- times ---- */

static void grammar_try(const struct openai_body *b, struct err *e)
{
    static const struct tool_format hermes = {
        .name = "hermes", .begin = "<tool_call>", .end = "</tool_call>", .arguments = "arguments"};
    struct pack_span made = {0};
    const char *param;
    int rc = b->holds_calls ? tools_grammar_make(b, &hermes, false, false, &made, &param, e)
                            : openai_grammar_make(b->root, &made, &param, e);
    if (rc == 0)
        err_set(e, 0, "taken%s", made.size ? ", with a grammar" : "");
    free((void *)(uintptr_t)made.data);
}

static double body_time(struct buffer *text, bool chat, struct err *e)
{
    struct openai_body *b = NULL;
    const char *param;
    double from = cpu_ms();
    *e = (struct err){0};
    if (openai_body_read(buffer_cstr(text), text->size, NULL, chat, &b, &param, e) == 0)
        grammar_try(b, e);
    openai_body_destroy(&b);
    return cpu_ms() - from;
}

/* An argument: of cases whose names begin so alone. */
int main(int argc, char **argv)
{
    bool fine = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 1 && strncmp(cases[i].name, argv[1], strlen(argv[1])) != 0)
            continue;
        struct buffer text = {0};
        struct err e;
        double ms[TURNS];
        cases[i].write(&text);
        for (int k = 0; k < TURNS; k++)
            ms[k] = body_time(&text, cases[i].chat, &e);
        doubles_sort(ms, TURNS);
        printf("%-28s %8zu bytes: %6.1f ms, most %6.1f: %.70s\n", cases[i].name, text.size,
               ms[TURNS / 2], ms[TURNS - 1], e.text);
        fine &= !text.failed;
        buffer_free(&text);
    }
    return fine ? 0 : 1;
}
