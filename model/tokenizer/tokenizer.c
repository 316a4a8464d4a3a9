#include <string.h>

#include "common/utf8.h"
#include "model/tokenizer/tokenizer_int.h"
#include "model/tokenizer/word_cache.h"

enum { TEXT_MAX_BYTES = 1 << 30, CACHED_TEXT_BYTES = 512 };

int tokenizer_vocabulary(const struct tokenizer *t)
{
    return (int)t->vocabulary.n;
}

const char *tokenizer_token_bytes(const struct tokenizer *t, uint32_t id, size_t *size)
{
    const struct vocabulary_token *token = id < t->vocabulary.n ? &t->vocabulary.tokens[id] : NULL;
    bool spelt = token && (token->special || !token->out);
    *size = !token || !token->text ? 0 : spelt ? token->size : token->out_size;
    return !*size ? "" : spelt ? token->text : token->out;
}

const char *tokenizer_token_text(const struct tokenizer *t, uint32_t id, size_t *size)
{
    const struct vocabulary_token *token = id < t->vocabulary.n ? &t->vocabulary.tokens[id] : NULL;
    bool stands = token && token->text && token->out && !token->special;
    *size = stands ? token->out_size : 0;
    return stands ? token->out : "";
}

bool tokenizer_drops_first_space(const struct tokenizer *t)
{
    return t->strip_leading_space && !t->first_as_spelled;
}

/* A normaliser may turn any character into the first one of a token that is looked for behind it.
 */
static bool specials_are_normalized(const struct tokenizer *t)
{
    for (uint32_t i = 0; i < t->normalized.n_tokens; i++)
        if (t->normalized.tokens[i].special && t->normalizer.n_steps > 0)
            return true;
    return false;
}

void tokenizer_special_starts(const struct tokenizer *t, bool starts[256])
{
    memset(starts, specials_are_normalized(t), 256);
    const struct added_tokens *sets[] = {&t->raw, &t->normalized};
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < sets[k]->n_tokens; i++) {
            const struct added_token *added = &sets[k]->tokens[i];
            const struct vocabulary_token *token =
                added->id < t->vocabulary.n ? &t->vocabulary.tokens[added->id] : NULL;
            if (added->special && token && token->text && token->size > 0)
                starts[(uint8_t)token->text[0]] = true;
        }
}

const uint32_t *tokenizer_end_ids(const struct tokenizer *t, int *count)
{
    *count = t->n_end_ids;
    return t->end_ids;
}

const char *tokenizer_bos_text(const struct tokenizer *t)
{
    return t->bos_text;
}

const char *tokenizer_eos_text(const struct tokenizer *t)
{
    return t->eos_text;
}

const char *tokenizer_pad_text(const struct tokenizer *t)
{
    return t->pad_text;
}

const char *tokenizer_unknown_text(const struct tokenizer *t)
{
    return t->unknown_text;
}

const char *tokenizer_kind(const struct tokenizer *t)
{
    if (t->none || t->model != TOKENIZER_BPE)
        return t->none ? "none" : t->model == TOKENIZER_UNIGRAM ? "unigram" : "wordpiece";
    return t->bytes ? "bpe" : "sentencepiece";
}

/* ---- text to ids ---- */

struct encoding {
    const struct tokenizer *t;
    const char *text;
    const struct text_span *literal;
    size_t n_literal, at_literal;
    struct buffer normal, scratch, normal_literal; /* the last: struct text_span */
    struct added_scan raw, normalized;
    struct words words;
    struct bpe_scratch bpe;
    struct buffer steps; /* of unigram */
    struct word_cache known;
    struct buffer *out;
    struct err *e;
};

static void encoding_fini(struct encoding *c)
{
    buffer_free(&c->normal);
    buffer_free(&c->scratch);
    buffer_free(&c->normal_literal);
    added_scan_free(&c->raw);
    added_scan_free(&c->normalized);
    words_free(&c->words);
    bpe_scratch_free(&c->bpe);
    buffer_free(&c->steps);
    word_cache_free(&c->known);
}

static int word_encode(struct encoding *c, const char *word, size_t size)
{
    const struct tokenizer *t = c->t;
    if (t->model == TOKENIZER_WORDPIECE)
        return wordpiece_word(&t->wordpiece, c->bpe.plain, word, size, c->out, c->e);
    if (t->model == TOKENIZER_UNIGRAM)
        return unigram_text(&t->unigram, c->bpe.plain, word, size, &c->steps, c->out, c->e);
    return bpe_word(&t->bpe, &c->bpe, word, size, c->out, c->e);
}

/* The same word always becomes the same tokens. */
static int encode_word(struct encoding *c, const char *word, size_t size)
{
    size_t before = c->out->size;
    if (word_cache_take(&c->known, word, size, c->out))
        return 0;
    int rc = word_encode(c, word, size);
    if (rc == 0 && !c->out->failed && c->out->size > before)
        word_cache_put(&c->known, word, size,
                       (const uint32_t *)(const void *)(c->out->data + before),
                       (c->out->size - before) / sizeof(uint32_t));
    return rc;
}

