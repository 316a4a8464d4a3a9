/* The text of one completion as it grows: ids become whole characters, stop strings are found even
 * across tokens, and what might be the start of one is held back until it is clear. No I/O. */
#ifndef HP_COORDINATOR_GATEWAY_COMPLETION_H
#define HP_COORDINATOR_GATEWAY_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "model/tokenizer/tokenizer.h"

enum {
    COMPLETION_MAX_STOPS = 128,
    COMPLETION_MAX_STOP_BYTES = 1024,
    COMPLETION_MAX_STOPS_BYTES = 16 << 10, /* of all: with each token each is looked for */
    COMPLETION_MAX_KEPT = 8
};

struct completion_text {
    struct token_stream stream;
    struct buffer text; /* so far, without what was forgotten, the stop string and what follows;
                           `failed`: some of it is missing */
    size_t given;       /* bytes of it that were handed out */
    char **stops;       /* [n_stops] */
    int n_stops;
    uint32_t stops_bytes;
    uint32_t kept[COMPLETION_MAX_KEPT]; /* special tokens that are written as text */
    int n_kept;
    uint32_t least_indent; /* lines behind the first one that begin with fewer blanks and tabs end
                              it; 0: any may follow */
    uint32_t indent;       /* of the line that it is in, */
    bool indents;          /* whose beginning is blank so far */
    bool has_line;         /* an end of a line has come, */
    bool line_ended;       /* with the last token */
    bool stopped;          /* a stop string was found, or it was ended otherwise */
    const char *found;     /* the one, of `stops`; NULL: none */
    bool limited;          /* by such a line, or by completion_limit */
};

/* The tokenizer is borrowed. */
void completion_init(struct completion_text *c, const struct tokenizer *t, bool skip_special);
/* Copies. False when there are too many, it is empty or too long, alone or with the others, or
 * memory ran out. */
bool completion_add_stop(struct completion_text *c, const char *stop);
/* If this text is one token, it is written even where it is special. False: no memory, or more than
 * COMPLETION_MAX_KEPT. */
bool completion_keep(struct completion_text *c, const char *token);
void completion_fini(struct completion_text *c);

/* Takes one more token. */
void completion_push(struct completion_text *c, uint32_t id);
/* The text ends behind what has come, unless it has ended. */
void completion_limit(struct completion_text *c);
/* No more tokens come: whatever was held may be handed out. */
void completion_finish(struct completion_text *c);
/* The bytes that may be handed out now; counted as given. Whole characters only. */
const char *completion_take(struct completion_text *c, size_t *n);
/* Drops what was handed out, so that a stream does not keep its whole text; cheap enough for every
 * token. What was taken is invalid then. */
void completion_forget_given(struct completion_text *c);

#endif
