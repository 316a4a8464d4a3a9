/* What every part of the parser uses: looking at tokens, making nodes, complaining. */
#include "model/template/parser.h"

#include <stdarg.h>
#include <stdio.h>
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

bool parse_is_name(const struct parser *p, const char *name)
{
    return p->at->kind == TOKEN_NAME && text_is(p->at->text, name);
}
bool parse_is_op(const struct parser *p, int op)
{
    return p->at->kind == TOKEN_OPERATOR && p->at->op == op;
}

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

static const char *token_found(const struct parser *p)
{
    switch (p->at->kind) {
    case TOKEN_END: return "the end of the template";
    case TOKEN_TEXT: return "text";
    case TOKEN_EXPRESSION_END: return "}}";
    case TOKEN_BLOCK_END: return "%}";
    default: return NULL;
    }
}

int parse_unexpected(struct parser *p, const char *wanted)
{
    const char *word = token_found(p);
    struct text t = p->at->text;
    return parse_fail(p, HP_EPARSE, "%s is expected where \"%.*s\" stands", wanted,
                      word ? (int)strlen(word) : (int)(t.size < 40 ? t.size : 40),
                      word ? word : t.data);
}

int parse_expect_op(struct parser *p, int op, const char *what)
{
    return parse_skip_op(p, op) ? 0 : parse_unexpected(p, what);
}

struct node *parse_wrong(struct parser *p, const char *wanted)
{
    parse_unexpected(p, wanted);
    return NULL;
}

struct node *parse_binary_node(struct parser *p, enum node_kind kind, int op, struct node *a,
                               struct node *b)
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

struct node *parse_unary_node(struct parser *p, enum node_kind kind, struct node *a)
{
    struct node *n = a ? parse_node(p, kind) : NULL;
    if (n)
        n->a = a;
    return n;
}
