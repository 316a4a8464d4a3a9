#include "model/tokenizer/wordpiece.h"

/* Bytes of the longest token from `node` on that the text begins with; 0: none. */
static size_t longest_token(const struct wordpiece *w, bool plain, uint32_t node, const char *text,
                            size_t size, uint32_t *id)
{
    size_t longest = 0;
    for (size_t i = 0; i < size; i++) {
        node = token_trie_next(w->trie, node, (uint8_t)text[i]);
        if (!node)
            break;
        int32_t token = w->trie->tokens[node];
        if (token >= 0 && !(plain && w->vocabulary->tokens[token].special)) {
            longest = i + 1;
            *id = (uint32_t)token;
        }
    }
    return longest;
}

static uint64_t count_chars(const char *word, size_t size)
{
    uint64_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((uint8_t)word[i] & 0xC0) != 0x80;
    return n;
}

int wordpiece_word(const struct wordpiece *w, bool plain, const char *word, size_t size,
                   struct buffer *out, struct err *e)
{
    size_t before = out->size, at = 0;
    if (size == 0)
        return 0;
    bool spelled = size <= w->max_chars || count_chars(word, size) <= w->max_chars;
    while (spelled && at < size) {
        uint32_t id = 0;
        size_t n = at && !w->inner
                       ? 0
                       : longest_token(w, plain, at ? w->inner : 0, word + at, size - at, &id);
        spelled = n > 0;
        at += n;
        buffer_append(out, &id, sizeof id);
    }
    if (!spelled) {
        out->size = before;
        buffer_append(out, &w->unknown, sizeof w->unknown);
    }
    return out->failed ? err_set(e, HP_ENOMEM, "out of memory for a word of %zu bytes", size) : 0;
}
