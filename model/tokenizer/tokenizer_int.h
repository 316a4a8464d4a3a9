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
    bool bytes;        /* words are spelled in GPT-2's byte characters */
    bool cut_at_marks; /* no token goes on over a U+2581 that other text stands before: words
                          may be cut there */
    bool none;         /* the file has no tokenizer: ids alone are known */
    bool no_scores;    /* the file lacks what text is cut by */
    bool prepend_once; /* what is put before a text stands only there, not behind each special
                          token */
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

/* What a folder says beside its vocabulary; each may be NULL. */
struct folder_settings {
    const struct json_at *settings; /* tokenizer_config.json, and special_tokens_map.json */
    const struct json_at *config, *generation;
    const struct json_at *added; /* added_tokens.json: ids by text */
};
/* As tokenizer_from_json, of SentencePiece's tokenizer.model (piece_file.h; `file` is for messages)
 * and of Mistral's tekken.json. */
int tokenizer_from_pieces(const char *file, const void *bytes, size_t size,
                          const struct folder_settings *s, struct tokenizer **out, struct err *e);
int tokenizer_from_tekken(const struct json_at *root, const struct folder_settings *s,
                          struct tokenizer **out, struct err *e);

/* tokenizer_hub_pieces.c, tokenizer_tekken.c: all of it but the ids where generation ends. */
int tokenizer_read_pieces(struct tokenizer *t, const char *file, const void *bytes, size_t size,
                          const struct folder_settings *s, struct err *e);
int tokenizer_read_tekken(struct tokenizer *t, const struct json_at *root, struct err *e);

/* tokenizer_hub_settings.c: tokenizer_config.json. The id of the last token with this text, or -1.
 */
int64_t tokenizer_id_of(const struct tokenizer *t, const char *text);
/* The texts of the first and the last token, of padding and of what is unknown, where `settings`
 * (may be NULL) names them; the last one's id is an end. */
void tokenizer_read_names(struct tokenizer *t, const struct json_at *settings);
/* add_bos_token and add_eos_token; `may_take`: they take away as well as add. */
void tokenizer_read_switches(struct tokenizer *t, const struct json_at *settings, bool may_take);
/* Both; `has_template`: the tokens around a text are known, and switches count for those classes
 * alone that heed nothing else. */
void tokenizer_read_settings(struct tokenizer *t, const struct json_at *settings,
                             bool has_template);
/* eos_token_id of config.json and generation_config.json, a number or a list of them. */
void tokenizer_read_ends(struct tokenizer *t, const struct json_at *config);

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
