/* Text to words, by the pattern of the file: a list of steps, each of which cuts words further or
 * rewrites them. A merge never crosses a word's end. Patterns are known by name (GGUF:
 * tokenizer.ggml.pre) or come as regular expressions (tokenizer.json). */
#ifndef HP_MODEL_TOKENIZER_PRETOKENIZE_H
#define HP_MODEL_TOKENIZER_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/tokenizer/pattern.h"

enum split_behavior {
    SPLIT_ISOLATED,    /* a match is a word */
    SPLIT_REMOVED,     /* a match goes away */
    SPLIT_WITH_BEFORE, /* a match ends the word before it */
    SPLIT_WITH_NEXT,   /* a match begins the word behind it */
    SPLIT_CONTIGUOUS,  /* neighbouring matches are one word */
};

enum pretokenize_kind {
    PRETOKENIZE_SPLIT,
    PRETOKENIZE_BERT,         /* white space goes, every punctuation mark is a word */
    PRETOKENIZE_PREFIX_SPACE, /* a space before each word that has none */
    PRETOKENIZE_BYTES,     /* each byte becomes its printable character, as in GPT-2's vocabulary */
    PRETOKENIZE_METASPACE, /* spaces become U+2581, with one put in front */
};

enum metaspace_prepend { METASPACE_ALWAYS, METASPACE_FIRST, METASPACE_NEVER };

struct pretokenize_step {
    enum pretokenize_kind kind;
    struct pattern *pattern; /* SPLIT: owned by the pretokenizer */
    enum split_behavior behavior;
    bool invert;                    /* SPLIT: what does not match counts as the match */
    enum metaspace_prepend prepend; /* METASPACE */
};

enum { PRETOKENIZE_MAX_STEPS = 32 };

struct pretokenizer {
    struct pretokenize_step steps[PRETOKENIZE_MAX_STEPS];
    int n_steps;
};

/* Adds a step; a pattern in it is the pretokenizer's from then on, also on failure. */
int pretokenizer_add(struct pretokenizer *p, const struct pretokenize_step *step, struct err *e);
int pretokenizer_add_split(struct pretokenizer *p, const char *regex, enum split_behavior behavior,
                           bool invert, struct err *e);
/* GPT-2's own pattern. */
int pretokenizer_add_gpt2(struct pretokenizer *p, struct err *e);
/* The steps that a name in a GGUF file stands for, bytes last. HP_EUNSUPPORTED lists the names that
 * are known. */
int pretokenizer_add_named(struct pretokenizer *p, const char *name, size_t name_size,
                           struct err *e);
void pretokenizer_fini(struct pretokenizer *p);

/* What the name in a GGUF file says beside the pattern. */
struct pretokenize_traits {
    bool nfc;           /* text is brought into NFC first */
    bool ignore_merges; /* a word that is a token is that token */
    bool first_token;   /* the first token of all is added where the file does not say */
    bool marks;         /* an encoder: <s> and </s> stand around a text */
};
struct pretokenize_traits pretokenize_traits_of(const char *name, size_t name_size);
/* The names in GGUF files, one by one: NULL behind the last. */
const char *pretokenizer_known(int i);
/* pretokenize_match.c: the name under which a GGUF file's reader cuts as `p` does, with `nfc` and
 * `ignore_merges` as given. Both cut a text that tells all patterns apart. HP_EUNSUPPORTED where
 * none does. */
int pretokenizer_name(const struct pretokenizer *p, const struct pretokenize_traits *traits,
                      const char **out, struct err *e);

struct word {
    size_t start, end;
};

/* Words in `text`; two sets, for the steps go back and forth between them. Zero-initialised is
 * empty. */
struct words {
    struct buffer text, ranges; /* of struct word */
    struct buffer other_text, other_ranges;
    struct buffer seen; /* the text as patterns see it, where `is_seen`: characters that PCRE2 does
                           not know replaced by older ones of their kind */
    bool is_seen;
    struct pattern_search *search;
};
void words_free(struct words *w);

/* Cuts valid UTF-8. `at_start`: nothing stands before this text. The words are w->ranges over
 * w->text. */
int pretokenizer_run(const struct pretokenizer *p, const char *text, size_t size, bool at_start,
                     struct words *w, struct err *e);

/* Appends the printable character of a byte, in UTF-8. */
void pretokenize_byte_append(struct buffer *out, uint8_t byte);
/* The byte that such a character stands for, or -1. */
int pretokenize_byte_of(uint32_t c);

#endif
