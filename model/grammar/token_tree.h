/* The tokens of a vocabulary by their bytes, as a prefix tree in the order in which one walks it:
 * what a grammar allows is found by walking once from left to right and leaving out what lies below
 * a byte that cannot follow. Never changed after it is made; any thread may read it. */
#ifndef HP_MODEL_GRAMMAR_TOKEN_TREE_H
#define HP_MODEL_GRAMMAR_TOKEN_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/tokenizer/tokenizer.h"

enum {
    TOKEN_TREE_DEEPEST = 255, /* tokens of more bytes are left out */
    TOKEN_TREE_SETS = 4
};
#define TOKEN_NONE UINT32_MAX
/* Stands before the text of special tokens, so that no text in UTF-8 can be one of them. */
#define TOKEN_SPECIAL_BYTE 0xFF

struct token_node {
    uint32_t skip;  /* the node behind all that lie below */
    uint32_t token; /* that ends here, or TOKEN_NONE; others with these bytes: `same` */
    uint8_t depth;  /* bytes up to here, with this one */
    uint8_t byte;
    uint8_t plain;   /* bytes of the longest token below, counted from here, where all of those are
                        plain characters (letters, digits, marks and spaces of ASCII but " and \);
                        else   255 */
    bool plain_path; /* this byte and all above are plain characters */
};

struct token_tree {
    struct token_node *nodes;
    uint32_t n_nodes, vocabulary;
    uint32_t roots[256]; /* nodes of first bytes; TOKEN_NONE: no token begins so */
    uint32_t *same;      /* [vocabulary]: the next token with these bytes, or TOKEN_NONE */
    uint32_t *offsets;   /* [vocabulary + 1]: into `bytes`; tokens that are left out are empty */
    char *bytes;
    uint64_t *plain_sets[TOKEN_TREE_SETS]; /* tokens of plain characters alone, a bit each: those of
                                              at most 8, 16, 32, 64 */
    bool drops_first_space; /* what is printed lacks a space that the text begins with */
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

/* How long the tokens of plain set `i` are at most. */
static inline uint32_t token_tree_set_bytes(int i)
{
    return 8u << i;
}

/* The longest token with which these bytes begin, and its size in *used; TOKEN_NONE: there is none.
 */
uint32_t token_tree_longest(const struct token_tree *t, const char *bytes, size_t n, size_t *used);

#endif
