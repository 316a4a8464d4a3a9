/* What the makers of tokenizers share: an empty one, and how its tokens are spelled. */
#include <math.h>
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
    normalizer_fini(&(*t)->normalizer);
    token_trie_free(&(*t)->trie);
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
    static const struct normalizer spaces = {.steps = {{.kind = NORMALIZE_REPLACE,
                                                        .what = "\xE2\x96\x81",
                                                        .with = " ",
                                                        .what_size = 3,
                                                        .with_size = 1}},
                                             .n_steps = 1};
    const struct vocabulary_token *token = &t->vocabulary.tokens[id];
    if (!memmem(token->text, token->size, "\xE2\x96\x81", 3))
        return 0;
    struct buffer out = {0}, scratch = {0};
    int rc = normalizer_run(&spaces, token->text, token->size, true, &out, &scratch, e);
    if (rc == 0)
        rc = set_out(t, id, &out, e);
    buffer_free(&out);
    buffer_free(&scratch);
    return rc;
}

int tokenizer_set_word_text(struct tokenizer *t, uint32_t id, const char *prefix, bool cleanup,
                            struct err *e)
{
    static const char *const closer[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                            {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                            {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                            {" 've", "'ve"}, {" 're", "'re"}};
    const struct vocabulary_token *token = &t->vocabulary.tokens[id];
    struct buffer out = {0}, scratch = {0};
    size_t n = strlen(prefix);
    int rc = 0;
    if (n > 0 && token->size >= n && memcmp(token->text, prefix, n) == 0)
        buffer_append(&out, token->text + n, token->size - n);
    else
        buffer_printf(&out, " %.*s", (int)token->size, token->text);
    cleanup = cleanup && strpbrk(token->text, ".?!,' "); /* the others have nothing to clean */
    for (size_t i = 0; cleanup && rc == 0 && i < sizeof closer / sizeof *closer; i++) {
        struct normalizer step = {.steps = {{.kind = NORMALIZE_REPLACE,
                                             .what = closer[i][0],
                                             .with = closer[i][1],
                                             .what_size = strlen(closer[i][0]),
                                             .with_size = strlen(closer[i][1])}},
                                  .n_steps = 1};
        struct buffer now = {0};
        rc = normalizer_run(&step, buffer_cstr(&out), out.size, true, &now, &scratch, e);
        buffer_free(&out);
        out = now;
    }
    rc = rc < 0 ? rc : set_out(t, id, &out, e);
    buffer_free(&out);
    buffer_free(&scratch);
    return rc;
}

/* What the others look tokens up in: all that the vocabulary's index knows. */
static int trie_fill(struct tokenizer *t, struct err *e)
{
    const struct vocabulary *v = &t->vocabulary;
    int rc = 0;
    for (uint32_t id = 0; id < v->n && rc == 0; id++)
        if (v->tokens[id].text &&
            vocabulary_find(v, v->tokens[id].text, v->tokens[id].size) == (int64_t)id)
            rc = token_trie_add(&t->trie, v->tokens[id].text, v->tokens[id].size, id, e);
    return rc;
}

static const char mark[] = "\xE2\x96\x81";

/* Where a mark stands that other text stands before; `size`: nowhere. */
static size_t inner_mark(const char *text, size_t size)
{
    for (size_t at = 1; at + 3 <= size; at++)
        if (memcmp(text + at, mark, 3) == 0 && (at < 3 || memcmp(text + at - 3, mark, 3) != 0))
            return at;
    return size;
}

void tokenizer_find_marks(struct tokenizer *t)
{
    const struct vocabulary *v = &t->vocabulary;
    t->cut_at_marks =
        !t->bytes && t->model != TOKENIZER_WORDPIECE && vocabulary_find(v, mark, 3) >= 0;
    for (uint32_t id = 0; id < v->n && t->cut_at_marks; id++)
        if (v->tokens[id].text &&
            inner_mark(v->tokens[id].text, v->tokens[id].size) < v->tokens[id].size)
            t->cut_at_marks = false;
}

int tokenizer_make_unigram(struct tokenizer *t, const double *scores, struct err *e)
{
    uint32_t n = t->vocabulary.n;
    double least = 0, *own = arena_alloc(&t->arena, n + 1, sizeof *own);
    if (!own)
        return err_set(e, HP_ENOMEM, "out of memory for %u scores", n);
    for (uint32_t id = 0; id < n; id++) {
        own[id] = isfinite(scores[id]) ? scores[id] : -1e9;
        least = own[id] < least ? own[id] : least;
    }
    t->model = TOKENIZER_UNIGRAM;
    t->unigram = (struct unigram){.vocabulary = &t->vocabulary,
                                  .trie = &t->trie,
                                  .scores = own,
                                  .unknown_score = unigram_unknown_score(least),
                                  .unknown = t->bpe.unknown,
                                  .byte_ids = t->bpe.byte_ids};
    return trie_fill(t, e);
}

int tokenizer_make_wordpiece(struct tokenizer *t, const char *prefix, uint64_t max_chars,
                             struct err *e)
{
    int rc = trie_fill(t, e);
    t->model = TOKENIZER_WORDPIECE;
    t->first_as_spelled = true;
    t->wordpiece = (struct wordpiece){.vocabulary = &t->vocabulary,
                                      .trie = &t->trie,
                                      .inner = token_trie_find(&t->trie, prefix, strlen(prefix)),
                                      .max_chars = max_chars,
                                      .unknown = (uint32_t)t->bpe.unknown};
    return rc;
}

int tokenizer_add_bert_steps(struct tokenizer *t, const struct bert_steps *s, struct err *e)
{
    const struct {
        bool wanted;
        enum normalize_kind kind;
    } steps[] = {{s->clean, NORMALIZE_CLEAN},
                 {s->space_han, NORMALIZE_SPACE_HAN},
                 {s->strip_marks, NORMALIZE_NFD},
                 {s->strip_marks, NORMALIZE_STRIP_MARKS},
                 {s->lowercase, NORMALIZE_LOWERCASE}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof steps / sizeof *steps; i++)
        if (steps[i].wanted)
            rc = normalizer_add(&t->normalizer, &(struct normalize_step){.kind = steps[i].kind}, e);
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
