/* What every part of the parser uses: looking at tokens, making nodes, complaining. Nodes live in
 * the template's arena. */
#ifndef HP_MODEL_TEMPLATE_PARSER_H
#define HP_MODEL_TEMPLATE_PARSER_H

#include "model/template/lex.h"
#include "model/template/tree.h"

enum { PARSER_MAX_NESTING = 120 };

struct parser {
    struct arena *arena;
    const struct lexeme *at; /* the next token; TOKEN_END is never passed */
    int nesting;
    int loops;       /* around the place, for break and continue */
    int macro_names; /* MACRO_* of the macro around the place */
    struct err *e;
};

/* Writes "line N: ..." and gives `code`. */
int parse_fail(struct parser *p, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "WANTED is expected where ... stands": HP_EPARSE. */
int parse_unexpected(struct parser *p, const char *wanted);
/* The same, as a node that is not there. */
struct node *parse_wrong(struct parser *p, const char *wanted);

/* Whether the next token is that name or operator; those that skip take it when it is. */
bool parse_is_name(const struct parser *p, const char *name);
bool parse_is_op(const struct parser *p, int op);
bool parse_skip_op(struct parser *p, int op);
bool parse_skip_name(struct parser *p, const char *name);
/* Takes the operator, or complains with `what`. */
int parse_expect_op(struct parser *p, int op, const char *what);

/* Nodes at the line of the next token; NULL after parse_fail, and where an operand is NULL. */
struct node *parse_node(struct parser *p, enum node_kind kind);
struct node *parse_unary_node(struct parser *p, enum node_kind kind, struct node *a);
struct node *parse_binary_node(struct parser *p, enum node_kind kind, int op, struct node *a,
                               struct node *b);

#endif
