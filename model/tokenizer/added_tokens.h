/* Tokens that are looked for in the text itself before anything else happens to it: special tokens
 * and those added by hand. Of several that start at one place the longest counts. */
#ifndef HP_MODEL_TOKENIZER_ADDED_TOKENS_H
#define HP_MODEL_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/bytes.h"
#include "common/status.h"

struct added_token {
    uint32_t id;
    bool lstrip, rstrip; /* takes the white space before, behind */
    bool single_word;    /* only where no letter, digit or underscore touches it */
    bool special;        /* not looked for where text is literal */
    uint32_t size;       /* bytes of its text; set by added_tokens_add */
};

struct added_node;

struct added_tokens {
    struct arena *arena;
    struct added_node *nodes; /* a trie over the tokens' bytes from last to first */
    uint32_t n_nodes, capacity;
    uint32_t roots[256];
    struct added_token *tokens;
    uint32_t n_tokens, tokens_capacity;
};

/* Zero-initialised but for `arena` is empty. An empty text is ignored; the same text again replaces
 * the token. */
int added_tokens_add(struct added_tokens *a, const char *text, size_t size,
                     const struct added_token *token, struct err *e);
/* To be called once, behind the last token and before the first scan. */
int added_tokens_finish(struct added_tokens *a, struct err *e);

/* A range of bytes. */
struct text_span {
    size_t start, end;
};

/* The tokens of one text, from its start to its end. Zero-initialised is empty. */
struct added_scan {
    const struct added_tokens *tokens;
    const char *text;
    size_t size;
    const struct text_span
        *literal; /* in order: no special token that touches one of them is found */
    size_t n_literal, at_literal;
    struct buffer hits; /* places where a token starts, the first place last */
};
/* Looks at the whole text once, whatever the tokens are (Aho and Corasick, CACM 18(6), 1975, from
 * the text's end to its start, so that the longest token at each place is known). The text and the
 * spans must outlive the scan, which is used again and again. */
int added_scan_start(struct added_scan *s, const struct added_tokens *a, const char *text,
                     size_t size, const struct text_span *literal, size_t n_literal, struct err *e);
/* The first token at or after `at`, which never goes back: true with its id and range. White space
 * that it takes is in the range, but never bytes before `at`. */
bool added_scan_next(struct added_scan *s, size_t at, size_t *start, size_t *end, uint32_t *id);
void added_scan_free(struct added_scan *s);

#endif
