/* `literal_specials`: special tokens that somebody spells out in a message are plain text, while
 * those of the chat template stay special.
 *
 * A template is a program that may cut, trim and join what it is given, so the places of a content
 * in its output are found by marks that travel with the text: a character that no text of this
 * request has is put behind every character with which a special token can begin, taken out again
 * after rendering, and the characters before it are handed to the tokenizer as literal. No special
 * token can then begin inside a content, however the template cuts and joins it. Any thread. */
#ifndef HP_COORDINATOR_GATEWAY_LITERAL_H
#define HP_COORDINATOR_GATEWAY_LITERAL_H

#include <jansson.h>

#include "common/bytes.h"
#include "model/tokenizer/tokenizer.h"

enum { LITERAL_MARK_BYTES = 3 };

struct literal_mark {
    char bytes[LITERAL_MARK_BYTES + 1]; /* one of Unicode's noncharacters */
    char escaped[2][8];                 /* how a template that escapes would write it */
};

/* Marks `content` and `name` of every message but the assistant's own. HP_EINVAL: a role that is
 * none of the known ones (templates write roles between tokens of their own), or a text that holds
 * all of the noncharacters. */
int literal_mark(json_t *messages, const struct tokenizer *t, struct literal_mark *mark,
                 struct err *e);
/* Takes the marks out of rendered text; `spans` gets the literal places (struct text_span each, in
 * order, apart). HP_EUNSUPPORTED where the template wrote the marks in another form. */
int literal_unmark(struct buffer *text, const struct literal_mark *mark, struct buffer *spans,
                   struct err *e);

#endif
