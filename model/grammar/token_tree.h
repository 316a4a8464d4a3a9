/* The tokens of a vocabulary by their bytes, as a prefix tree in the order in which one walks it:
 * what a grammar allows is found by walking once from left to right and leaving out what lies below
 * a byte that cannot follow. Never changed after it is made; any thread may read it. */
#ifndef HP_MODEL_GRAMMAR_TOKEN_TREE_H
#define HP_MODEL_GRAMMAR_TOKEN_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/grammar/char_kinds.h"
#include "model/grammar/token_sets.h"
#include "model/tokenizer/tokenizer.h"

enum {
    TOKEN_TREE_DEEPEST = 255, /* tokens of more bytes are left out */
};
#define TOKEN_NONE UINT32_MAX
/* Stands before the text of special tokens, so that no text in UTF-8 can be one of them. */
#define TOKEN_SPECIAL_BYTE 0xFF

struct token_node {
    uint32_t skip;  /* the node behind all that lie below */
    uint32_t token; /* that ends here, or TOKEN_NONE; others with these bytes: `same` */
    uint32_t first; /* in `sorted`: of those that end here or below, up to that of `skip` */
    uint8_t depth;  /* bytes up to here, with this one */
    uint8_t byte;
    uint16_t text;  /* of all tokens that end here or below: a text_summary */
    uint16_t below; /* the same of what they have behind this byte */
};

struct token_tree {
    struct token_node *nodes; /* [n_nodes + 1]: of the last one `first` alone */
    uint32_t n_nodes, vocabulary;
    uint32_t *sorted;       /* all tokens in the order of the nodes that they end at */
    uint32_t roots[2][256]; /* nodes of first bytes, of tokens that a set has and behind them of the
                               others, which have a tree of their own so that the first can be left
                               out as a whole; TOKEN_NONE: no token begins so */
    uint32_t *same;         /* [vocabulary]: the next token with these bytes, or TOKEN_NONE */
    uint32_t *offsets;      /* [vocabulary + 1]: into `bytes`; tokens that are left out are empty */
    char *bytes;
    struct token_sets *sets; /* tokens by what they are made of */
    bool drops_first_space;  /* what is printed lacks a space that the text begins with */
};

/* A token's bytes; those without any are left out. */
struct token_text {
    const char *bytes;
    uint32_t size;
};
int token_tree_make(const struct token_text *texts, uint32_t vocabulary, struct token_tree **out,
                    struct err *e);
/* Of all tokens that stand for text, and of special ones as TOKEN_SPECIAL_BYTE and how they are
 * spelled; those that end answers, or have this byte themselves, are left out. Ids beyond the
 * tokenizer's, up to `vocabulary`, have none. HP_EUNSUPPORTED: the tokenizer knows no texts. */
int token_tree_of_tokenizer(const struct tokenizer *t, uint32_t vocabulary, struct token_tree **out,
                            struct err *e);
void token_tree_destroy(struct token_tree **t);

/* The longest token with which these bytes begin, and its size in *used; TOKEN_NONE: there is none.
 */
uint32_t token_tree_longest(const struct token_tree *t, const char *bytes, size_t n, size_t *used);

#endif
