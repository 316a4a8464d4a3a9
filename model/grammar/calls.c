#include "model/grammar/calls.h"

#include <stdio.h>
#include <string.h>

#include "model/grammar/calls_marks.h"
#include "model/grammar/schema.h"
#include "model/grammar/token_tree.h"

static const struct expression *any_text(struct expressions *x)
{
    struct expression_list l = {0};
    uint32_t rule = expression_rule_add(x, "any");
    expression_list_add(x, &l, expression_word(x, ""));
    grammar_bytes_add(x, &l, (const uint32_t[256]){0}, 0, expression_rule(x, rule));
    expression_rule_set(x, rule, expression_choice(x, l.items, l.count));
    return expression_rule(x, rule);
}

enum { MOST_WORDS = 4 };

/* A tree of words: a rule for each of their beginnings. */
struct word_tree {
    const char *words[MOST_WORDS];
    size_t n_words;
    uint32_t first; /* of the rules: one for each word and each length of its beginning */
};

static uint32_t word_rule(const struct word_tree *t, size_t word, size_t length)
{
    for (size_t i = 0; i < word; i++)
        if (strncmp(t->words[i], t->words[word], length) == 0)
            word = i;
    return t->first + (uint32_t)(word * GRAMMAR_MAX_MARK_BYTES + length);
}

/* What may follow the first `length` bytes of a word, so that none of the words stands there. */
static const struct expression *word_missed(struct expressions *x, const struct word_tree *t,
                                            size_t word, size_t length,
                                            const struct expression *rest)
{
    enum { REST = MOST_WORDS, SPACE, NOT_HERE };
    struct expression_list l = {0};
    uint32_t to[256];
    expression_list_add(x, &l, expression_word(x, ""));
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        bool here = length > 0 || byte != TOKEN_SPECIAL_BYTE;
        to[byte] = length == 0 && c && strchr(" \t\r\n", c) ? SPACE : REST;
        for (uint32_t i = 0; i < t->n_words && c; i++)
            if (strncmp(t->words[i], t->words[word], length) == 0 && t->words[i][length] == c) {
                here &= t->words[i][length + 1] != '\0';
                to[byte] = to[byte] == SPACE ? SPACE : i;
            }
        to[byte] = here ? to[byte] : NOT_HERE;
    }
    for (uint32_t i = 0; i < t->n_words; i++)
        grammar_bytes_add(x, &l, to, i, expression_rule(x, word_rule(t, i, length + 1)));
    grammar_bytes_add(x, &l, to, SPACE, expression_rule(x, t->first));
    grammar_bytes_add(x, &l, to, REST, rest);
    return expression_choice(x, l.items, l.count);
}

/* Text that does not begin, behind white space, with one of the words or with a special token. */
static const struct expression *text_without(struct expressions *x, struct word_tree *t)
{
    const struct expression *rest = any_text(x);
    t->first = (uint32_t)x->n_rules;
    for (size_t i = 0; i < t->n_words * GRAMMAR_MAX_MARK_BYTES; i++)
        expression_rule_set(x, expression_rule_add(x, "text"), expression_word(x, ""));
    for (size_t i = 0; i < t->n_words; i++)
        for (size_t k = 0; k < strlen(t->words[i]); k++)
            expression_rule_set(x, word_rule(t, i, k), word_missed(x, t, i, k, rest));
    return expression_rule(x, t->first);
}

/* ---- calls ---- */

/* Whether arguments can be held to a schema. */
static bool schema_works(const json_t *schema)
{
    struct expressions x = {0};
    struct json_text t = {.x = &x};
    struct err ignored = {0};
    bool works = schema_expression(&t, schema, "", &ignored) && x.status == 0;
    expressions_free(&x);
    return works;
}

static const struct expression *arguments_expression(struct json_text *t,
                                                     const struct grammar_call *c,
                                                     const char *field, struct err *e)
{
    bool held = c->schema && (!c->lenient || schema_works(c->schema));
    return held ? schema_expression(t, c->schema, field, e) : json_text_part(t, JSON_TEXT_OBJECT);
}

