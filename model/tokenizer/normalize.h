/* What a tokenizer does to text before it looks for words: a list of steps, each text to text. */
#ifndef HP_MODEL_TOKENIZER_NORMALIZE_H
#define HP_MODEL_TOKENIZER_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/tokenizer/charsmap.h"
#include "model/tokenizer/pattern.h"

enum normalize_kind {
    NORMALIZE_PREPEND, /* `with` before a text that is not empty */
    NORMALIZE_REPLACE, /* every `what` becomes `with` */
    NORMALIZE_NFC,
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_LOWERCASE,
    NORMALIZE_CLEAN,       /* no control characters, every white space a space (BERT) */
    NORMALIZE_SPACE_HAN,   /* Han characters between spaces (BERT) */
    NORMALIZE_STRIP_MARKS, /* marks go that take no space of their own (BERT) */
    NORMALIZE_STRIP_ALL_MARKS,
    NORMALIZE_NMT,
    NORMALIZE_STRIP_LEFT, /* white space at the start goes */
    NORMALIZE_STRIP_RIGHT,
    NORMALIZE_SQUEEZE,  /* spaces at the ends go, of several one stays */
    NORMALIZE_CHARSMAP, /* by `map` */
    NORMALIZE_PATTERN,  /* every match of `pattern` becomes `with` */
};

struct normalize_step {
    enum normalize_kind kind;
    const char *what, *with; /* owned by whoever made the step */
    size_t what_size, with_size;
    const struct charsmap *map; /* the same */
    struct pattern *pattern;    /* owned by the normalizer */
};

enum { NORMALIZE_MAX_STEPS = 16 };

struct normalizer {
    struct normalize_step steps[NORMALIZE_MAX_STEPS];
    int n_steps;
};

/* Adds a step; a pattern in it is the normalizer's from then on, also on failure. */
int normalizer_add(struct normalizer *n, const struct normalize_step *step, struct err *e);
void normalizer_fini(struct normalizer *n);

/* Replaces what `out` holds by the normalised form of valid UTF-8; `scratch` is working memory.
 * `at_start` is false for a text that goes on after bytes that are not UTF-8: nothing is put before
 * it. HP_ELIMIT where the text grows beyond 64 times its size and 1 MiB. */
int normalizer_run(const struct normalizer *n, const char *text, size_t size, bool at_start,
                   struct buffer *out, struct buffer *scratch, struct err *e);

#endif
