/* Ids to text, as far as it is whole characters. */
#include <string.h>

#include "common/utf8.h"
#include "model/tokenizer/tokenizer_int.h"

void token_stream_init(struct token_stream *s, const struct tokenizer *t, bool skip_special)
{
    *s = (struct token_stream){.tokenizer = t, .skip_special = skip_special};
}

/* Writes what can be told from the bytes held; they are at most a part of one character and one
 * byte more. */
static void flush_held(struct token_stream *s, struct buffer *out)
{
    while (s->n_held > 0) {
        uint32_t c;
        int length = utf8_decode((const char *)s->held, s->n_held, &c);
        if (length == 0)
            return;
        size_t used = (size_t)(length > 0 ? length : -length);
        utf8_append(out, length > 0 ? c : UTF8_REPLACEMENT);
        s->n_held -= used;
        memmove(s->held, s->held + used, s->n_held);
    }
}

void token_stream_push(struct token_stream *s, uint32_t id, struct buffer *out)
{
    const struct vocabulary *v = &s->tokenizer->vocabulary;
    if (id >= v->n || !v->tokens[id].text || (s->skip_special && v->tokens[id].special))
        return;
    const struct vocabulary_token *t = &v->tokens[id];
    const char *bytes = t->out;
    size_t size = t->out_size;
    if (!s->started && size > 0) {
        s->started = true;
        if (s->tokenizer->first_as_spelled) {
            bytes = t->text;
            size = t->size;
        } else if (s->tokenizer->strip_leading_space && bytes[0] == ' ') {
            bytes++;
            size--;
        }
    }
    for (size_t i = 0; i < size; i++) {
        s->held[s->n_held++] = (uint8_t)bytes[i];
        flush_held(s, out);
    }
}

void token_stream_finish(struct token_stream *s, struct buffer *out)
{
    if (s->n_held > 0)
        utf8_append(out, UTF8_REPLACEMENT);
    s->n_held = 0;
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, struct buffer *out,
                     struct err *e)
{
    struct token_stream s;
    token_stream_init(&s, t, false);
    for (size_t i = 0; i < n && !out->failed; i++)
        token_stream_push(&s, ids[i], out);
    token_stream_finish(&s, out);
    return out->failed ? err_set(e, HP_ENOMEM, "out of memory to decode %zu tokens", n) : 0;
}
