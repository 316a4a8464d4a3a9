/* Words at a terminal's right edge, while a text comes: what has come of a word is shown at once,
 * and a word that does not fit is taken back and begins the next line. Colours (ESC [ .. m) take no
 * room, wide characters two columns; between two of these a line may end, as in Chinese and
 * Japanese. What is longer than a line is left to the terminal, which breaks it anywhere. */
#ifndef HP_HPCTL_WORD_WRAP_H
#define HP_HPCTL_WORD_WRAP_H

#include <stdbool.h>
#include <stddef.h>

#include "common/bytes.h"

/* All zero: at the beginning of a line. */
struct word_wrap {
    size_t column;      /* of the cursor; at most the terminal's width */
    size_t word_column; /* where the word began */
    struct buffer word; /* what has come of it, with its colours */
    char colours[32];   /* that are on, and were on where it began */
    char word_colours[32];
};

/* Appends what a terminal of `columns` has to be told to show n more bytes. `keeps`: lines are
 * broken where the text says so and nowhere else. A character (and a colour) comes as a whole. */
void word_wrap_take(struct word_wrap *w, const char *text, size_t n, size_t columns, bool keeps,
                    struct buffer *out);
void word_wrap_free(struct word_wrap *w);

#endif
