/* A whole template: statements, and the text between them. */
#ifndef HP_MODEL_TEMPLATE_PARSE_H
#define HP_MODEL_TEMPLATE_PARSE_H

#include "model/template/parser.h"

/* *body is a BODY. HP_EPARSE, HP_EUNSUPPORTED, HP_ELIMIT or HP_ENOMEM with "line N: reason". */
int template_parse(struct parser *p, struct node **body);

#endif
