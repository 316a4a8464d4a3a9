/* What answers are held to in tests and benchmarks of masks: schemas, expressions, grammars of
 * llama.cpp's kind and calls of tools, as people ask for them. */
#ifndef HP_TESTS_UNIT_MODEL_GRAMMAR_GRAMMAR_KINDS_H
#define HP_TESTS_UNIT_MODEL_GRAMMAR_GRAMMAR_KINDS_H

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "model/grammar/grammar_source.h"

struct grammar_kind {
    const char *name;
    enum { KIND_ANY, KIND_SCHEMA, KIND_REGULAR, KIND_GBNF, KIND_CALLS, KIND_WORDS } source;
    const char *text; /* KIND_CALLS: of the arguments; KIND_WORDS: how many */
};

static const struct grammar_kind grammar_kinds[] = {
    {"any JSON", KIND_ANY, NULL},
    {"strings and numbers", KIND_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
     "\"integer\",\"minimum\":0,\"maximum\":150},\"mail\":{\"type\":\"string\",\"format\":"
     "\"email\"}"
     ",\"score\":{\"type\":\"number\"}},\"required\":[\"name\",\"age\",\"mail\",\"score\"],"
     "\"additionalProperties\":false}"},
    {"short strings", KIND_SCHEMA,
     "{\"type\":\"array\",\"minItems\":3,\"items\":{\"type\":\"string\",\"maxLength\":24}}"},
    {"nested choices", KIND_SCHEMA,
     "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"leaf\","
     "\"branch\","
     "\"root\"]},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":"
     "\"^[a-z]{2,8}(-[0-9]+)?$\"}},\"next\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/"
     "n\"}]}},\"required\":[\"kind\",\"tags\",\"next\"]}},\"$ref\":\"#/$defs/n\"}"},
    {"free members", KIND_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"}},"
     "\"required\":[\"id\"],\"additionalProperties\":{\"type\":[\"string\",\"number\",\"boolean\"]}"
     "}"},
    {"formats", KIND_SCHEMA,
     "{\"type\":\"array\",\"minItems\":6,\"items\":{\"anyOf\":[{\"type\":\"string\",\"format\":"
     "\"date-time\"},{\"type\":\"string\",\"format\":\"uri\"},{\"type\":\"string\",\"format\":"
     "\"ipv4\"},{\"type\":\"string\",\"format\":\"hostname\"},{\"type\":\"string\",\"format\":"
     "\"duration\"},{\"type\":\"string\",\"format\":\"json-pointer\"}]}}"},
    {"patterns", KIND_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"sku\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-[0-"
     "9]{4}$\"},\"person\":{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z]+( [A-Z][a-z]+){1,3}$\"},"
     "\"phone\":{\"type\":\"string\",\"pattern\":\"^\\\\+?[0-9 ()-]{7,20}$\"},\"color\":{\"type\":"
     "\"string\",\"pattern\":\"^#[0-9a-fA-F]{6}$\"},\"user\":{\"type\":\"string\",\"pattern\":"
     "\"^@[\\\\w.]{1,30}$\"},\"path\":{\"type\":\"string\",\"pattern\":\"^(/[^/ ]+)+$\"},\"title\":"
     "{\"type\":\"string\",\"minLength\":5,\"maxLength\":80}},\"required\":[\"sku\",\"person\","
     "\"phone\",\"color\",\"user\",\"path\",\"title\"],\"additionalProperties\":false}"},
    {"numbers", KIND_SCHEMA,
     "{\"type\":\"array\",\"minItems\":8,\"items\":{\"anyOf\":[{\"type\":\"number\",\"minimum\":-"
     "2.5,\"maximum\":180},{\"type\":\"integer\",\"minimum\":1000,\"maximum\":65535},{\"type\":"
     "\"number\",\"exclusiveMinimum\":0},{\"type\":\"array\",\"items\":{\"type\":\"number\"},"
     "\"minItems\":2,\"maxItems\":3}]}}"},
    {"an enum of 3000 words", KIND_WORDS, "3000"},
    {"members that may be missing", KIND_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\"},\"subtitle\":{\"type\":"
     "\"string\"},\"year\":{\"type\":\"integer\"},\"rating\":{\"type\":\"number\"},\"tags\":{"
     "\"type\":\"array\",\"items\":{\"type\":\"string\"}},\"author\":{\"type\":\"object\","
     "\"properties\":{\"first\":{\"type\":\"string\"},\"last\":{\"type\":\"string\"},\"born\":{"
     "\"type\":[\"integer\",\"null\"]}},\"required\":[\"last\"]},\"language\":{\"enum\":[\"en\","
     "\"de\",\"fr\",\"zh\",\"ja\"]},\"in_print\":{\"type\":\"boolean\"}},\"required\":[\"title\"]"
     "}"},
    {"records in lists", KIND_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"steps\":{\"type\":\"array\",\"minItems\":2,\"items\":{"
     "\"type\":\"object\",\"properties\":{\"explanation\":{\"type\":\"string\"},\"output\":{"
     "\"type\":\"string\"},\"cells\":{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{"
     "\"type\":[\"integer\",\"string\",\"null\"]},\"maxItems\":4}}},\"required\":[\"explanation\","
     "\"output\",\"cells\"],\"additionalProperties\":false}},\"final_answer\":{\"type\":"
     "\"string\"}},\"required\":[\"steps\",\"final_answer\"],\"additionalProperties\":false}"},
    {"sentences", KIND_REGULAR, "([A-Z][^.!?\\n]{10,200}[.!?] ?)+"},
    {"words and spaces", KIND_REGULAR, "[a-z]+( [a-z]+)*\\."},
    {"any text in a fence", KIND_REGULAR, "```[a-z]*\\n([^`]|`[^`]|``[^`])*```"},
    {"arithmetic", KIND_GBNF,
     "root ::= (expr \"=\" ws term \"\\n\")+\n"
     "expr ::= term ([-+*/] term)*\n"
     "term ::= ident | num | \"(\" ws expr \")\" ws\n"
     "ident ::= [a-z] [a-z0-9_]* ws\n"
     "num ::= [0-9]+ ws\n"
     "ws ::= [ \\t\\n]*\n"},
    {"a list", KIND_GBNF,
     "root ::= item+\n"
     "item ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n"},
    {"a program", KIND_GBNF,
     "root ::= declaration+\n"
     "declaration ::= type ws name ws \"(\" ws (type ws name (\",\" ws type ws name)*)? \")\" ws "
     "\"{\" ws statement* \"}\" ws\n"
     "type ::= \"int\" | \"float\" | \"char\"\n"
     "name ::= [a-zA-Z_] [a-zA-Z_0-9]*\n"
     "statement ::= (type ws name ws \"=\" ws sum \";\" ws) | (name ws \"=\" ws sum \";\" ws) | "
     "(name ws \"(\" sum? \")\" \";\" ws) | (\"return\" ws sum \";\" ws) | (\"while\" \"(\" sum "
     "\")\" \"{\" ws statement* \"}\" ws) | (\"//\" [^\\n]* \"\\n\" ws)\n"
     "sum ::= product (ws [-+] ws product)*\n"
     "product ::= unary (ws [*/] ws unary)*\n"
     "unary ::= \"-\"? (name (\"(\" sum? \")\")? | [0-9]+ | \"(\" ws sum ws \")\" | \"\\\"\" "
     "[^\"]* "
     "\"\\\"\")\n"
     "ws ::= [ \\t\\n]*\n"},
    {"text with calls", KIND_CALLS,
     "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":"
     "\"integer\",\"minimum\":1,\"maximum\":14}},\"required\":[\"city\"],\"additionalProperties\":"
     "false}"},
};
enum { GRAMMAR_KINDS = sizeof grammar_kinds / sizeof *grammar_kinds };

