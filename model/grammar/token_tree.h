/* The tokens of a vocabulary by their bytes, as a prefix tree: what a grammar allows is found by
 * walking it once and leaving out what lies below a byte that cannot follow. Never changed after it
 * is made; any thread may read it. */
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

/* Nodes that lie side by side: `n` of them from `first` on. */
struct token_nodes {
    uint32_t first, n;
};

struct token_node {
    uint32_t children; /* the first of those below, which lie side by side */
    uint16_t n_children;
    uint8_t byte;
    uint8_t own;            /* tokens that end here: none, one, or two and more */
    uint32_t first, behind; /* in `sorted`: of those that end here, and below */
    uint64_t rest;  /* text_summary of all that end here or below, without their first character;
                       below a first space, without the one behind it, too */
    uint64_t below; /* the same of what they have behind this byte; of no kind, too, where it ends
                       no character */
};
_Static_assert(sizeof(struct token_node) == 32, "two lie in a line of the cache");

struct token_tree {
    struct token_node *nodes; /* [n_nodes] */
    uint32_t n_nodes, vocabulary;
    uint32_t *sorted;            /* all tokens in the order of the nodes that they end at */
    struct token_nodes roots[2]; /* first bytes; of tokens that have a quote or a backslash, or are
                                    in no set, apart: within strings the others are left out as a
                                    whole */
    uint32_t *offsets; /* [vocabulary + 1]: into `bytes`; tokens that are left out are empty */
    char *bytes;
    struct token_sets *sets;   /* tokens by what they are made of */
    struct token_sets *spaced; /* those that begin with a space, by what is behind it; NULL: they
                                  are few */
    uint32_t space;            /* where that space is a node of roots[0], if there is `spaced` */
    bool drops_first_space;    /* what is printed lacks a space that the text begins with */
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

/* Where in `sorted` those end that end at a node. */
static inline uint32_t token_node_own_end(const struct token_tree *t, const struct token_node *n)
{
    return n->own < 2 ? n->first + n->own
                      : (n->n_children ? t->nodes[n->children].first : n->behind);
}

/* The longest token with which these bytes begin, and its size in *used; TOKEN_NONE: there is none.
 */
uint32_t token_tree_longest(const struct token_tree *t, const char *bytes, size_t n, size_t *used);

#endif
