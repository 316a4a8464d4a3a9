/* What the makers of grammars share. */
#ifndef HP_MODEL_GRAMMAR_GRAMMAR_INT_H
#define HP_MODEL_GRAMMAR_GRAMMAR_INT_H

#include "model/grammar/grammar.h"

/* grammar_check.c: fills in tails and least, and holds the grammar to what its header promises.
 * `names` (may be NULL) of the rules, for the text. */
int grammar_check(struct grammar *g, const struct expression_rule *names, struct err *e);

/* grammar_wire.c: room for so many; HP_ENOMEM. */
int grammar_allocate(uint32_t n_states, uint32_t n_edges, uint32_t n_rules, struct grammar **out,
                     struct err *e);

#endif
