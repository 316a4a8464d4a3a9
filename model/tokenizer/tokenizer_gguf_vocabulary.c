/* Tokens, merges and scores of a GGUF file's tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tokenizer_gguf_int.h"

#define WORD_GOES_ON "##"

enum gguf_token_type gguf_token_type_of(const struct gguf_tokens *s, uint32_t id)
{
    return s->types ? (enum gguf_token_type)gguf_element_i64(s->types, id) : GGUF_TOKEN_NORMAL;
}

static int find_array(const struct gguf_tokens *s, const char *name, bool strings, uint64_t count,
                      const struct gguf_key **out, struct err *e)
{
    const struct gguf_key *k = gguf_find(s->g, name);
    *out = NULL;
    if (!k)
        return 0;
    if (k->type != GGUF_ARRAY ||
        (strings ? k->element_type != GGUF_STRING
                 : k->element_type == GGUF_STRING || k->element_type == GGUF_ARRAY))
        return err_set(e, HP_EPARSE, "%s: %s is not an array of %s", s->file, name,
                       strings ? "strings" : "numbers");
    if (count && k->count != count)
        return err_set(e, HP_EPARSE, "%s: %s has %llu entries for %llu tokens", s->file, name,
                       (unsigned long long)k->count, (unsigned long long)count);
    *out = k;
    return 0;
}

int gguf_tokens_find(struct gguf_tokens *s, struct err *e)
{
    int rc = find_array(s, GGUF_TOKENS "tokens", true, 0, &s->tokens, e);
    if (rc < 0)
        return rc;
    if (!s->tokens || s->tokens->count == 0)
        return err_set(e, HP_EPARSE,
                       "%s: has no " GGUF_TOKENS "tokens: the file carries no tokenizer", s->file);
    if (s->tokens->count > VOCABULARY_MAX_IDS)
        return err_set(e, HP_ELIMIT,
                       "%s: " GGUF_TOKENS "tokens has %llu entries; at most %d are read", s->file,
                       (unsigned long long)s->tokens->count, VOCABULARY_MAX_IDS);
    s->n = (uint32_t)s->tokens->count;
    rc = find_array(s, GGUF_TOKENS "token_type", false, s->n, &s->types, e);
    if (rc == 0 && (s->kind == GGUF_PIECES || s->kind == GGUF_UNIGRAM))
        rc = find_array(s, GGUF_TOKENS "scores", false, s->n, &s->scores, e);
    return rc < 0 ? rc : find_array(s, GGUF_TOKENS "merges", true, 0, &s->merges, e);
}

/* Rows of the embedding beyond the last token are filled up with "[PAD794]". */
static bool is_padding(const struct gguf_tokens *s, uint32_t id)
{
    const struct gguf_string *t = &s->tokens->strings[id];
    return gguf_token_type_of(s, id) == GGUF_TOKEN_UNUSED && t->size > 4 &&
           memcmp(t->data, "[PAD", 4) == 0;
}

static bool is_among(const char *const *texts, const struct vocabulary_token *token)
{
    for (; *texts; texts++)
        if (strlen(*texts) == token->size && memcmp(*texts, token->text, token->size) == 0)
            return true;
    return false;
}

int gguf_token_spell(struct tokenizer *t, const struct gguf_tokens *s, uint32_t id, struct err *e)
{
    const struct vocabulary_token *token = &t->vocabulary.tokens[id];
    bool takes_blanks = s->keeping_marks && token->special && !is_among(s->keeping_marks, token);
    return added_tokens_add(
        &t->raw, token->text, token->size,
        &(struct added_token){.id = id, .special = token->special, .rstrip = takes_blanks}, e);
}

