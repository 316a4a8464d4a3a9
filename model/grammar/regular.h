/* Regular expressions as clients write them (ECMA-262's syntax, what Python's re shares with it) as
 * expressions. Nothing ever backtracks: they become automata.
 *
 * Known: | * + ? {m,n} and their lazy forms, groups, classes, . \d \w \s and their opposites, \t \n
 * \r \f \v \xHH \uHHHH \u{H}, ^ and $ around an alternative. Refused by name (HP_EUNSUPPORTED):
 * look-around, references to groups, \b, \p, flags. Where dialects differ (\w of letters beyond
 * ASCII) the characters are those that all take alike. */
#ifndef HP_MODEL_GRAMMAR_REGULAR_H
#define HP_MODEL_GRAMMAR_REGULAR_H

#include "model/grammar/expression.h"

enum { REGULAR_MAX_BYTES = 16 << 10, REGULAR_MAX_DEPTH = 100 };

enum regular_mode {
    REGULAR_WHOLE,  /* the text is what matches */
    REGULAR_WITHIN, /* within a JSON string (quoted), what matches may stand anywhere */
};

/* NULL: x->status and its text say why (HP_EPARSE names the place). */
const struct expression *regular_expression(struct expressions *x, const char *pattern, size_t size,
                                            enum regular_mode mode);

#endif
