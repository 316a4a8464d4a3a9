#include "model/tokenizer/word_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { ENTRIES_LEAST = 64, ENTRIES_MOST = 8192, ENTRY_TEXT = 8, WORD_BYTES = 30, WORD_IDS = 8 };

/* One line of the processor's cache. */
struct word_entry {
    uint8_t size, n;
    char text[WORD_BYTES];
    uint32_t ids[WORD_IDS];
};

void word_cache_open(struct word_cache *c, size_t text_bytes)
{
    size_t n = ENTRIES_LEAST;
    while (n < ENTRIES_MOST && n < text_bytes / ENTRY_TEXT)
        n *= 2;
    if (c->entries)
        return;
    c->entries = calloc(n, sizeof *c->entries);
    c->n_entries = n;
}

void word_cache_free(struct word_cache *c)
{
    free(c->entries);
    c->entries = NULL;
}

static struct word_entry *entry_of(const struct word_cache *c, const char *word, size_t size)
{
    return &c->entries[XXH3_64bits(word, size) & (c->n_entries - 1)];
}

bool word_cache_take(const struct word_cache *c, const char *word, size_t size, struct buffer *out)
{
    if (!c->entries || size == 0 || size > WORD_BYTES)
        return false;
    const struct word_entry *w = entry_of(c, word, size);
    if (w->size != size || memcmp(w->text, word, size) != 0)
        return false;
    buffer_append(out, w->ids, w->n * sizeof *w->ids);
    return true;
}

void word_cache_put(struct word_cache *c, const char *word, size_t size, const uint32_t *ids,
                    size_t n)
{
    if (!c->entries || size == 0 || size > WORD_BYTES || n > WORD_IDS)
        return;
    struct word_entry *w = entry_of(c, word, size);
    w->size = (uint8_t)size;
    w->n = (uint8_t)n;
    memcpy(w->text, word, size);
    memcpy(w->ids, ids, n * sizeof *ids);
}
