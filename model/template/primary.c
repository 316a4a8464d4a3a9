/* Primary expressions of templates and what is put behind them: attributes, items, calls, filters
 * and tests. */
#include "model/template/primary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/template/expression.h"

/* "name=expression" or an expression. */
static struct node *parse_argument(struct parser *p)
{
    if (p->at->kind != TOKEN_NAME || p->at[1].kind != TOKEN_OPERATOR || p->at[1].op != '=')
        return parse_expression(p);
    struct text name = p->at->text;
    p->at += 2;
    struct node *n = parse_unary_node(p, NODE_KEYWORD, parse_expression(p));
    if (n)
        n->text = name;
    return n;
}

/* Arguments up to the closing bracket, which is taken. */
static int parse_arguments(struct parser *p, struct node **list)
{
    const struct node *before = NULL;
    while (!parse_skip_op(p, ')')) {
        if (before && parse_expect_op(p, ',', "\",\" or \")\"") < 0)
            return HP_EPARSE;
        if (before && parse_skip_op(p, ')'))
            return 0;
        if (parse_is_op(p, '*') || parse_is_op(p, OP_POWER))
            return parse_fail(p, HP_EUNSUPPORTED,
                              "arguments unpacked by * or ** are not supported");
        struct node *n = parse_argument(p);
        if (!n)
            return HP_EPARSE;
        if (before && before->kind == NODE_KEYWORD && n->kind != NODE_KEYWORD)
            return parse_fail(p, HP_EPARSE, "an argument without a name after one with a name");
        *list = n;
        list = &n->next;
        before = n;
    }
    return 0;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *n = parse_unary_node(p, NODE_CALL, callee);
    p->at++;
    return n && parse_arguments(p, &n->children) == 0 ? n : NULL;
}

/* "name" or "name.name", as one text. */
static int parse_dotted(struct parser *p, struct text *out)
{
    if (p->at->kind != TOKEN_NAME)
        return parse_unexpected(p, "a name");
    *out = p->at++->text;
    while (parse_is_op(p, '.') && p->at[1].kind == TOKEN_NAME) {
        *out = p->at[1].text;
        p->at += 2;
    }
    return 0;
}

struct node *parse_filter(struct parser *p, struct node *input)
{
    struct node *n = parse_node(p, NODE_FILTER);
    if (!n || parse_dotted(p, &n->text) < 0)
        return NULL;
    n->a = input;
    if (parse_skip_op(p, '(') && parse_arguments(p, &n->children) < 0)
        return NULL;
    return n;
}

static bool starts_test_argument(const struct parser *p)
{
    switch (p->at->kind) {
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT: return true;
    case TOKEN_NAME:
        return !parse_is_name(p, "else") && !parse_is_name(p, "or") && !parse_is_name(p, "and") &&
               !parse_is_name(p, "is") && !parse_is_name(p, "if");
    case TOKEN_OPERATOR: return p->at->op == '[' || p->at->op == '{';
    default: return false;
    }
}

static struct node *parse_test(struct parser *p, struct node *input)
{
    bool negated = parse_skip_name(p, "not");
    struct node *n = parse_node(p, NODE_TEST);
    if (!n || parse_dotted(p, &n->text) < 0)
        return NULL;
    n->a = input;
    if (parse_skip_op(p, '(')) {
        if (parse_arguments(p, &n->children) < 0)
            return NULL;
    } else if (starts_test_argument(p)) {
        struct node *argument = parse_primary(p);
        n->children = argument ? parse_postfix(p, argument) : NULL;
        if (!n->children)
            return NULL;
    }
    return negated ? parse_unary_node(p, NODE_NOT, n) : n;
}

struct node *parse_filters(struct parser *p, struct node *input)
{
    struct node *n = input;
    while (parse_skip_op(p, '|')) {
        n = parse_filter(p, n);
        if (!n)
            return NULL;
    }
    return n;
}

