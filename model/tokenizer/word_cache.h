/* What words of one text have become: many words of a text have been there before. */
#ifndef HP_MODEL_TOKENIZER_WORD_CACHE_H
#define HP_MODEL_TOKENIZER_WORD_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"

struct word_entry;

/* Zero-initialised is empty, and remembers nothing. */
struct word_cache {
    struct word_entry *entries;
    size_t n_entries; /* a power of two */
};

/* The cache remembers words of a text of so many bytes from now on, in a place for every eight of
 * them, 64 at least and 8192 at most; without memory it goes on remembering nothing. */
void word_cache_open(struct word_cache *c, size_t text_bytes);
void word_cache_free(struct word_cache *c);

/* Appends the ids (u32) of a word that is remembered; false: it is not. */
bool word_cache_take(const struct word_cache *c, const char *word, size_t size, struct buffer *out);
/* Remembers a word, in the place of another one; long ones are not. */
void word_cache_put(struct word_cache *c, const char *word, size_t size, const uint32_t *ids,
                    size_t n);

#endif
