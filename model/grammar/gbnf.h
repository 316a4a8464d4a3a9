/* Grammars in GBNF, the notation of llama.cpp (grammars/README.md there): rules "name ::= ...",
 * literals, classes, ., groups, | * + ? {m,n}, comments, an alternative on the next line behind
 * "|". Texts begin with the rule "root". */
#ifndef HP_MODEL_GRAMMAR_GBNF_H
#define HP_MODEL_GRAMMAR_GBNF_H

#include "model/grammar/expression.h"

enum { GBNF_MAX_BYTES = 256 << 10, GBNF_MAX_DEPTH = 100 };

/* Adds the rules to an empty builder. HP_EPARSE with the line; HP_ELIMIT; HP_ENOMEM. */
int gbnf_read(struct expressions *x, const char *text, size_t size, struct err *e);

#endif
