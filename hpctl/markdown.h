/* Markdown as a terminal can show it while it comes: headings and **strong** bold, `code` in
 * colour, fenced blocks dim and untouched. Everything else stays as it is; no letter is held back
 * for longer than it takes to know what it is. */
#ifndef HP_HPCTL_MARKDOWN_H
#define HP_HPCTL_MARKDOWN_H

#include <stdbool.h>
#include <stddef.h>

struct buffer;

/* All zero: at the beginning of a text. */
struct markdown {
    char mark;   /* of marks that came last and are not understood yet; 0: none */
    int n_marks; /* so many of them */
    bool within; /* something of the line has been written */
    bool fenced, heading, strong, code;
};

/* Appends what n more bytes of a text look like. */
void markdown_take(struct markdown *m, const char *text, size_t n, struct buffer *out);
/* The text ends: appends what was held back, and the way back to plain. */
void markdown_end(struct markdown *m, struct buffer *out);

#endif
