/* What the makers of tokenizers share: an empty one, and how its tokens are spelled. */
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model/tokenizer/tokenizer_int.h"

struct tokenizer *tokenizer_create(void)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (t) {
        t->raw.arena = t->normalized.arena = &t->arena;
        t->bos_text = t->eos_text = t->pad_text = t->unknown_text = "";
    }
    return t;
}

void tokenizer_destroy(struct tokenizer **t)
{
    if (!*t)
        return;
    pretokenizer_fini(&(*t)->pretokenizer);
    arena_free(&(*t)->arena);
    free(*t);
    *t = NULL;
}

void tokenizer_add_end(struct tokenizer *t, int64_t id)
{
    if (id < 0 || id >= (int64_t)t->vocabulary.n || !t->vocabulary.tokens[id].text ||
        t->n_end_ids == TOKENIZER_MAX_ENDS)
        return;
    for (int i = 0; i < t->n_end_ids; i++)
        if (t->end_ids[i] == (uint32_t)id)
            return;
    t->end_ids[t->n_end_ids++] = (uint32_t)id;
}

static int set_out(struct tokenizer *t, uint32_t id, const struct buffer *out, struct err *e)
{
    struct vocabulary_token *token = &t->vocabulary.tokens[id];
    token->out = out->failed ? NULL : arena_memdup(&t->arena, out->data, out->size);
    token->out_size = (uint32_t)out->size;
    if (token->out)
        return 0;
    token->out = "";
    token->out_size = 0;
    return err_set(e, HP_ENOMEM, "out of memory for the text of token %u", id);
}

int tokenizer_set_byte_text(struct tokenizer *t, uint32_t id, struct err *e)
{
    const struct vocabulary_token *token = &t->vocabulary.tokens[id];
    struct buffer out = {0};
    for (uint32_t at = 0; at < token->size;) {
        uint32_t c;
        int length = utf8_decode(token->text + at, token->size - at, &c),
            byte = length > 0 ? pretokenize_byte_of(c) : -1;
        if (byte < 0) {
            buffer_free(&out);
            return 0;
        }
        uint8_t b = (uint8_t)byte;
        buffer_append(&out, &b, 1);
        at += (uint32_t)length;
    }
    int rc = set_out(t, id, &out, e);
    buffer_free(&out);
    return rc;
}

int tokenizer_set_piece_text(struct tokenizer *t, uint32_t id, struct err *e)
{
    static const struct normalizer spaces = {
        .steps = {{NORMALIZE_REPLACE, "\xE2\x96\x81", " ", 3, 1}}, .n_steps = 1};
    const struct vocabulary_token *token = &t->vocabulary.tokens[id];
    if (!memmem(token->text, token->size, "\xE2\x96\x81", 3))
        return 0;
    struct buffer out = {0}, scratch = {0};
    int rc = normalize(&spaces, token->text, token->size, true, &out, &scratch, e);
    if (rc == 0)
        rc = set_out(t, id, &out, e);
    buffer_free(&out);
    buffer_free(&scratch);
    return rc;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int tokenizer_byte_of_name(const char *text, size_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int tokenizer_set_byte_token(struct tokenizer *t, uint32_t id, uint8_t byte, struct err *e)
{
    struct buffer out = {.data = &byte, .size = 1};
    t->bpe.byte_ids[byte] = (int32_t)id;
    return set_out(t, id, &out, e);
}