struct node *parse_filters_and_tests(struct parser *p, struct node *n)
{
    while (n) {
        if (parse_is_op(p, '|'))
            n = parse_filters(p, n);
        else if (parse_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (parse_is_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* What stands in [ ]: an expression, or start:stop:step. */
static struct node *parse_subscript(struct parser *p)
{
    struct node *first = parse_is_op(p, ':') ? NULL : parse_expression(p);
    if (!parse_is_op(p, ':')) {
        if (first && parse_is_op(p, ',')) {
            parse_fail(p, HP_EUNSUPPORTED, "an index of several values is not supported");
            return NULL;
        }
        return first;
    }
    struct node *slice = parse_node(p, NODE_SLICE);
    if (!slice)
        return NULL;
    slice->a = first;
    struct node **parts[] = {&slice->b, &slice->c};
    for (int i = 0; i < 2 && parse_skip_op(p, ':'); i++) {
        if (parse_is_op(p, ':') || parse_is_op(p, ']'))
            continue;
        *parts[i] = parse_expression(p);
        if (!*parts[i])
            return NULL;
    }
    return slice;
}

struct node *parse_attribute(struct parser *p, struct node *of)
{
    p->at++;
    struct node *n = parse_unary_node(p, NODE_ATTR, of);
    if (!n)
        return NULL;
    if (p->at->kind == TOKEN_INTEGER) {
        n->kind = NODE_ITEM;
        return (n->b = parse_primary(p)) ? n : NULL;
    }
    if (p->at->kind != TOKEN_NAME)
        return parse_wrong(p, "a name after \".\"");
    n->text = p->at++->text;
    return n;
}

struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (n) {
        if (parse_is_op(p, '.')) {
            n = parse_attribute(p, n);
        } else if (parse_skip_op(p, '[')) {
            struct node *key = parse_subscript(p);
            n = key && parse_expect_op(p, ']', "\"]\"") == 0
                    ? parse_binary_node(p, NODE_ITEM, 0, n, key)
                    : NULL;
        } else if (parse_is_op(p, '(')) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

static struct node *parse_number(struct parser *p, struct node *n)
{
    char digits[64];
    size_t size = 0;
    struct text t = p->at->text;
    for (size_t i = 0; i < t.size && size + 1 < sizeof digits; i++)
        if (t.data[i] != '_')
            digits[size++] = t.data[i];
    digits[size] = 0;
    errno = 0;
    n->value = p->at->kind == TOKEN_FLOAT ? value_real(strtod(digits, NULL))
                                          : value_integer(strtoll(digits, NULL, 10));
    if (size + 1 >= sizeof digits || (errno == ERANGE && p->at->kind == TOKEN_INTEGER)) {
        parse_fail(p, HP_EUNSUPPORTED, "the number %.*s is too large",
                   (int)(t.size < 40 ? t.size : 40), t.data);
        return NULL;
    }
    p->at++;
    return n;
}

static struct node *parse_strings(struct parser *p, struct node *n)
{
    /* Neighbouring strings are one. */
    size_t size = 0, at = 0;
    for (const struct lexeme *t = p->at; t->kind == TOKEN_STRING; t++)
        size += t->text.size;
    char *joined = arena_alloc(p->arena, size + 1, 1);
    if (!joined) {
        parse_fail(p, HP_ENOMEM, "out of memory");
        return NULL;
    }
    for (; p->at->kind == TOKEN_STRING; p->at++) {
        if (p->at->text.size)
            memcpy(joined + at, p->at->text.data, p->at->text.size);
        at += p->at->text.size;
    }
    n->value = value_text((struct text){joined, size});
    return n;
}

/* Items up to `close`, which is taken; pairs with ":" between where `pairs`. */
static struct node *parse_items(struct parser *p, struct node *n, int close, bool pairs)
{
    struct node **tail = &n->children;
    p->at++;
    while (!parse_skip_op(p, close)) {
        if (n->children &&
            parse_expect_op(p, ',', close == ']' ? "\",\" or \"]\"" : "\",\" or \"}\"") < 0)
            return NULL;
        if (parse_skip_op(p, close))
            return n;
        for (int i = 0; i < (pairs ? 2 : 1); i++) {
            if (i == 1 && parse_expect_op(p, ':', "\":\"") < 0)
                return NULL;
            struct node *item = parse_expression(p);
            if (!item)
                return NULL;
            *tail = item;
            tail = &item->next;
        }
    }
    return n;
}

static struct node *parse_name(struct parser *p, struct node *n)
{
    static const struct {
        const char *name;
        struct value value;
    } constants[] = {{"true", {.type = VALUE_BOOL, .boolean = true}},
                     {"True", {.type = VALUE_BOOL, .boolean = true}},
                     {"false", {.type = VALUE_BOOL, .boolean = false}},
                     {"False", {.type = VALUE_BOOL, .boolean = false}},
                     {"none", {.type = VALUE_NONE}},
                     {"None", {.type = VALUE_NONE}}};
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (parse_is_name(p, constants[i].name))
            n->value = constants[i].value;
    bool constant = n->value.type != VALUE_UNDEFINED;
    n->kind = constant ? NODE_CONST : NODE_NAME;
    n->text = p->at++->text;
    p->macro_names |= text_is(n->text, "varargs")  ? MACRO_VARARGS
                      : text_is(n->text, "kwargs") ? MACRO_KWARGS
                      : text_is(n->text, "caller") ? MACRO_CALLER
                                                   : 0;
    return n;
}

struct node *parse_primary(struct parser *p)
{
    struct node *n = parse_node(p, NODE_CONST);
    if (!n)
        return NULL;
    switch (p->at->kind) {
    case TOKEN_NAME: return parse_name(p, n);
    case TOKEN_STRING: return parse_strings(p, n);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT: return parse_number(p, n);
    case TOKEN_OPERATOR: break;
    default: return parse_wrong(p, "an expression");
    }
    if (parse_is_op(p, '[')) {
        n->kind = NODE_LIST;
        return parse_items(p, n, ']', false);
    }
    if (parse_is_op(p, '{')) {
        n->kind = NODE_DICT;
        return parse_items(p, n, '}', true);
    }
    if (!parse_skip_op(p, '('))
        return parse_wrong(p, "an expression");
    if (parse_skip_op(p, ')')) {
        n->kind = NODE_TUPLE;
        return n;
    }
    n = parse_tuple(p, true);
    return n && parse_expect_op(p, ')', "\")\"") == 0 ? n : NULL;
}
