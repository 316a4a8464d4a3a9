/* What the files that read tokenizers from GGUF keys share: tokenizer_gguf_vocabulary.c (tokens,
 * merges, scores) below tokenizer_gguf.c (steps, special tokens, the face). */
#ifndef HP_MODEL_TOKENIZER_TOKENIZER_GGUF_INT_H
#define HP_MODEL_TOKENIZER_TOKENIZER_GGUF_INT_H

#include "model/files/gguf.h"
#include "model/tokenizer/tokenizer_int.h"

#define GGUF_TOKENS "tokenizer.ggml."

/* Values of tokenizer.ggml.token_type. */
enum gguf_token_type {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN,
    GGUF_TOKEN_CONTROL,
    GGUF_TOKEN_USER,
    GGUF_TOKEN_UNUSED,
    GGUF_TOKEN_BYTE
};

/* Values of tokenizer.ggml.model. */
enum gguf_vocabulary {
    GGUF_BYTE_BPE,  /* "gpt2": merges over GPT-2's byte characters */
    GGUF_PIECES,    /* "llama": SentencePiece BPE by scores */
    GGUF_UNIGRAM,   /* "t5": SentencePiece unigram */
    GGUF_WORDPIECE, /* "bert": tokens that begin a word have U+2581, the others go on with one */
    GGUF_MERGED_PIECES, /* "gemma4": SentencePiece's spelling, by merges */
};

struct gguf_tokens {
    const struct gguf *g;
    const char *file;
    const struct gguf_key *tokens, *types, *scores, *merges; /* the last three may be NULL */
    uint32_t n;
    enum gguf_vocabulary kind;
    const char *const *keeping_marks;
    struct pretokenize_traits traits;
    int64_t unknown; /* as the file says or its tokens' types do; -1: none */
};

enum gguf_token_type gguf_token_type_of(const struct gguf_tokens *s, uint32_t id);
/* Makes a token one that is looked for in the text itself. */
int gguf_token_spell(struct tokenizer *t, const struct gguf_tokens *s, uint32_t id, struct err *e);
/* The arrays. HP_EPARSE, HP_ELIMIT. */
int gguf_tokens_find(struct gguf_tokens *s, struct err *e);
/* Makes vocabulary and model of `t`. */
int gguf_tokens_read(struct tokenizer *t, const struct gguf_tokens *s, struct err *e);

#endif
