/* Expressions of templates, by recursive descent. Each function gives NULL after parse_fail. */
#ifndef HP_MODEL_TEMPLATE_EXPRESSION_H
#define HP_MODEL_TEMPLATE_EXPRESSION_H

#include "model/template/parser.h"

/* One expression; NULL: the parser has failed and says why. */
struct node *parse_expression(struct parser *p);
/* One expression, or a tuple where a comma follows; with `conditional` false `x if y` is not taken.
 */
struct node *parse_tuple(struct parser *p, bool conditional);
/* Name, attribute of a name, or several of them: what `set` and `for` write to. */
struct node *parse_target(struct parser *p);

#endif
