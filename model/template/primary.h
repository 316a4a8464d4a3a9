/* What binds tightest in expressions: literals, names, brackets; calls, attributes and items behind
 * them; filters and tests. Each function gives NULL after parse_fail. */
#ifndef HP_MODEL_TEMPLATE_PRIMARY_H
#define HP_MODEL_TEMPLATE_PRIMARY_H

#include "model/template/parser.h"

/* A literal, a name, or what stands in brackets. NULL, here and below: the parser has failed. */
struct node *parse_primary(struct parser *p);
/* Calls, attributes and items behind `n`. */
struct node *parse_postfix(struct parser *p, struct node *n);
/* ".name" or ".0" behind `of`; the point is the next token. */
struct node *parse_attribute(struct parser *p, struct node *of);
/* Filters, tests and calls of what they give, behind `n`. */
struct node *parse_filters_and_tests(struct parser *p, struct node *n);
/* "| name(...)" and on, applied to `input`, which is NULL for a block. */
struct node *parse_filters(struct parser *p, struct node *input);
/* The first filter of a chain, whose bar is taken or was left out. */
struct node *parse_filter(struct parser *p, struct node *input);

#endif
