/* The tokens of a tokenizer: id to text, and text to id for those that text can become. */
#ifndef HP_MODEL_TOKENIZER_VOCABULARY_H
#define HP_MODEL_TOKENIZER_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"

struct vocabulary_token {
    const char *text; /* as the file spells it; NULL where an id has no token */
    const char *out;  /* the bytes that decoding writes */
    uint32_t size, out_size;
    bool special; /* left out of an answer */
};

struct vocabulary {
    struct vocabulary_token *tokens; /* [n] */
    uint32_t n;
    uint32_t *slots; /* id + 1 by hash of text; 0 is free */
    size_t n_slots;
};

enum { VOCABULARY_MAX_IDS = 1 << 24 };

/* Room for ids below `n`; memory comes from `arena` and is zero. */
int vocabulary_init(struct vocabulary *v, struct arena *arena, uint32_t n, struct err *e);
/* Copies `text`, which becomes what decoding writes as well. */
int vocabulary_set(struct vocabulary *v, struct arena *arena, uint32_t id, const char *text,
                   size_t size, struct err *e);
/* Lets vocabulary_find know the token; of two with one text the first stays. */
void vocabulary_index(struct vocabulary *v, uint32_t id);
/* The id, or -1. */
int64_t vocabulary_find(const struct vocabulary *v, const char *text, size_t size);

#endif
