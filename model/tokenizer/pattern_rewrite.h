/* Regular expressions of tokenizer files, in the dialect of their library (Oniguruma, Ruby syntax,
 * Unicode), spelled for PCRE2. What means something else there is written out: \s, \w, \h and their
 * opposites, \b and \B, scripts by name, and classes with classes in them: unions, intersections
 * (&&) and opposites. */
#ifndef HP_MODEL_TOKENIZER_PATTERN_REWRITE_H
#define HP_MODEL_TOKENIZER_PATTERN_REWRITE_H

#include <stddef.h>

#include "common/bytes.h"

/* Appends the new spelling. Brackets that are nested deeper than 50 are left as they are. */
void pattern_rewrite(const char *regex, size_t size, struct buffer *out);

#endif
