/* Normalising character by character: what a step appends for valid UTF-8. */
#ifndef HP_MODEL_TOKENIZER_NORMALIZE_CHARS_H
#define HP_MODEL_TOKENIZER_NORMALIZE_CHARS_H

#include <stdbool.h>

#include "common/bytes.h"

/* White space as Unicode has it (the property White_Space). */
bool char_is_space(uint32_t c);

void chars_lowercase(const struct buffer *in, struct buffer *out);
/* Without control characters, every white space a space (BERT). */
void chars_clean(const struct buffer *in, struct buffer *out);
/* Han characters between spaces (BERT). */
void chars_space_han(const struct buffer *in, struct buffer *out);
/* Without marks: those that take no space of their own, or all. */
void chars_strip_marks(const struct buffer *in, bool all, struct buffer *out);
/* SentencePiece's rules for machine translation: no control characters, odd spaces are spaces. */
void chars_nmt(const struct buffer *in, struct buffer *out);
/* Without white space at its ends. */
void chars_strip_ends(const struct buffer *in, bool left, bool right, struct buffer *out);
/* Without spaces at its ends, and one where there were several. */
void chars_squeeze(const struct buffer *in, struct buffer *out);

#endif