/* A word, or what marks cut it into where no token goes on over them. */
static int encode_words(struct encoding *c, const char *word, size_t size)
{
    static const char mark[] = "\xE2\x96\x81";
    size_t from = 0;
    int rc = 0;
    for (size_t at = 1; c->t->cut_at_marks && rc == 0 && at < size;) {
        const char *hit = memmem(word + at, size - at, mark, 3);
        if (!hit)
            break;
        at = (size_t)(hit - word);
        if (at < from + 3 || memcmp(hit - 3, mark, 3) != 0) {
            rc = encode_word(c, word + from, at - from);
            from = at;
        }
        at += 3;
    }
    return rc < 0 ? rc : encode_word(c, word + from, size - from);
}

/* Text without added tokens, normalised. */
static int encode_plain(struct encoding *c, const char *text, size_t size, bool at_start)
{
    if (size == 0)
        return 0;
    int rc = pretokenizer_run(&c->t->pretokenizer, text, size, at_start, &c->words, c->e);
    const struct word *words = (const struct word *)(const void *)c->words.ranges.data;
    size_t n = rc < 0 ? 0 : c->words.ranges.size / sizeof *words;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = encode_words(c, (const char *)c->words.text.data + words[i].start,
                          words[i].end - words[i].start);
    return rc;
}

/* Normalises text up to each border of a literal span, to learn where the spans lie in the
 * normalised text. */
static int normalize_span(struct encoding *c, const char *text, size_t from, size_t to,
                          bool section_start, size_t *end)
{
    int rc = normalizer_run(&c->t->normalizer, text + from, to - from, section_start && from == 0,
                            &c->normal, &c->scratch, c->e);
    *end += rc < 0 ? 0 : c->normal.size;
    return rc;
}

/* Literal spans of a stretch of text as they lie in its normalised form; all of it where pieces do
 * not add up to the whole. */
static int normalize_literal(struct encoding *c, const char *text, size_t size, bool section_start,
                             size_t normal_size)
{
    size_t offset = (size_t)(text - c->text), at = 0, normal_at = 0;
    int rc = 0;
    c->normal_literal.size = 0;
    while (c->at_literal < c->n_literal && c->literal[c->at_literal].end <= offset)
        c->at_literal++;
    for (size_t i = c->at_literal;
         rc == 0 && i < c->n_literal && c->literal[i].start < offset + size; i++) {
        size_t start = c->literal[i].start > offset ? c->literal[i].start - offset : 0;
        size_t end = c->literal[i].end < offset + size ? c->literal[i].end - offset : size;
        struct text_span s = {0};
        rc = normalize_span(c, text, at, start, section_start, &normal_at);
        s.start = normal_at;
        rc = rc < 0 ? rc : normalize_span(c, text, start, end, section_start, &normal_at);
        s.end = normal_at;
        buffer_append(&c->normal_literal, &s, sizeof s);
        at = end;
    }
    if (rc < 0 || c->normal_literal.size == 0)
        return rc;
    rc = normalize_span(c, text, at, size, section_start, &normal_at);
    if (rc == 0 && normal_at != normal_size) {
        struct text_span all = {0, normal_size};
        c->normal_literal.size = 0;
        buffer_append(&c->normal_literal, &all, sizeof all);
    }
    return rc < 0 || !c->normal_literal.failed
               ? rc
               : err_set(c->e, HP_ENOMEM, "out of memory to tokenize %zu bytes", size);
}

/* Normalises into c->normal and looks for the tokens that are added to normalised text. */
static int scan_normalized(struct encoding *c, const char *text, size_t size, bool section_start)
{
    const struct normalizer *n = &c->t->normalizer;
    int rc = normalizer_run(n, text, size, section_start, &c->normal, &c->scratch, c->e);
    size_t normal_size = c->normal.size;
    c->normal_literal.size = 0;
    if (rc == 0 && c->n_literal > 0 && c->t->normalized.n_tokens > 0) {
        rc = normalize_literal(c, text, size, section_start, normal_size);
        rc = rc < 0 ? rc
                    : normalizer_run(n, text, size, section_start, &c->normal, &c->scratch, c->e);
    }
    const struct text_span *spans = (const struct text_span *)(const void *)c->normal_literal.data;
    return rc < 0
               ? rc
               : added_scan_start(&c->normalized, &c->t->normalized, buffer_cstr(&c->normal),
                                  normal_size, spans, c->normal_literal.size / sizeof *spans, c->e);
}

