/* A tokenizer from the tokenizer.ggml.* keys of a GGUF file. */
#include <string.h>

#include "common/utf8.h"
#include "model/tokenizer/tokenizer_gguf_int.h"

/* -1 where the key says that there is none (-1, 2^32 - 1); `missing` where there is no key. */
static int read_id(const struct gguf_tokens *s, const char *name, int64_t missing, int64_t *id,
                   struct err *e)
{
    const struct gguf_key *k = gguf_find(s->g, name);
    uint64_t value = 0;
    *id = missing < (int64_t)s->n ? missing : -1;
    if (!k)
        return 0;
    *id = -1;
    bool sign =
        k->type == GGUF_I8 || k->type == GGUF_I16 || k->type == GGUF_I32 || k->type == GGUF_I64;
    if (sign && gguf_element_i64(k, 0) < 0)
        return 0;
    int rc = gguf_get_u64(s->g, s->file, name, NULL, &value, e);
    if (rc < 0 || value == UINT32_MAX)
        return rc;
    if (value >= s->n)
        return err_set(e, HP_EPARSE, "%s: %s is %llu, beyond %u tokens", s->file, name,
                       (unsigned long long)value, s->n);
    *id = (int64_t)value;
    return 0;
}

/* Ids of files that do not name all of theirs: these spellings end a text, a turn or a message in
 * every family that has them. */
