/* Tokens by their bytes: which of them a text begins with, found byte by byte. */
#ifndef HP_MODEL_TOKENIZER_TOKEN_TRIE_H
#define HP_MODEL_TOKENIZER_TOKEN_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* Zero-initialised is empty. Node 0 stands for no bytes. */
struct token_trie {
    uint64_t *slots; /* a node and the byte behind it (upper 40 bits), and the node that both lead
                        to; 0 is free */
    size_t n_slots;
    int32_t *tokens; /* [n_nodes]: the token that ends at a node; -1: none */
    uint32_t n_nodes, room;
};

enum { TOKEN_TRIE_NODES = 1 << 24 };

/* Of two tokens with one text the first stays. HP_ELIMIT beyond TOKEN_TRIE_NODES nodes. */
int token_trie_add(struct token_trie *t, const char *text, size_t size, uint32_t token,
                   struct err *e);
void token_trie_free(struct token_trie *t);

/* The node behind `node` for one more byte; 0: no token goes on so. */
uint32_t token_trie_next(const struct token_trie *t, uint32_t node, uint8_t byte);

/* The node of these bytes; 0: no token begins so (and that of no bytes). */
uint32_t token_trie_find(const struct token_trie *t, const char *text, size_t size);

#endif
