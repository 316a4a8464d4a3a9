/* UTF-8, one character at a time, as Unicode's table of well-formed sequences has it (no
 * surrogates, no overlong forms, nothing above U+10FFFF). */
#ifndef HP_COMMON_UTF8_H
#define HP_COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"

enum { UTF8_MAX = 4, UTF8_REPLACEMENT = 0xFFFD };

/* Length (1 to 4) of the character at `s`, of whose text `n` > 0 bytes are there, and its code
 * point in *c. Where there is none: minus the number of bytes that one U+FFFD stands for, or 0 when
 * the bytes end inside a character that may yet be completed. */
int utf8_decode(const char *s, size_t n, uint32_t *c);

/* Writes 1 to 4 bytes; `c` must be a scalar value. */
size_t utf8_encode(uint32_t c, char out[UTF8_MAX]);

/* How many bytes from `s` on are whole characters. */
size_t utf8_valid_prefix(const char *s, size_t n);

/* Start of the character that ends just before byte `at` > 0 of well-formed text. */
size_t utf8_previous(const char *s, size_t at);

/* Appends a character; `c` must be a scalar value. */
void utf8_append(struct buffer *out, uint32_t c);

/* Makes a text, such as a message that quotes a file, well-formed in place: a byte that is not
 * UTF-8 becomes "?". */
void utf8_clean(char *text);
void utf8_clean_bytes(char *text, size_t size);

/* Takes a character off the end of a text that was cut inside it. */
void utf8_trim(char *text);

/* Copies a text (NULL: "") into an array of `size` > 0 bytes: cut between characters where the
 * array is too small, and well-formed whatever it was. */
void utf8_copy(char *out, size_t size, const char *text);

#endif
