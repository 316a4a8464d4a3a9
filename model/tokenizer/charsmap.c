#include "model/tokenizer/charsmap.h"

#include <stdbool.h>
#include <string.h>

#include "common/utf8.h"

int charsmap_read(const void *bytes, size_t size, struct arena *arena, struct charsmap *out,
                  struct err *e)
{
    struct reader r = reader_of(bytes, size);
    uint32_t trie = reader_u32(&r);
    const uint8_t *units = reader_take(&r, trie);
    if (r.failed || trie % sizeof(uint32_t) != 0 || trie == 0)
        return err_set(e, HP_EPARSE, "precompiled_charsmap: %zu bytes are no table of characters",
                       size);
    *out =
        (struct charsmap){.units = arena_memdup(arena, units, trie),
                          .n_units = trie / sizeof(uint32_t),
                          .texts = arena_strndup(arena, (const char *)r.data + r.at, size - r.at),
                          .texts_size = size - r.at};
    return out->units && out->texts ? 0
                                    : err_set(e, HP_ENOMEM,
                                              "out of memory for a table of "
                                              "characters");
}

/* Units: bits 0-7 are the byte that leads here, 8 says that a value follows, 9 scales the offset in
 * bits 10-30; in a value's unit bit 31 is set, and the others are the value. */
static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}

/* Whether what becomes of a stretch is UTF-8: what follows reads the text as such. */
static bool text_is_valid(const struct charsmap *m, size_t at)
{
    size_t n = strnlen(m->texts + at, m->texts_size - at);
    return utf8_valid_prefix(m->texts + at, n) == n;
}

/* Bytes of the longest stretch that the table has; 0: none. *at is where its text begins. */
static size_t longest_stretch(const struct charsmap *m, const char *text, size_t size, size_t *at)
{
    size_t longest = 0, node = unit_offset(m->units[0]);
    for (size_t i = 0; i < size && i < CHARSMAP_STRETCH && text[i]; i++) {
        node ^= (uint8_t)text[i];
        if (node >= m->n_units)
            break;
        uint32_t unit = m->units[node];
        if ((unit & (1U << 31 | 0xFF)) != (uint8_t)text[i])
            break;
        node ^= unit_offset(unit);
        if (node >= m->n_units)
            break;
        uint32_t value = m->units[node] & ~(1U << 31);
        bool whole = i + 1 == size || ((uint8_t)text[i + 1] & 0xC0) != 0x80;
        if ((unit >> 8 & 1) && whole && value < m->texts_size) {
            longest = i + 1;
            *at = value;
        }
    }
    return longest;
}

int charsmap_apply(const struct charsmap *m, const char *text, size_t size, size_t limit,
                   struct buffer *out, struct err *e)
{
    for (size_t i = 0, at = 0; i < size;) {
        size_t n = longest_stretch(m, text + i, size - i, &at);
        if (n > 0 && text_is_valid(m, at)) {
            buffer_append(out, m->texts + at, strnlen(m->texts + at, m->texts_size - at));
            i += n;
        } else {
            uint32_t c;
            int length = utf8_decode(text + i, size - i, &c);
            n = length > 0 ? (size_t)length : 1;
            buffer_append(out, text + i, n);
            i += n;
        }
        if (out->size > limit)
            return err_set(e, HP_ELIMIT,
                           "precompiled_charsmap grows a text of %zu bytes beyond %zu", size,
                           limit);
    }
    return 0;
}
