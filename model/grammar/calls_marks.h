/* Marks in answers, as expressions. */
#ifndef HP_MODEL_GRAMMAR_CALLS_MARKS_H
#define HP_MODEL_GRAMMAR_CALLS_MARKS_H

#include "model/grammar/expression.h"

/* A mark as text, or as a special token. */
const struct expression *grammar_mark(struct expressions *x, const char *mark);
/* Bytes in which `mark` does not stand, up to where it does. `found`: what follows it; with
 * `may_end` the text may end elsewhere. */
const struct expression *grammar_until_mark(struct expressions *x, const char *mark,
                                            const struct expression *found, bool may_end);

/* Adds to a choice the bytes of which to[byte] is `one`, with `next` behind them. */
void grammar_bytes_add(struct expressions *x, struct expression_list *l, const uint32_t to[256],
                       uint32_t one, const struct expression *next);

#endif
