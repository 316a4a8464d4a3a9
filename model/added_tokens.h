/* Tokens that are looked for in the text itself before anything else happens to it: special tokens and those added by hand.
 * Of several that start at one place the longest counts. */
#ifndef HP_MODEL_ADDED_TOKENS_H
#define HP_MODEL_ADDED_TOKENS_H

#include "common/arena.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct added_token {
    uint32_t id;
    bool lstrip, rstrip; /* takes the white space before, behind */
    bool single_word;    /* only where no letter, digit or underscore touches it */
};

struct added_node;

struct added_tokens {
    struct arena *arena;
    struct added_node *nodes; /* a trie over bytes */
    uint32_t n_nodes, capacity;
    uint32_t roots[256];
    struct added_token *tokens;
    uint32_t n_tokens, tokens_capacity;
};

/* Zero-initialised but for `arena` is empty. An empty text is ignored; the same text again replaces the token. */
int added_tokens_add(struct added_tokens *a, const char *text, size_t size, const struct added_token *token, struct err *e);

/* The first token at or after `at`: true with its id and range. White space that it takes is in the range, but never bytes before
 * `at`. */
bool added_tokens_find(const struct added_tokens *a, const char *text, size_t size, size_t at, size_t *start, size_t *end,
                       uint32_t *id);

#endif
