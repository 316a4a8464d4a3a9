/* Expressions of templates, by recursive descent, in Jinja's order of precedence: if-else, or, and, not, comparison, + -, ~, * / // %, **, sign,
 * then attributes, items, calls, and filters and tests. */
#include "model/template_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int parse_fail(struct parser *p, int code, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(p->e, code, "line %d: %s", p->at->line, text);
}

struct node *parse_node(struct parser *p, enum node_kind kind)
{
    struct node *n = arena_alloc(p->arena, 1, sizeof *n);
    if (!n) {
        parse_fail(p, HP_ENOMEM, "out of memory");
        return NULL;
    }
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

bool parse_is_name(const struct parser *p, const char *name) { return p->at->kind == TOKEN_NAME && text_is(p->at->text, name); }
bool parse_is_op(const struct parser *p, int op) { return p->at->kind == TOKEN_OPERATOR && p->at->op == op; }

bool parse_skip_op(struct parser *p, int op)
{
    bool is = parse_is_op(p, op);
    p->at += is;
    return is;
}

bool parse_skip_name(struct parser *p, const char *name)
{
    bool is = parse_is_name(p, name);
    p->at += is;
    return is;
}

static const char *found(const struct parser *p)
{
    switch (p->at->kind) {
    case TOKEN_END: return "the end of the template";
    case TOKEN_TEXT: return "text";
    case TOKEN_EXPRESSION_END: return "}}";
    case TOKEN_BLOCK_END: return "%}";
    default: return NULL;
    }
}

static int unexpected(struct parser *p, const char *wanted)
{
    const char *word = found(p);
    struct text t = p->at->text;
    return parse_fail(p, HP_EPARSE, "%s is expected where \"%.*s\" stands", wanted, word ? (int)strlen(word) : (int)(t.size < 40 ? t.size : 40),
                      word ? word : t.data);
}

int parse_expect_op(struct parser *p, int op, const char *what) { return parse_skip_op(p, op) ? 0 : unexpected(p, what); }

static struct node *wrong(struct parser *p, const char *wanted)
{
    unexpected(p, wanted);
    return NULL;
}

static struct node *binary(struct parser *p, enum node_kind kind, int op, struct node *a, struct node *b)
{
    struct node *n = a && b ? parse_node(p, kind) : NULL;
    if (n) {
        n->op = op;
        n->a = a;
        n->b = b;
        n->line = a->line;
    }
    return n;
}

static struct node *unary(struct parser *p, enum node_kind kind, struct node *a)
{
    struct node *n = a ? parse_node(p, kind) : NULL;
    if (n)
        n->a = a;
    return n;
}

static struct node *parse_unary(struct parser *p, bool with_filters);

/* "name=expression" or an expression. */
static struct node *parse_argument(struct parser *p)
{
    if (p->at->kind != TOKEN_NAME || p->at[1].kind != TOKEN_OPERATOR || p->at[1].op != '=')
        return parse_expression(p);
    struct text name = p->at->text;
    p->at += 2;
    struct node *n = unary(p, NODE_KEYWORD, parse_expression(p));
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
            return parse_fail(p, HP_EUNSUPPORTED, "arguments unpacked by * or ** are not supported");
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
    struct node *n = unary(p, NODE_CALL, callee);
    p->at++;
    return n && parse_arguments(p, &n->children) == 0 ? n : NULL;
}

/* "name" or "name.name", as one text. */
static int parse_dotted(struct parser *p, struct text *out)
{
    if (p->at->kind != TOKEN_NAME)
        return unexpected(p, "a name");
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
    if (!template_has_filter(n->text)) {
        parse_fail(p, HP_EUNSUPPORTED, "the filter \"%.*s\" is not known", (int)n->text.size, n->text.data);
        return NULL;
    }
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
    case TOKEN_NAME: return !parse_is_name(p, "else") && !parse_is_name(p, "or") && !parse_is_name(p, "and") && !parse_is_name(p, "is") && !parse_is_name(p, "if");
    case TOKEN_OPERATOR: return p->at->op == '[' || p->at->op == '{';
    default: return false;
    }
}

static struct node *parse_primary(struct parser *p);
static struct node *parse_postfix(struct parser *p, struct node *n);

