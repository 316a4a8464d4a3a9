/* Byte-pair encoding: the characters of a word, merged pair by pair in the order of the merges'
 * ranks, the leftmost first among equals. A word of n characters takes O(n log n). Source: Sennrich
 * et al., ACL 2016, section 3.2; ranks as in GPT-2's and SentencePiece's files. */
#ifndef HP_MODEL_TOKENIZER_BPE_H
#define HP_MODEL_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/bytes.h"
#include "common/status.h"
#include "model/tokenizer/vocabulary.h"

struct bpe_merge;

struct bpe {
    const struct vocabulary *vocabulary;
    struct bpe_merge *merges; /* by hash of the pair */
    size_t n_slots, n_merges;
    int32_t byte_ids[256]; /* tokens that stand for one byte, used for characters without a token;
                              -1: none */
    int64_t unknown;       /* the token for what has none; -1: none */
    bool fuse_unknown;     /* neighbouring unknowns become one */
    bool ignore_merges;    /* a word that is a token is that token */
};

/* Nothing in it yet, and room for `n_merges`. `v` must outlive it. */
int bpe_init(struct bpe *b, struct arena *arena, const struct vocabulary *v, size_t n_merges,
             struct err *e);
/* Makes `left` followed by `right` one `merged`; said again, the later rank holds. At most
 * `n_merges` calls. */
void bpe_add_merge(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged);

/* Which of several merges with one score goes first. */
enum bpe_ties {
    BPE_TIES_LOWER_ID, /* the one whose token, then whose left part, has the lower id, as in the
                          tokenizer.json files that are made from such a vocabulary */
    BPE_TIES_LEFTMOST  /* the leftmost in the text, as in SentencePiece and tiktoken */
};

/* Merges implied by a vocabulary with scores: every way to cut a token in two tokens is a merge,
 * the better score first. `takes_part` (may be NULL: all) says which ids; tokens of more than 512
 * bytes take none. To be called instead of bpe_init. */
int bpe_init_scores(struct bpe *b, struct arena *arena, const struct vocabulary *v,
                    const float *scores, enum bpe_ties ties, const bool *takes_part, struct err *e);

/* A merge: `left` followed by `right` becomes `merged`. */
struct bpe_pair {
    uint32_t left, right, merged, rank;
};
/* All merges by rank, those with one rank by the left token's id: a new list in the arena.
 * HP_ENOMEM. */
int bpe_merges_list(const struct bpe *b, struct arena *arena, struct bpe_pair **out, size_t *n,
                    struct err *e);

/* Working memory, reused from word to word; zero-initialised. */
struct bpe_scratch {
    struct buffer symbols, heap;
    bool plain; /* no special token comes out, whatever the merges say */
};
void bpe_scratch_free(struct bpe_scratch *s);

/* Appends the ids (u32) of a word of valid UTF-8. A character that has neither a token
 * nor byte tokens is dropped where there is no unknown token, as the libraries do. HP_EINVAL for
 * what is not UTF-8. */
int bpe_word(const struct bpe *b, struct bpe_scratch *s, const char *word, size_t size,
             struct buffer *out, struct err *e);

#endif
