/* SentencePiece's table of what characters become before anything else happens: a trie (a double
 * array, as Darts-clone writes it) from bytes to texts. The format is that of
 * `precompiled_charsmap`: u32 bytes of the trie, its u32 units, then texts that end with a NUL. */
#ifndef HP_MODEL_TOKENIZER_CHARSMAP_H
#define HP_MODEL_TOKENIZER_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/bytes.h"
#include "common/status.h"

enum { CHARSMAP_STRETCH = 256 };

struct charsmap {
    const uint32_t *units;
    size_t n_units;
    const char *texts;
    size_t texts_size;
};

/* Copies the bytes into the arena. HP_EPARSE, HP_ENOMEM. */
int charsmap_read(const void *bytes, size_t size, struct arena *arena, struct charsmap *out,
                  struct err *e);
/* Appends what valid UTF-8 becomes, which is valid UTF-8: at each place the longest stretch of
 * whole characters that the table has (up to CHARSMAP_STRETCH bytes), or the character as it is. A
 * table that makes no sense changes nothing. HP_ELIMIT: it grows the text beyond `limit` bytes. */
int charsmap_apply(const struct charsmap *m, const char *text, size_t size, size_t limit,
                   struct buffer *out, struct err *e);

#endif