static const struct expression *call_expression(struct json_text *t, const struct grammar_call *c,
                                                const char *field, struct err *e)
{
    return EXPRESSION_SEQUENCE_OF(t->x, expression_word(t->x, c->begin),
                                  arguments_expression(t, c, field, e),
                                  expression_word(t->x, c->end));
}

/* As a message on a channel. */
static const struct expression *channel_call(struct json_text *t, const struct grammar_call *c,
                                             const char *field, struct err *e)
{
    struct expressions *x = t->x;
    const struct expression *arguments = arguments_expression(t, c, field, e);
    if (!arguments)
        return NULL;
    return EXPRESSION_SEQUENCE_OF(
        x, grammar_mark(x, "<|channel|>"), expression_word(x, "commentary to=functions."),
        expression_word(x, c->begin), expression_word(x, " "), grammar_mark(x, "<|constrain|>"),
        expression_word(x, "json"), grammar_mark(x, "<|message|>"), arguments);
}

/* One call, as a rule. NULL: *e says why. */
static const struct expression *call_choice(struct json_text *t, const struct grammar_calls *c,
                                            const char *field, struct err *e)
{
    struct expression_list l = {0};
    uint32_t rule = expression_rule_add(t->x, "call");
    char name[256];
    if (!c->n_calls || c->n_calls > GRAMMAR_MAX_CALLS) {
        err_set(e, HP_ELIMIT, "%s: of 1 to %d functions answers can be held to calls", field,
                GRAMMAR_MAX_CALLS);
        return NULL;
    }
    for (size_t i = 0; i < c->n_calls; i++) {
        snprintf(name, sizeof name, "%.200s[%zu].parameters", field, c->calls[i].place);
        const struct expression *one = c->channels ? channel_call(t, &c->calls[i], name, e)
                                                   : call_expression(t, &c->calls[i], name, e);
        if (!one)
            return NULL;
        expression_list_add(t->x, &l, one);
    }
    expression_rule_set(t->x, rule, expression_choice(t->x, l.items, l.count));
    return expression_rule(t->x, rule);
}

/* What follows a trigger, up to the close. */
static const struct expression *calls_body(struct json_text *t, const struct grammar_calls *c,
                                           const struct expression *call)
{
    struct expressions *x = t->x;
    const struct expression *space = json_text_part(t, JSON_TEXT_SPACE);
    const struct expression *more = expression_word(x, ""), *close = expression_word(x, "");
    if (c->between && c->parallel)
        more = expression_repeat(x, EXPRESSION_SEQUENCE_OF(x, expression_word(x, c->between), call),
                                 0, EXPRESSION_FOREVER);
    if (c->close[0])
        close = EXPRESSION_SEQUENCE_OF(x, space, grammar_mark(x, c->close));
    return EXPRESSION_SEQUENCE_OF(x, space, expression_word(x, c->open), call, more, close);
}

static const struct expression *calls_alone(struct json_text *t, const struct grammar_calls *c,
                                            const struct expression *body)
{
    struct expressions *x = t->x;
    const struct expression *space = json_text_part(t, JSON_TEXT_SPACE);
    const struct expression *trigger = grammar_mark(x, c->trigger);
    if (c->whole)
        trigger = EXPRESSION_CHOICE_OF(x, expression_word(x, ""), trigger);
    const struct expression *unit = EXPRESSION_SEQUENCE_OF(x, space, trigger, body);
    if (!c->parallel || c->between)
        return unit;
    return EXPRESSION_SEQUENCE_OF(x, unit, expression_repeat(x, unit, 0, EXPRESSION_FOREVER));
}

/* Any text, in which calls stand as they should. */
static const struct expression *calls_in_text(struct json_text *t, const struct grammar_calls *c,
                                              const struct expression *body)
{
    struct expressions *x = t->x;
    if (c->whole) {
        struct word_tree words = {.words = {"{", c->trigger}, .n_words = 2};
        if (c->python)
            words.words[words.n_words++] = "[";
        if (c->reasoning_begin)
            words.words[words.n_words++] = c->reasoning_begin;
        return EXPRESSION_CHOICE_OF(x, calls_alone(t, c, body), text_without(x, &words));
    }
    uint32_t behind = expression_rule_add(x, "behind");
    const struct expression *text =
        grammar_until_mark(x, c->trigger, expression_rule(x, behind), true);
    expression_rule_set(x, behind, c->parallel ? EXPRESSION_SEQUENCE_OF(x, body, text) : body);
    return text;
}

