/* What the makers of tokenizers (tokenizer_gguf.c, tokenizer_hub*.c) fill in and tokenizer.c runs.
 */
#ifndef HP_MODEL_TOKENIZER_TOKENIZER_INT_H
#define HP_MODEL_TOKENIZER_TOKENIZER_INT_H

#include "common/arena.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/normalize.h"
#include "model/tokenizer/pretokenize.h"
#include "model/tokenizer/token_trie.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/unigram.h"
#include "model/tokenizer/vocabulary.h"
#include "model/tokenizer/wordpiece.h"

enum { TOKENIZER_MAX_EXTRA = 8, TOKENIZER_MAX_ENDS = 16 };

/* How a word becomes tokens. */
enum tokenizer_model { TOKENIZER_BPE, TOKENIZER_UNIGRAM, TOKENIZER_WORDPIECE };

struct tokenizer {
    struct arena arena;
    struct vocabulary vocabulary;
    enum tokenizer_model model;
    struct bpe bpe;         /* of the others, its tokens for bytes and for what has none */
    struct token_trie trie; /* not BPE: the tokens that text may become */
    struct unigram unigram;
    struct wordpiece wordpiece;
    struct normalizer normalizer;
    struct added_tokens raw;        /* looked for in the text as it comes */
    struct added_tokens normalized; /* looked for after normalising */
    struct pretokenizer pretokenizer;
    bool bytes;               /* words are spelled in GPT-2's byte characters */
    bool cut_at_marks;        /* no token goes on over a U+2581 that other text stands before: words
                                 may be cut there */
    bool none;                /* the file has no tokenizer: ids alone are known */
    bool no_scores;           /* the file lacks what text is cut by */
    bool strip_leading_space; /* decoding drops the first space */
    bool first_as_spelled;    /* decoding writes the first token as the file spells it */
    uint32_t first[TOKENIZER_MAX_EXTRA], last[TOKENIZER_MAX_EXTRA]; /* added around a text */
    int n_first, n_last;
    uint32_t end_ids[TOKENIZER_MAX_ENDS];
    int n_end_ids;
    const char *bos_text, *eos_text, *pad_text, *unknown_text;
};

/* Empty; the caller fills it in and gives it to tokenizer_destroy when that fails. NULL when out of
 * memory. */
struct tokenizer *tokenizer_create(void);

/* Sets what decoding writes for a token that is spelled in byte characters; one with other
 * characters is left as it is. */
int tokenizer_set_byte_text(struct tokenizer *t, uint32_t id, struct err *e);
/* The same for SentencePiece's spelling: U+2581 is a space. */
int tokenizer_set_piece_text(struct tokenizer *t, uint32_t id, struct err *e);
/* The same for WordPiece's: `prefix` says that a token goes on with a word; all others begin one,
 * and where `cleanup` says so stand close to the mark or the contraction that they are. */
int tokenizer_set_word_text(struct tokenizer *t, uint32_t id, const char *prefix, bool cleanup,
                            struct err *e);
/* The byte of "<0x0A>", or -1. */
int tokenizer_byte_of_name(const char *text, size_t size);
/* Makes decoding of `id` write that one byte, and text without a token use it. */
int tokenizer_set_byte_token(struct tokenizer *t, uint32_t id, uint8_t byte, struct err *e);
/* Makes it a unigram tokenizer with these scores [vocabulary.n]; t->bpe's `unknown` and byte tokens
 * are known. */
int tokenizer_make_unigram(struct tokenizer *t, const double *scores, struct err *e);
/* Makes it a WordPiece tokenizer; t->bpe.unknown is known. */
int tokenizer_make_wordpiece(struct tokenizer *t, const char *prefix, uint64_t max_chars,
                             struct err *e);
/* The steps of BERT's normalizer. */
struct bert_steps {
    bool clean, space_han, strip_marks, lowercase;
};
int tokenizer_add_bert_steps(struct tokenizer *t, const struct bert_steps *s, struct err *e);
/* Finds out whether words may be cut at marks; to be called when the vocabulary is there. */
void tokenizer_find_marks(struct tokenizer *t);
/* Adds to the end ids, once. An id that has no token is ignored. */
void tokenizer_add_end(struct tokenizer *t, int64_t id);

/* As tokenizer_from_hub, for the files' texts; `config`, `generation` and `settings`
 * (tokenizer_config.json) may be NULL. */
struct json_at;
int tokenizer_from_json(const struct json_at *root, const struct json_at *settings,
                        const struct json_at *config, const struct json_at *generation,
                        struct tokenizer **out, struct err *e);

struct decoder_traits;
/* tokenizer_hub_model.c: vocabulary, merges and switches; `added` (the list of added tokens, whose
 * ids count, too) may be NULL. */
int tokenizer_read_model(struct tokenizer *t, const struct json_at *model,
                         const struct json_at *added, const struct decoder_traits *traits,
                         struct err *e);

/* tokenizer_hub_normalizer.c, tokenizer_hub_steps.c: the parts of tokenizer.json that are lists of
 * steps. */
int tokenizer_read_normalizer(struct tokenizer *t, const struct json_at *at, struct err *e);
int tokenizer_read_pretokenizer(struct tokenizer *t, const struct json_at *at, struct err *e);
/* Decoders: finds out how tokens are spelled, too (t->bytes). */
struct decoder_traits {
    bool bytes, pieces, byte_fallback, words;
    const char *prefix; /* of WordPiece's tokens that go on with a word */
    bool cleanup;
};
int tokenizer_read_decoder(struct tokenizer *t, const struct json_at *at,
                           struct decoder_traits *traits, struct err *e);
int tokenizer_read_post_processor(struct tokenizer *t, const struct json_at *at, struct err *e);

#endif
