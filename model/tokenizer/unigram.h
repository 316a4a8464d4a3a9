/* Unigram: of all ways to cut a text into tokens the one whose scores (logarithms of
 * probabilities) have the greatest sum; found in one pass (Viterbi). Source: Kudo, ACL 2018,
 * section 3.2, as SentencePiece and Hugging Face's `tokenizers` compute it. */
#ifndef HP_MODEL_TOKENIZER_UNIGRAM_H
#define HP_MODEL_TOKENIZER_UNIGRAM_H

#include "common/bytes.h"
#include "model/tokenizer/token_trie.h"
#include "model/tokenizer/vocabulary.h"

struct unigram {
    const struct vocabulary *vocabulary;
    const struct token_trie *trie; /* of the tokens that text may become */
    const double *scores;          /* [vocabulary->n] */
    double unknown_score;          /* of a character that no token begins and ends with */
    int64_t unknown;               /* the token of a run of such characters; -1: they are dropped */
    const int32_t *byte_ids;       /* [256]: their bytes' tokens instead, where all are there;
                                      -1: none */
};

/* What a character without a token counts as, given the least score of all. */
double unigram_unknown_score(double least);

/* Appends the ids (u32) of valid UTF-8. `plain`: no special token comes out. `scratch` is working
 * memory. HP_ENOMEM, HP_ELIMIT. */
int unigram_text(const struct unigram *u, bool plain, const char *text, size_t size,
                 struct buffer *scratch, struct buffer *out, struct err *e);

#endif
