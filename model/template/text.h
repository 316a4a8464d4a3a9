/* Text of templates: what Python's strings can do, on UTF-8. A text owns nothing; its bytes belong
 * to the template, to the caller's variables or to the arena of a run. No function fails but for
 * want of memory where it says so; counting the work is the caller's (run_tick_text). */
#ifndef HP_MODEL_TEMPLATE_TEXT_H
#define HP_MODEL_TEMPLATE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"

struct text {
    const char *data; /* UTF-8 */
    size_t size;      /* bytes */
};

bool text_is(struct text t, const char *s); /* the same bytes as the C string */
struct text text_of(const char *s);         /* the C string's own bytes */

bool text_space(uint32_t c);       /* as Python's str.isspace */
bool text_word(uint32_t c);        /* letter, digit or underscore */
size_t text_length(struct text t); /* in characters */

/* The bytes of characters [start, end), which are cut to the text's length. */
struct text text_cut(struct text t, size_t start, size_t end);

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
/* The text without the characters of `set` at its ends; without white space where `set.data` is
 * NULL. */
struct text text_strip(struct text t, struct text set, int sides);

enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP };
/* Appends the text in another case; a failed buffer says that memory ran out. */
void text_case(struct text t, enum text_case how, struct buffer *out);

/* The byte where `what` begins, from byte `from` on; -1 when it is not there. Linear in both texts,
 * whatever they are. */
int64_t text_find(struct text t, struct text what, size_t from);
/* The last such place. HP_ENOMEM gives -2. */
int64_t text_find_last(struct text t, struct text what);
bool text_starts(struct text t, struct text what);
bool text_ends(struct text t, struct text what);

#endif