/* A token's text as it is, or WordPiece's as BERT's own files spell it. */
static int set_text(struct tokenizer *t, const struct gguf_tokens *s, uint32_t id, struct err *e)
{
    static const char mark[] = "\xE2\x96\x81";
    const struct gguf_string *text = &s->tokens->strings[id];
    enum gguf_token_type type = gguf_token_type_of(s, id);
    if (s->kind != GGUF_WORDPIECE || type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN)
        return vocabulary_set(&t->vocabulary, &t->arena, id, text->data, text->size, e);
    if (text->size >= 3 && memcmp(text->data, mark, 3) == 0)
        return vocabulary_set(&t->vocabulary, &t->arena, id, text->data + 3, text->size - 3, e);
    struct buffer spelled = {0};
    buffer_append(&spelled, WORD_GOES_ON, sizeof WORD_GOES_ON - 1);
    buffer_append(&spelled, text->data, text->size);
    int rc = spelled.failed ? err_set(e, HP_ENOMEM, "%s: out of memory for token %u", s->file, id)
                            : vocabulary_set(&t->vocabulary, &t->arena, id, buffer_cstr(&spelled),
                                             spelled.size, e);
    buffer_free(&spelled);
    return rc;
}

static int read_token(struct tokenizer *t, const struct gguf_tokens *s, uint32_t id,
                      bool *takes_part, struct err *e)
{
    const struct gguf_string *text = &s->tokens->strings[id];
    enum gguf_token_type type = gguf_token_type_of(s, id);
    if (is_padding(s, id))
        return 0;
    int rc = set_text(t, s, id, e);
    if (rc == 0 && s->kind == GGUF_WORDPIECE)
        rc = tokenizer_set_word_text(t, id, WORD_GOES_ON, true, e);
    if (rc < 0)
        return rc;
    t->vocabulary.tokens[id].special = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN;
    if (type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_USER || type == GGUF_TOKEN_UNKNOWN)
        return gguf_token_spell(t, s, id, e);
    bool may_be_byte = type == GGUF_TOKEN_BYTE || (s->kind == GGUF_PIECES && !s->types) ||
                       s->kind == GGUF_MERGED_PIECES;
    int byte = may_be_byte ? tokenizer_byte_of_name(text->data, text->size) : -1;
    if (byte >= 0)
        return tokenizer_set_byte_token(t, id, (uint8_t)byte, e);
    takes_part[id] = type != GGUF_TOKEN_UNUSED;
    if (takes_part[id])
        vocabulary_index(&t->vocabulary, id);
    if (s->kind == GGUF_WORDPIECE)
        return 0;
    return t->bytes ? tokenizer_set_byte_text(t, id, e) : tokenizer_set_piece_text(t, id, e);
}

static int read_merges(struct tokenizer *t, const struct gguf_tokens *s, struct err *e)
{
    if (!s->merges)
        return err_set(e, HP_EPARSE, "%s: has no " GGUF_TOKENS "merges", s->file);
    for (uint64_t i = 0; i < s->merges->count; i++) {
        const struct gguf_string *m = &s->merges->strings[i];
        const char *space = m->size > 2 ? memchr(m->data + 1, ' ', m->size - 1) : NULL;
        size_t cut = space ? (size_t)(space - m->data) : 0;
        if (!space || cut + 1 == m->size)
            return err_set(e, HP_EPARSE, "%s: " GGUF_TOKENS "merges[%llu] is not two tokens",
                           s->file, (unsigned long long)i);
        char *joined = malloc(m->size);
        if (!joined)
            return err_set(e, HP_ENOMEM, "%s: out of memory for the merges", s->file);
        memcpy(joined, m->data, cut);
        memcpy(joined + cut, space + 1, m->size - cut - 1);
        int64_t left = vocabulary_find(&t->vocabulary, m->data, cut),
                right = vocabulary_find(&t->vocabulary, space + 1, m->size - cut - 1),
                merged = vocabulary_find(&t->vocabulary, joined, m->size - 1);
        free(joined);
        if (left < 0 || right < 0 || merged < 0)
            return err_set(
                e, HP_EPARSE,
                "%s: " GGUF_TOKENS "merges[%llu] (\"%.*s\") names a token that is not there",
                s->file, (unsigned long long)i, (int)(m->size < 80 ? m->size : 80), m->data);
        bpe_add_merge(&t->bpe, (uint32_t)left, (uint32_t)right, (uint32_t)i, (uint32_t)merged);
    }
    return 0;
}

