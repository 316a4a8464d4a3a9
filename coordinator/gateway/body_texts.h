/* The long texts of a body, which are read without its parser: that takes ten times as long for
 * each of their bytes. What is left of one in the text that becomes a tree is an empty text. */
#ifndef HP_COORDINATOR_GATEWAY_BODY_TEXTS_H
#define HP_COORDINATOR_GATEWAY_BODY_TEXTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

enum { BODY_TEXT_LONG_BYTES = 24 };

struct body_text {
    size_t number;     /* among the values of the body that are texts */
    size_t begin, end; /* in the body: what stands between the quotes */
    bool escaped;      /* there are escapes in it */
};

/* All zero before. */
struct body_texts {
    struct body_text *texts; /* in the order of the body */
    size_t n, room;
    size_t values; /* texts so far that are values */
    bool failed;   /* no memory */
};

/* Where the `"` stands that ends the text whose first byte is text[begin]. 0: that is no text as
 * JSON has them, or it holds a NUL, which is left to whoever says so. */
size_t body_text_end(const char *text, size_t begin, size_t n, bool *escaped);
/* Takes note of a text, whose ends are known; names of members are none. NULL: it is to stay where
 * it is. */
const struct body_text *body_texts_note(struct body_texts *b, const char *text, size_t n,
                                        size_t begin, size_t end, bool escaped);
/* Puts them where they belong in the tree that was made of the rest. HP_ENOMEM. */
int body_texts_restore(const struct body_texts *b, const char *text, json_t *root, struct err *e);
void body_texts_free(struct body_texts *b);

#endif