/* Made words of two to five syllables. */
static inline json_t *grammar_words(int n)
{
    static const char *const parts[] = {"ba",  "ce", "di", "fo", "gu", "hal", "jen", "kir", "lom",
                                        "mus", "na", "pe", "qi", "ro", "sta", "tre", "vi",  "wo"};
    json_t *list = json_array();
    uint64_t state = 3;
    for (int i = 0; i < n; i++) {
        char word[40];
        int used = snprintf(word, sizeof word, "%s", i % 3 ? "" : "New ");
        for (uint64_t k = 2 + random_next(&state) % 4; k; k--)
            used += snprintf(word + used, sizeof word - (size_t)used, "%s",
                             parts[random_next(&state) % (sizeof parts / sizeof *parts)]);
        json_array_append_new(list, json_sprintf("%s%d", word, i % 7 ? i : 0));
    }
    return json_pack("{s:o}", "enum", list);
}

static inline int grammar_calls_make(const json_t *schema, struct buffer *out, struct err *e)
{
    struct grammar_call call = {
        .begin = "{\"name\": \"weather\", \"arguments\": ", .schema = schema, .end = "}"};
    struct grammar_calls calls = {.trigger = "<tool_call>",
                                  .open = "",
                                  .close = "</tool_call>",
                                  .calls = &call,
                                  .n_calls = 1,
                                  .parallel = true,
                                  .reasoning_begin = "<think>",
                                  .reasoning_end = "</think>"};
    return grammar_source_calls(&calls, "tools", out, e);
}

static inline int grammar_kind_make(const struct grammar_kind *k, struct buffer *out, struct err *e)
{
    size_t size = k->text ? strlen(k->text) : 0;
    json_t *root = k->source == KIND_WORDS ? grammar_words(atoi(k->text))
                   : k->text               ? json_loads(k->text, 0, NULL)
                                           : NULL;
    int rc = 0;
    switch (k->source) {
    case KIND_ANY: rc = grammar_source_json("schema", out, e); break;
    case KIND_REGULAR: rc = grammar_source_regular(k->text, size, "regex", out, e); break;
    case KIND_GBNF: rc = grammar_source_gbnf(k->text, size, "grammar", out, e); break;
    case KIND_CALLS: rc = grammar_calls_make(root, out, e); break;
    case KIND_SCHEMA:
    case KIND_WORDS: rc = grammar_source_schema(root, "schema", out, e); break;
    }
    json_decref(root);
    return rc;
}

#endif