static struct node *parse_test(struct parser *p, struct node *input)
{
    bool negated = parse_skip_name(p, "not");
    struct node *n = parse_node(p, NODE_TEST);
    if (!n || parse_dotted(p, &n->text) < 0)
        return NULL;
    n->a = input;
    if (!template_has_test(n->text)) {
        parse_fail(p, HP_EUNSUPPORTED, "the test \"%.*s\" is not known", (int)n->text.size, n->text.data);
        return NULL;
    }
    if (parse_skip_op(p, '(')) {
        if (parse_arguments(p, &n->children) < 0)
            return NULL;
    } else if (starts_test_argument(p)) {
        struct node *argument = parse_primary(p);
        n->children = argument ? parse_postfix(p, argument) : NULL;
        if (!n->children)
            return NULL;
    }
    return negated ? unary(p, NODE_NOT, n) : n;
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

static struct node *parse_filters_and_tests(struct parser *p, struct node *n)
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

static struct node *parse_attribute(struct parser *p, struct node *of)
{
    p->at++;
    struct node *n = unary(p, NODE_ATTR, of);
    if (!n)
        return NULL;
    if (p->at->kind == TOKEN_INTEGER) {
        n->kind = NODE_ITEM;
        return (n->b = parse_primary(p)) ? n : NULL;
    }
    if (p->at->kind != TOKEN_NAME)
        return wrong(p, "a name after \".\"");
    n->text = p->at++->text;
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (n) {
        if (parse_is_op(p, '.')) {
            n = parse_attribute(p, n);
        } else if (parse_skip_op(p, '[')) {
            struct node *key = parse_subscript(p);
            n = key && parse_expect_op(p, ']', "\"]\"") == 0 ? binary(p, NODE_ITEM, 0, n, key) : NULL;
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
    n->value = p->at->kind == TOKEN_FLOAT ? value_real(strtod(digits, NULL)) : value_integer(strtoll(digits, NULL, 10));
    if (size + 1 >= sizeof digits || (errno == ERANGE && p->at->kind == TOKEN_INTEGER)) {
        parse_fail(p, HP_EUNSUPPORTED, "the number %.*s is too large", (int)(t.size < 40 ? t.size : 40), t.data);
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
        if (n->children && parse_expect_op(p, ',', close == ']' ? "\",\" or \"]\"" : "\",\" or \"}\"") < 0)
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
    } constants[] = {{"true", {.type = VALUE_BOOL, .boolean = true}},   {"True", {.type = VALUE_BOOL, .boolean = true}},
                     {"false", {.type = VALUE_BOOL, .boolean = false}}, {"False", {.type = VALUE_BOOL, .boolean = false}},
                     {"none", {.type = VALUE_NONE}},                    {"None", {.type = VALUE_NONE}}};
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (parse_is_name(p, constants[i].name))
            n->value = constants[i].value;
    bool constant = n->value.type != VALUE_UNDEFINED;
    n->kind = constant ? NODE_CONST : NODE_NAME;
    n->text = p->at++->text;
    return n;
}

static struct node *parse_primary(struct parser *p)
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
    default: return wrong(p, "an expression");
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
        return wrong(p, "an expression");
    if (parse_skip_op(p, ')')) {
        n->kind = NODE_TUPLE;
        return n;
    }
    n = parse_tuple(p, true);
    return n && parse_expect_op(p, ')', "\")\"") == 0 ? n : NULL;
}

static struct node *parse_unary_inner(struct parser *p, bool with_filters)
{
    struct node *n;
    if (parse_skip_op(p, '-'))
        n = unary(p, NODE_NEGATE, parse_unary(p, false));
    else if (parse_skip_op(p, '+'))
        n = unary(p, NODE_PLUS, parse_unary(p, false));
    else
        n = parse_primary(p);
    n = n ? parse_postfix(p, n) : NULL;
    return n && with_filters ? parse_filters_and_tests(p, n) : n;
}

static struct node *parse_unary(struct parser *p, bool with_filters)
{
    if (++p->nesting > TEMPLATE_MAX_NESTING) {
        parse_fail(p, HP_ELIMIT, "expressions are nested deeper than %d", TEMPLATE_MAX_NESTING);
        return NULL;
    }
    struct node *n = parse_unary_inner(p, with_filters);
    p->nesting--;
    return n;
}

static struct node *parse_power(struct parser *p)
{
    struct node *n = parse_unary(p, true);
    while (n && parse_skip_op(p, OP_POWER))
        n = binary(p, NODE_BINARY, OP_POWER, n, parse_unary(p, true));
    return n;
}

static struct node *parse_product(struct parser *p)
{
    struct node *n = parse_power(p);
    while (n && (parse_is_op(p, '*') || parse_is_op(p, '/') || parse_is_op(p, OP_FLOOR) || parse_is_op(p, '%'))) {
        int op = p->at++->op;
        n = binary(p, NODE_BINARY, op, n, parse_power(p));
    }
    return n;
}

static struct node *parse_concat(struct parser *p)
{
    struct node *n = parse_product(p);
    if (!n || !parse_is_op(p, '~'))
        return n;
    struct node *concat = parse_node(p, NODE_CONCAT);
    if (!concat)
        return NULL;
    concat->children = n;
    while (n && parse_skip_op(p, '~')) {
        n->next = parse_product(p);
        n = n->next;
    }
    return n ? concat : NULL;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *n = parse_concat(p);
    while (n && (parse_is_op(p, '+') || parse_is_op(p, '-'))) {
        int op = p->at++->op;
        n = binary(p, NODE_BINARY, op, n, parse_concat(p));
    }
    return n;
}

/* The operator of a comparison, taken; 0 when there is none. */
static int take_comparison(struct parser *p)
{
    static const int ops[] = {OP_EQ, OP_NE, OP_LE, OP_GE, '<', '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (parse_skip_op(p, ops[i]))
            return ops[i];
    if (parse_skip_name(p, "in"))
        return OP_IN;
    if (parse_is_name(p, "not") && p->at[1].kind == TOKEN_NAME && text_is(p->at[1].text, "in")) {
        p->at += 2;
        return OP_NOT_IN;
    }
    return 0;
}

static struct node *parse_comparison(struct parser *p)
{
    struct node *first = parse_sum(p), *compare = NULL, **tail = NULL;
    int op;
    while (first && (op = take_comparison(p))) {
        struct node *operand = unary(p, NODE_OPERAND, parse_sum(p));
        if (!compare && operand) {
            compare = unary(p, NODE_COMPARE, first);
            tail = compare ? &compare->children : NULL;
        }
        if (!operand || !tail)
            return NULL;
        operand->op = op;
        *tail = operand;
        tail = &operand->next;
    }
    return compare ? compare : first;
}

static struct node *parse_not(struct parser *p)
{
    /* A row of nots is counted, so that it needs no depth. */
    int nots = 0;
    while (parse_skip_name(p, "not"))
        nots++;
    struct node *n = parse_comparison(p);
    if (n && nots > 0)
        n = unary(p, NODE_NOT, n);
    return n && nots > 0 && nots % 2 == 0 ? unary(p, NODE_NOT, n) : n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p);
    while (n && parse_skip_name(p, "and"))
        n = binary(p, NODE_AND, 0, n, parse_not(p));
    return n;
}

static struct node *parse_or(struct parser *p)
{
    struct node *n = parse_and(p);
    while (n && parse_skip_name(p, "or"))
        n = binary(p, NODE_OR, 0, n, parse_and(p));
    return n;
}

static struct node *parse_choice(struct parser *p)
{
    struct node *n = parse_or(p);
    while (n && parse_skip_name(p, "if")) {
        struct node *choose = unary(p, NODE_CHOOSE, parse_or(p));
        if (!choose)
            return NULL;
        choose->b = n;
        if (parse_skip_name(p, "else") && !(choose->c = parse_expression(p)))
            return NULL;
        n = choose;
    }
    return n;
}

struct node *parse_expression(struct parser *p)
{
    if (++p->nesting > TEMPLATE_MAX_NESTING) {
        parse_fail(p, HP_ELIMIT, "expressions are nested deeper than %d", TEMPLATE_MAX_NESTING);
        return NULL;
    }
    struct node *n = parse_choice(p);
    p->nesting--;
    return n;
}

struct node *parse_tuple(struct parser *p, bool conditional)
{
    struct node *first = conditional ? parse_expression(p) : parse_or(p);
    if (!first || !parse_is_op(p, ','))
        return first;
    struct node *tuple = parse_node(p, NODE_TUPLE), *last = first;
    if (!tuple)
        return NULL;
    tuple->children = first;
    while (parse_skip_op(p, ',')) {
        if (parse_is_op(p, ')') || p->at->kind == TOKEN_BLOCK_END || p->at->kind == TOKEN_EXPRESSION_END)
            break;
        last->next = conditional ? parse_expression(p) : parse_or(p);
        last = last->next;
        if (!last)
            return NULL;
    }
    return tuple;
}

static struct node *parse_one_target(struct parser *p)
{
    if (parse_skip_op(p, '(')) {
        struct node *inner = parse_target(p);
        return inner && parse_expect_op(p, ')', "\")\"") == 0 ? inner : NULL;
    }
    if (p->at->kind != TOKEN_NAME)
        return wrong(p, "a name");
    struct node *n = parse_node(p, NODE_NAME);
    if (!n)
        return NULL;
    n->text = p->at++->text;
    return parse_is_op(p, '.') ? parse_attribute(p, n) : n;
}

struct node *parse_target(struct parser *p)
{
    if (++p->nesting > TEMPLATE_MAX_NESTING) {
        parse_fail(p, HP_ELIMIT, "names are nested deeper than %d", TEMPLATE_MAX_NESTING);
        return NULL;
    }
    struct node *first = parse_one_target(p), *last = first, *tuple = NULL;
    if (first && parse_is_op(p, ',') && (tuple = parse_node(p, NODE_TUPLE)))
        tuple->children = first;
    while (tuple && last && parse_skip_op(p, ',')) {
        if (p->at->kind != TOKEN_NAME && !parse_is_op(p, '('))
            break;
        last->next = parse_one_target(p);
        last = last->next;
    }
    p->nesting--;
    return !last ? NULL : tuple ? tuple : first;
}