static int read_scored(struct tokenizer *t, const struct gguf_tokens *s, const bool *takes_part,
                       struct err *e)
{
    /* Ids become text without scores; text does not become ids. */
    t->no_scores = !s->scores;
    if (t->no_scores)
        return 0;
    float *scores = malloc(s->n * sizeof *scores);
    if (!scores)
        return err_set(e, HP_ENOMEM, "%s: out of memory for %u scores", s->file, s->n);
    for (uint32_t id = 0; id < s->n; id++)
        scores[id] = (float)gguf_element_f64(s->scores, id);
    int32_t byte_ids[256];
    memcpy(byte_ids, t->bpe.byte_ids, sizeof byte_ids);
    int rc = bpe_init_scores(&t->bpe, &t->arena, &t->vocabulary, scores, BPE_TIES_LOWER_ID,
                             takes_part, e);
    memcpy(t->bpe.byte_ids, byte_ids, sizeof byte_ids);
    free(scores);
    return rc;
}

static int read_unigram(struct tokenizer *t, const struct gguf_tokens *s, struct err *e)
{
    t->no_scores = !s->scores;
    if (t->no_scores)
        return 0;
    double *scores = calloc((size_t)s->n + 1, sizeof *scores);
    if (!scores)
        return err_set(e, HP_ENOMEM, "%s: out of memory for %u scores", s->file, s->n);
    for (uint32_t id = 0; id < s->n; id++)
        scores[id] = gguf_element_f64(s->scores, id);
    int rc = tokenizer_make_unigram(t, scores, e);
    free(scores);
    return rc;
}

static int read_wordpiece(struct tokenizer *t, const struct gguf_tokens *s, struct err *e)
{
    enum { MAX_CHARS = 100 }; /* of a word, as in BERT's own files: GGUF does not say */
    return t->bpe.unknown < 0 ? err_set(e, HP_EPARSE, "%s: names no unknown token", s->file)
                              : tokenizer_make_wordpiece(t, WORD_GOES_ON, MAX_CHARS, e);
}

static int read_model(struct tokenizer *t, const struct gguf_tokens *s, const bool *takes_part,
                      struct err *e)
{
    switch (s->kind) {
    case GGUF_PIECES: return read_scored(t, s, takes_part, e);
    case GGUF_UNIGRAM: return read_unigram(t, s, e);
    case GGUF_WORDPIECE: return read_wordpiece(t, s, e);
    case GGUF_BYTE_BPE:
    case GGUF_MERGED_PIECES: break;
    }
    return read_merges(t, s, e);
}

int gguf_tokens_read(struct tokenizer *t, const struct gguf_tokens *s, struct err *e)
{
    uint32_t n = s->n;
    while (n > 0 && is_padding(s, n - 1))
        n--;
    int rc = vocabulary_init(&t->vocabulary, &t->arena, n, e);
    if (rc == 0)
        rc = bpe_init(&t->bpe, &t->arena, &t->vocabulary,
                      s->kind == GGUF_PIECES || !s->merges ? 0 : s->merges->count, e);
    bool *takes_part = rc < 0 ? NULL : calloc(n ? n : 1, sizeof *takes_part);
    if (rc == 0 && !takes_part)
        rc = err_set(e, HP_ENOMEM, "%s: out of memory for %u tokens", s->file, n);
    for (uint32_t id = 0; id < n && rc == 0; id++)
        rc = read_token(t, s, id, takes_part, e);
    t->bpe.unknown = s->unknown;
    if (rc == 0)
        rc = read_model(t, s, takes_part, e);
    free(takes_part);
    return rc;
}
