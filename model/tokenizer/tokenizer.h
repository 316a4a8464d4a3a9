/* Text to ids and back: byte-level BPE, SentencePiece's BPE and unigram, WordPiece, from GGUF keys
 * or from tokenizer.json. Immutable after creation; encode and decode may run on any thread. */
#ifndef HP_MODEL_TOKENIZER_TOKENIZER_H
#define HP_MODEL_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/tokenizer/added_tokens.h"

struct tokenizer;
struct gguf;

/* From the tokenizer.ggml.* keys of a GGUF file; `file` is for messages. A file without a tokenizer
 * gives one of kind "none", without tokens, whose text cannot be encoded. Where `keeping_marks`
 * (ends with NULL) is given, special tokens but those take the white space behind them. */
int tokenizer_from_gguf(const struct gguf *g, const char *file, const char *const *keeping_marks,
                        struct tokenizer **out, struct err *e);
/* From a folder's tokenizer.json with tokenizer_config.json, config.json and generation_config.json
 * where they are. */
int tokenizer_from_hub(const char *folder, struct tokenizer **out, struct err *e);
void tokenizer_destroy(struct tokenizer **t);

/* Appends ids (u32 each) to `out`. With `add_special` the tokenizer's own first and last tokens are
 * added; specials spelled out in the text are recognised either way. Any bytes are accepted where
 * the tokenizer has byte tokens; HP_EINVAL otherwise, naming the position. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t size, bool add_special,
                     struct buffer *out, struct err *e);

/* The same where parts of the text are somebody's own words: special tokens that are spelled out
 * within a span of `literal` (in order, apart), or that reach into one, are plain text. Added
 * tokens that are not special are recognised there as everywhere. `literal` may be NULL where there
 * is none. */
int tokenizer_encode_literal(const struct tokenizer *t, const char *text, size_t size,
                             const struct text_span *literal, size_t n_literal, bool add_special,
                             struct buffer *out, struct err *e);

/* The special tokens that stand before what is before a gap, before what is behind it, and before
 * what is to fill it. False: the vocabulary has none. */
struct infill_mark {
    const char *text;
    uint32_t id;
};
bool tokenizer_infill_marks(const struct tokenizer *t, struct infill_mark out[3]);

/* The text before the name of a repository, and the one before each of its files; NULL: the
 * vocabulary has none. */
void tokenizer_infill_files(const struct tokenizer *t, const char **repository, const char **file);

/* What a model says behind the filling of a gap, beside its end ids: that another file, or another
 * repository, begins, or nothing more. Gives how many it wrote, TOKENIZER_MAX_INFILL_ENDS at most.
 */
enum { TOKENIZER_MAX_INFILL_ENDS = 8 };
int tokenizer_infill_ends(const struct tokenizer *t, uint32_t out[TOKENIZER_MAX_INFILL_ENDS]);

/* Which bytes the text of a special token can begin with, as it is looked for in a text. */
void tokenizer_special_starts(const struct tokenizer *t, bool starts[256]);

/* Appends text; special tokens are written as text; the one leading space that a SentencePiece
 * tokenizer adds is dropped; bytes that are not UTF-8 become U+FFFD; ids beyond the vocabulary give
 * nothing. */
int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, struct buffer *out,
                     struct err *e);

/* Streaming: whole characters only. Push appends what is complete so far; finish what is left.
 * `skip_special` leaves special tokens out. */
struct token_stream {
    const struct tokenizer *tokenizer;
    bool skip_special, started;
    uint8_t held[16];
    size_t n_held;
};
void token_stream_init(struct token_stream *s, const struct tokenizer *t, bool skip_special);
void token_stream_push(struct token_stream *s, uint32_t id, struct buffer *out);
void token_stream_finish(struct token_stream *s, struct buffer *out);

/* The bytes of one token, special ones as they are spelled, whatever stands before it; the
 * tokenizer's own. Of ids that have none: none. */
const char *tokenizer_token_bytes(const struct tokenizer *t, uint32_t id, size_t *size);
/* The bytes that a token stands for in an answer, the tokenizer's own; of special tokens, and of
 * ids that have none, none. */
const char *tokenizer_token_text(const struct tokenizer *t, uint32_t id, size_t *size);
/* Whether decoding drops a space that a text begins with. */
bool tokenizer_drops_first_space(const struct tokenizer *t);

/* How many ids there are. */
int tokenizer_vocabulary(const struct tokenizer *t);
/* At least so many tokens become of a text, found without making them: by what one token holds at
 * most of bytes, of letters, of what is not ASCII and of beginnings of words, with what normalising
 * may take off; white space that a token swallows is not counted. Ends early where it is more than
 * `most`. Looks at every token. */
size_t tokenizer_least_tokens(const struct tokenizer *t, const char *text, size_t size,
                              size_t most);
/* Where generation ends: every end-of-text, end-of-turn or end-of-message token that the file
 * names. */
const uint32_t *tokenizer_end_ids(const struct tokenizer *t, int *count);
/* Text of the tokens that templates know as bos_token, eos_token, pad_token and unk_token; "" where
 * there is none. */
const char *tokenizer_bos_text(const struct tokenizer *t);
const char *tokenizer_eos_text(const struct tokenizer *t);
const char *tokenizer_pad_text(const struct tokenizer *t);
const char *tokenizer_unknown_text(const struct tokenizer *t);
const char *tokenizer_kind(const struct tokenizer *t); /* "bpe", "sentencepiece",
                                                       "unigram", "wordpiece", "none" */

#endif