/* ---- messages on channels ---- */

/* The head of a message, up to its body. */
static const struct expression *head_expression(struct expressions *x, const char *channel)
{
    return EXPRESSION_SEQUENCE_OF(x, grammar_mark(x, "<|channel|>"), expression_word(x, channel),
                                  grammar_mark(x, "<|message|>"));
}

/* What may be said instead of calls, where it is JSON. NULL: *e says why. */
static const struct expression *text_json(struct json_text *t, const struct grammar_calls *c,
                                          struct err *e)
{
    return c->text_schema ? schema_expression(t, c->text_schema, c->text_field, e)
                          : json_text_part(t, JSON_TEXT_OBJECT);
}

/* Reasoning, then a call; or, where none is required, text. `json`: and that is this; or NULL. */
static const struct expression *channels_expression(struct json_text *t,
                                                    const struct grammar_calls *c,
                                                    const struct expression *call,
                                                    const struct expression *json)
{
    struct expressions *x = t->x;
    struct expression_list l = {0};
    uint32_t rule = expression_rule_add(x, "message");
    const struct expression *next = EXPRESSION_SEQUENCE_OF(
        x, grammar_mark(x, "<|start|>"), expression_word(x, "assistant"), expression_rule(x, rule));
    expression_list_add(x, &l, call);
    expression_list_add(
        x, &l,
        EXPRESSION_SEQUENCE_OF(x, head_expression(x, "analysis"),
                               grammar_until_mark(x, "<|end|>", next, !c->required && !json)));
    if (json)
        expression_list_add(x, &l, EXPRESSION_SEQUENCE_OF(x, head_expression(x, "final"), json));
    if (!c->required && !json) {
        expression_list_add(x, &l,
                            EXPRESSION_SEQUENCE_OF(x, head_expression(x, "commentary"),
                                                   grammar_until_mark(x, "<|end|>", next, true)));
        expression_list_add(
            x, &l,
            EXPRESSION_SEQUENCE_OF(x, head_expression(x, "final"),
                                   grammar_until_mark(x, "<|end|>", expression_word(x, ""), true)));
    }
    expression_rule_set(x, rule, expression_choice(x, l.items, l.count));
    return expression_rule(x, rule);
}

const struct expression *calls_expression(struct json_text *t, const struct grammar_calls *c,
                                          const char *field, struct err *e)
{
    struct expressions *x = t->x;
    const struct expression *call = call_choice(t, c, field, e);
    if (!call)
        return NULL;
    const struct expression *json = NULL;
    if (c->text_is_json && !c->required && !(json = text_json(t, c, e)))
        return NULL;
    if (c->channels)
        return channels_expression(t, c, call, json);
    const struct expression *body = calls_body(t, c, call);
    uint32_t rule = expression_rule_add(x, "calls");
    bool alone = c->required || json;
    expression_rule_set(x, rule, alone ? calls_alone(t, c, body) : calls_in_text(t, c, body));
    const struct expression *answer = expression_rule(x, rule);
    if (json) {
        uint32_t either = expression_rule_add(x, "either");
        expression_rule_set(
            x, either,
            EXPRESSION_CHOICE_OF(
                x, answer, EXPRESSION_SEQUENCE_OF(x, json_text_part(t, JSON_TEXT_SPACE), json)));
        answer = expression_rule(x, either);
    }
    if (!c->reasoning_end)
        return answer;
    const struct expression *reasoning = grammar_until_mark(x, c->reasoning_end, answer, !alone);
    if (c->reasoning_begun)
        return reasoning;
    return EXPRESSION_CHOICE_OF(x, answer,
                                EXPRESSION_SEQUENCE_OF(x, json_text_part(t, JSON_TEXT_SPACE),
                                                       grammar_mark(x, c->reasoning_begin),
                                                       reasoning));
}