/* Valid UTF-8 without tokens that are looked for in raw text. */
static int encode_valid(struct encoding *c, const char *text, size_t size, bool section_start)
{
    bool at_start = text == c->text;
    int rc = scan_normalized(c, text, size, section_start && (at_start || !c->t->prepend_once));
    if (rc < 0)
        return rc;
    const char *normal = buffer_cstr(&c->normal);
    size_t end = c->normal.size, at = 0, start, stop;
    uint32_t id;
    while (at < end && rc == 0 && added_scan_next(&c->normalized, at, &start, &stop, &id)) {
        rc = encode_plain(c, normal + at, start - at, at_start && at == 0);
        buffer_append(c->out, &id, sizeof id);
        at = stop;
    }
    return rc < 0 || at >= end ? rc : encode_plain(c, normal + at, end - at, at_start && at == 0);
}

/* A run of bytes that are not UTF-8 is a word of its own; WordPiece drops them, as it does U+FFFD.
 */
static int encode_bytes(struct encoding *c, const char *bytes, size_t size)
{
    if (c->t->model == TOKENIZER_WORDPIECE)
        return 0;
    if (c->t->bytes) {
        c->scratch.size = 0;
        for (size_t i = 0; i < size; i++)
            pretokenize_byte_append(&c->scratch, (uint8_t)bytes[i]);
        return bpe_word(&c->t->bpe, &c->bpe, buffer_cstr(&c->scratch), c->scratch.size, c->out,
                        c->e);
    }
    for (size_t i = 0; i < size; i++) {
        int64_t id = c->t->bpe.byte_ids[(uint8_t)bytes[i]];
        id = id < 0 ? c->t->bpe.unknown : id;
        if (id < 0)
            return err_set(c->e, HP_EINVAL,
                           "byte %zu of the text is 0x%02x, which is not UTF-8, and the tokenizer "
                           "has no byte tokens",
                           (size_t)(bytes + i - c->text), (uint8_t)bytes[i]);
        uint32_t token = (uint32_t)id;
        buffer_append(c->out, &token, sizeof token);
    }
    return 0;
}

static size_t invalid_prefix(const char *s, size_t n)
{
    size_t at = 0;
    uint32_t c;
    while (at < n && utf8_decode(s + at, n - at, &c) <= 0)
        at++;
    return at;
}

/* Text between two tokens that were spelled out. */
static int encode_section(struct encoding *c, const char *text, size_t size)
{
    int rc = 0;
    for (size_t at = 0; at < size && rc == 0;) {
        size_t good = utf8_valid_prefix(text + at, size - at);
        if (good > 0)
            rc = encode_valid(c, text + at, good, at == 0);
        at += good;
        size_t bad = invalid_prefix(text + at, size - at);
        if (bad > 0 && rc == 0)
            rc = encode_bytes(c, text + at, bad);
        at += bad;
    }
    if (rc == HP_EINVAL && c->e && !strstr(c->e->text, "of the text"))
        return err_at(c->e, "byte %zu of the text and on", (size_t)(text - c->text));
    return rc;
}

static int encode_all(struct encoding *c, size_t size)
{
    size_t at = 0, start, stop;
    uint32_t id;
    int rc = added_scan_start(&c->raw, &c->t->raw, c->text, size, c->literal, c->n_literal, c->e);
    while (rc == 0 && at < size && added_scan_next(&c->raw, at, &start, &stop, &id)) {
        rc = encode_section(c, c->text + at, start - at);
        buffer_append(c->out, &id, sizeof id);
        at = stop;
    }
    return rc < 0 || at >= size ? rc : encode_section(c, c->text + at, size - at);
}

int tokenizer_encode_literal(const struct tokenizer *t, const char *text, size_t size,
                             const struct text_span *literal, size_t n_literal, bool add_special,
                             struct buffer *out, struct err *e)
{
    if (size > TEXT_MAX_BYTES)
        return err_set(e, HP_ELIMIT, "a text of %zu bytes; at most %d are tokenized", size,
                       TEXT_MAX_BYTES);
    if (t->none && size > 0)
        return err_set(e, HP_EUNSUPPORTED, "the model's file has no tokenizer; give it token ids");
    if (t->no_scores && size > 0)
        return err_set(
            e, HP_EUNSUPPORTED,
            "the file has no tokenizer.ggml.scores, without which text cannot be cut into tokens");
    struct encoding c = {.t = t,
                         .text = text,
                         .literal = literal,
                         .n_literal = n_literal,
                         .bpe.plain = n_literal > 0,
                         .out = out,
                         .e = e};
    size_t before = out->size;
    if (size >= CACHED_TEXT_BYTES)
        word_cache_open(&c.known, size);
    if (add_special)
        buffer_append(out, t->first, (size_t)t->n_first * sizeof *t->first);
    int rc = encode_all(&c, size);
    if (add_special)
        buffer_append(out, t->last, (size_t)t->n_last * sizeof *t->last);
    encoding_fini(&c);
    if (rc == 0 && out->failed)
        rc = err_set(e, HP_ENOMEM, "out of memory to tokenize %zu bytes", size);
    if (rc < 0)
        out->size = before;
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t size, bool add_special,
                     struct buffer *out, struct err *e)
{
    return tokenizer_encode_literal(t, text, size, NULL, 0, add_special, out, e);
}