static int add_usual_ends(struct tokenizer *t, const struct gguf_tokens *s, struct err *e)
{
    static const char *const usual[] = {"<|end_of_text|>", "<|eot_id|>", "<|im_end|>",
                                        "<|endoftext|>",   "<|eom_id|>", "<end_of_turn>",
                                        "<|call|>",        "<|return|>"};
    for (uint32_t id = 0; id < t->vocabulary.n; id++) {
        struct vocabulary_token *token = &t->vocabulary.tokens[id];
        for (size_t i = 0; i < sizeof usual / sizeof *usual && token->text; i++) {
            if (token->size != strlen(usual[i]) || memcmp(token->text, usual[i], token->size) != 0)
                continue;
            token->special = true;
            tokenizer_add_end(t, id);
            int rc = gguf_token_spell(t, s, id, e);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int read_ends(struct tokenizer *t, const struct gguf_tokens *s, int64_t *bos, int64_t *eos,
                     struct err *e)
{
    static const char *const keys[] = {GGUF_TOKENS "eot_token_id", GGUF_TOKENS "eom_token_id"};
    /* SentencePiece's usual ids. */
    int rc = read_id(s, GGUF_TOKENS "bos_token_id", s->kind == GGUF_PIECES ? 1 : -1, bos, e);
    if (rc == 0)
        rc = read_id(s, GGUF_TOKENS "eos_token_id", s->kind == GGUF_PIECES ? 2 : -1, eos, e);
    if (rc < 0)
        return rc;
    tokenizer_add_end(t, *eos);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id;
        rc = read_id(s, keys[i], -1, &id, e);
        if (rc < 0)
            return rc;
        tokenizer_add_end(t, id);
    }
    return add_usual_ends(t, s, e);
}

static const char *text_of(const struct tokenizer *t, int64_t id)
{
    return id >= 0 && id < (int64_t)t->vocabulary.n && t->vocabulary.tokens[id].text
               ? t->vocabulary.tokens[id].text
               : "";
}

/* The first key that is there, else the token that is spelled so. */
static int read_mark(const struct gguf_tokens *s, const char *const *keys, const char *spelling,
                     int64_t *id, struct err *e)
{
    int rc = 0;
    *id = -1;
    for (; rc == 0 && *id < 0 && *keys; keys++)
        rc = read_id(s, *keys, -1, id, e);
    for (uint32_t i = 0; rc == 0 && *id < 0 && i < s->n; i++)
        if (s->tokens->strings[i].size == strlen(spelling) &&
            memcmp(s->tokens->strings[i].data, spelling, strlen(spelling)) == 0)
            *id = i;
    return rc;
}

/* What stands around a text of an encoder: [CLS] and [SEP], or <s> and </s>. */
static int read_marks(const struct gguf_tokens *s, int64_t *bos, int64_t *last, struct err *e)
{
    static const char *const first_keys[] = {GGUF_TOKENS "cls_token_id", GGUF_TOKENS "bos_token_id",
                                             NULL};
    static const char *const last_keys[] = {GGUF_TOKENS "seperator_token_id",
                                            GGUF_TOKENS "eos_token_id", NULL};
    int rc = read_mark(s, first_keys, "[CLS]", bos, e);
    return rc < 0 ? rc : read_mark(s, last_keys, "[SEP]", last, e);
}

static int read_specials(struct tokenizer *t, const struct gguf_tokens *s, struct err *e)
{
    int64_t bos, eos, end, pad = -1;
    bool marks = s->kind == GGUF_WORDPIECE || s->traits.marks, first, last;
    int rc = read_ends(t, s, &bos, &eos, e);
    end = eos;
    if (rc == 0 && marks)
        rc = read_marks(s, &bos, &end, e);
    if (rc == 0)
        rc = read_id(s, GGUF_TOKENS "padding_token_id", -1, &pad, e);
    if (rc == 0)
        rc = gguf_get_bool(s->g, s->file, GGUF_TOKENS "add_bos_token",
                           s->kind == GGUF_PIECES || s->kind == GGUF_MERGED_PIECES ||
                               s->traits.first_token || marks,
                           &first, e);
    if (rc == 0)
        rc = gguf_get_bool(s->g, s->file, GGUF_TOKENS "add_eos_token",
                           s->kind == GGUF_UNIGRAM || marks, &last, e);
    if (rc < 0)
        return rc;
    t->bpe.unknown = s->kind == GGUF_BYTE_BPE ? -1 : s->unknown;
    t->bpe.fuse_unknown = true;
    t->bos_text = text_of(t, bos);
    t->eos_text = text_of(t, eos);
    t->pad_text = text_of(t, pad);
    t->unknown_text = text_of(t, s->unknown);
    if (first && bos >= 0)
        t->first[t->n_first++] = (uint32_t)bos;
    if (last && end >= 0)
        t->last[t->n_last++] = (uint32_t)end;
    return 0;
}

static int add_step(struct tokenizer *t, enum normalize_kind kind, const char *what,
                    const char *with, struct err *e)
{
    return normalizer_add(&t->normalizer,
                          &(struct normalize_step){.kind = kind,
                                                   .what = what,
                                                   .with = with,
                                                   .what_size = strlen(what),
                                                   .with_size = strlen(with)},
                          e);
}

/* SentencePiece's spelling of spaces. */
static int read_piece_steps(struct tokenizer *t, const struct gguf_tokens *s, struct err *e)
{
    bool prefix, squeeze;
    int rc = gguf_get_bool(s->g, s->file, GGUF_TOKENS "add_space_prefix",
                           s->kind != GGUF_MERGED_PIECES, &prefix, e);
    rc = rc < 0 ? rc
                : gguf_get_bool(s->g, s->file, GGUF_TOKENS "remove_extra_whitespaces", false,
                                &squeeze, e);
    if (rc == 0 && squeeze)
        rc = add_step(t, NORMALIZE_SQUEEZE, "", "", e);
    if (rc == 0 && prefix)
        rc = add_step(t, NORMALIZE_PREPEND, "", "\xE2\x96\x81", e);
    t->strip_leading_space = rc == 0 && prefix;
    return rc < 0 ? rc : add_step(t, NORMALIZE_REPLACE, " ", "\xE2\x96\x81", e);
}

static int read_charsmap(struct tokenizer *t, const struct gguf_tokens *s, struct err *e)
{
    const struct gguf_key *k = gguf_find(s->g, GGUF_TOKENS "precompiled_charsmap");
    if (!k)
        return 0;
    if (k->type != GGUF_ARRAY || (k->element_type != GGUF_I8 && k->element_type != GGUF_U8))
        return err_set(e, HP_EPARSE,
                       "%s: " GGUF_TOKENS "precompiled_charsmap is not an array of bytes", s->file);
    struct charsmap *map = arena_alloc(&t->arena, 1, sizeof *map);
    int rc = map ? charsmap_read(k->data, k->count, &t->arena, map, e)
                 : err_set(e, HP_ENOMEM, "out of memory");
    if (rc < 0)
        return err_at(e, "%s", s->file);
    return normalizer_add(&t->normalizer,
                          &(struct normalize_step){.kind = NORMALIZE_CHARSMAP, .map = map}, e);
}

static int read_bert_steps(struct tokenizer *t, const struct gguf_tokens *s, struct err *e)
{
    struct bert_steps steps = {.clean = true, .space_han = true};
    int rc =
        gguf_get_bool(s->g, s->file, GGUF_TOKENS "normalizer.lowercase", true, &steps.lowercase, e);
    steps.strip_marks = steps.lowercase;
    rc = rc < 0 ? rc
                : gguf_get_bool(s->g, s->file, GGUF_TOKENS "normalizer.strip_accents",
                                steps.lowercase, &steps.strip_marks, e);
    rc = rc < 0 ? rc : tokenizer_add_bert_steps(t, &steps, e);
    return rc < 0 ? rc
                  : pretokenizer_add(&t->pretokenizer,
                                     &(struct pretokenize_step){.kind = PRETOKENIZE_BERT}, e);
}

static int read_byte_steps(struct tokenizer *t, struct gguf_tokens *s, struct err *e)
{
    struct gguf_string name = {0};
    int rc = gguf_get_string(s->g, s->file, GGUF_TOKENS "pre", &name, e);
    if (rc < 0)
        return rc;
    if (!name.data)
        name = (struct gguf_string){"default", 7};
    s->traits = pretokenize_traits_of(name.data, name.size);
    if (s->traits.nfc)
        rc = add_step(t, NORMALIZE_NFC, "", "", e);
    rc = rc < 0 ? rc : pretokenizer_add_named(&t->pretokenizer, name.data, name.size, e);
    return rc < 0 ? err_at(e, "%s", s->file) : 0;
}

static int read_steps(struct tokenizer *t, struct gguf_tokens *s, struct err *e)
{
    int rc = 0;
    switch (s->kind) {
    case GGUF_BYTE_BPE: return read_byte_steps(t, s, e);
    case GGUF_WORDPIECE: return read_bert_steps(t, s, e);
    case GGUF_UNIGRAM:
    case GGUF_PIECES: rc = read_charsmap(t, s, e); break;
    case GGUF_MERGED_PIECES:
        rc = pretokenizer_add_split(&t->pretokenizer, "[^\\n]+|[\\n]+", SPLIT_ISOLATED, false, e);
        break;
    }
    return rc < 0 ? rc : read_piece_steps(t, s, e);
}

/* A file that carries no tokenizer, and says so or nothing at all, can be run by ids. */
static bool has_none(const struct gguf_tokens *s, const struct gguf_string *kind)
{
    static const char *const names[] = {"none", "no_vocab"};
    for (size_t i = 0; i < 2; i++)
        if (kind->data && kind->size == strlen(names[i]) &&
            memcmp(kind->data, names[i], kind->size) == 0)
            return true;
    return !kind->data && !gguf_find(s->g, GGUF_TOKENS "tokens");
}

static int make_none(struct tokenizer **out, struct err *e)
{
    struct tokenizer *t = tokenizer_create();
    int rc = t ? vocabulary_init(&t->vocabulary, &t->arena, 0, e)
               : err_set(e, HP_ENOMEM, "out of memory for the tokenizer");
    rc = rc < 0 ? rc : bpe_init(&t->bpe, &t->arena, &t->vocabulary, 0, e);
    if (rc < 0) {
        tokenizer_destroy(&t);
        return rc;
    }
    t->none = true;
    *out = t;
    return 0;
}

/* The token for what has none: of the key, else the first of that type. */
static int read_unknown(struct gguf_tokens *s, struct err *e)
{
    int rc = read_id(s, GGUF_TOKENS "unknown_token_id", -1, &s->unknown, e);
    for (uint32_t id = 0; rc == 0 && s->kind != GGUF_BYTE_BPE && s->unknown < 0 && id < s->n; id++)
        if (gguf_token_type_of(s, id) == GGUF_TOKEN_UNKNOWN)
            s->unknown = id;
    return rc;
}

static int kind_find(const char *file, const struct gguf_string *name, enum gguf_vocabulary *out,
                     struct err *e)
{
    static const char *const kinds[] = {[GGUF_BYTE_BPE] = "gpt2",
                                        [GGUF_PIECES] = "llama",
                                        [GGUF_UNIGRAM] = "t5",
                                        [GGUF_WORDPIECE] = "bert",
                                        [GGUF_MERGED_PIECES] = "gemma4"};
    const char *text = name->data ? name->data : "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (name->size == strlen(kinds[i]) && memcmp(text, kinds[i], name->size) == 0) {
            *out = (enum gguf_vocabulary)i;
            return 0;
        }
    return err_set(e, name->data ? HP_EUNSUPPORTED : HP_EPARSE,
                   "%s: " GGUF_TOKENS "model is \"%.*s\"; known are \"gpt2\" (byte-level BPE), "
                   "\"llama\" (SentencePiece BPE), \"t5\" (SentencePiece unigram), \"bert\" "
                   "(WordPiece) and \"gemma4\" (merges of pieces)",
                   file, (int)utf8_valid_prefix(text, name->size < 64 ? name->size : 64), text);
}

int tokenizer_from_gguf(const struct gguf *g, const char *file, const char *const *keeping_marks,
                        struct tokenizer **out, struct err *e)
{
    struct gguf_tokens s = {.g = g, .file = file, .keeping_marks = keeping_marks};
    struct gguf_string kind = {0};
    int rc = gguf_get_string(g, file, GGUF_TOKENS "model", &kind, e);
    if (rc < 0)
        return rc;
    if (has_none(&s, &kind))
        return make_none(out, e);
    rc = kind_find(file, &kind, &s.kind, e);
    if (rc < 0)
        return rc;
    rc = gguf_tokens_find(&s, e);
    if (rc < 0)
        return rc;
    struct tokenizer *t = tokenizer_create();
    if (!t)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the tokenizer", file);
    t->bytes = s.kind == GGUF_BYTE_BPE;
    rc = read_unknown(&s, e);
    if (rc == 0)
        rc = read_steps(t, &s, e);
    if (rc == 0)
        rc = gguf_tokens_read(t, &s, e);
    if (rc == 0)
        rc = read_specials(t, &s, e);
    t->bpe.ignore_merges = s.traits.ignore_merges;
    if (rc == 0)
        tokenizer_find_marks(t);
    rc = rc < 0 ? rc : added_tokens_finish(&t->raw, e);
    if (rc == 0) {
        *out = t;
        return 0;
    }
    tokenizer_destroy(&t);
    if (e)
        utf8_clean(e->text);
    return rc;
}
