/* WordPiece: of a word the longest token that it begins with, and so on with the rest, whose tokens
 * are spelled with a prefix ("##"). A word that cannot be spelled so, or is too long, is the
 * unknown token. Source: Devlin et al., NAACL 2019, and the code published with it. */
#ifndef HP_MODEL_TOKENIZER_WORDPIECE_H
#define HP_MODEL_TOKENIZER_WORDPIECE_H

#include "common/bytes.h"
#include "model/tokenizer/token_trie.h"
#include "model/tokenizer/vocabulary.h"

struct wordpiece {
    const struct vocabulary *vocabulary;
    const struct token_trie *trie; /* of the tokens that text may become, as they are spelled */
    uint32_t inner;                /* the node behind the prefix; 0: no token has it */
    uint64_t max_chars;            /* of a word */
    uint32_t unknown;
};

/* Appends the ids (u32) of a word of valid UTF-8. `plain`: no special token comes out. */
int wordpiece_word(const struct wordpiece *w, bool plain, const char *word, size_t size,
                   struct buffer *out, struct err *e);

#endif
