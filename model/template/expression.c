/* Expressions of templates, by recursive descent, in Jinja's order of precedence: if-else, or, and,
 * not, comparison, + -, ~, * /
 * // %, **, sign; what binds tighter is in primary.c. */
#include "model/template/expression.h"

#include "model/template/primary.h"

static struct node *parse_unary(struct parser *p, bool with_filters);

static struct node *parse_unary_inner(struct parser *p, bool with_filters)
{
    struct node *n;
    if (parse_skip_op(p, '-'))
        n = parse_unary_node(p, NODE_NEGATE, parse_unary(p, false));
    else if (parse_skip_op(p, '+'))
        n = parse_unary_node(p, NODE_PLUS, parse_unary(p, false));
    else
        n = parse_primary(p);
    n = n ? parse_postfix(p, n) : NULL;
    return n && with_filters ? parse_filters_and_tests(p, n) : n;
}

static struct node *parse_unary(struct parser *p, bool with_filters)
{
    if (++p->nesting > PARSER_MAX_NESTING) {
        parse_fail(p, HP_ELIMIT, "expressions are nested deeper than %d", PARSER_MAX_NESTING);
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
        n = parse_binary_node(p, NODE_BINARY, OP_POWER, n, parse_unary(p, true));
    return n;
}

static struct node *parse_product(struct parser *p)
{
    struct node *n = parse_power(p);
    while (n && (parse_is_op(p, '*') || parse_is_op(p, '/') || parse_is_op(p, OP_FLOOR) ||
                 parse_is_op(p, '%'))) {
        int op = p->at++->op;
        n = parse_binary_node(p, NODE_BINARY, op, n, parse_power(p));
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
        n = parse_binary_node(p, NODE_BINARY, op, n, parse_concat(p));
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
        struct node *operand = parse_unary_node(p, NODE_OPERAND, parse_sum(p));
        if (!compare && operand) {
            compare = parse_unary_node(p, NODE_COMPARE, first);
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
        n = parse_unary_node(p, NODE_NOT, n);
    return n && nots > 0 && nots % 2 == 0 ? parse_unary_node(p, NODE_NOT, n) : n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p);
    while (n && parse_skip_name(p, "and"))
        n = parse_binary_node(p, NODE_AND, 0, n, parse_not(p));
    return n;
}

static struct node *parse_or(struct parser *p)
{
    struct node *n = parse_and(p);
    while (n && parse_skip_name(p, "or"))
        n = parse_binary_node(p, NODE_OR, 0, n, parse_and(p));
    return n;
}

static struct node *parse_choice(struct parser *p)
{
    struct node *n = parse_or(p);
    while (n && parse_skip_name(p, "if")) {
        struct node *choose = parse_unary_node(p, NODE_CHOOSE, parse_or(p));
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
    if (++p->nesting > PARSER_MAX_NESTING) {
        parse_fail(p, HP_ELIMIT, "expressions are nested deeper than %d", PARSER_MAX_NESTING);
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
        if (parse_is_op(p, ')') || p->at->kind == TOKEN_BLOCK_END ||
            p->at->kind == TOKEN_EXPRESSION_END)
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
        return parse_wrong(p, "a name");
    struct node *n = parse_node(p, NODE_NAME);
    if (!n)
        return NULL;
    n->text = p->at++->text;
    return parse_is_op(p, '.') ? parse_attribute(p, n) : n;
}

struct node *parse_target(struct parser *p)
{
    if (++p->nesting > PARSER_MAX_NESTING) {
        parse_fail(p, HP_ELIMIT, "names are nested deeper than %d", PARSER_MAX_NESTING);
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
