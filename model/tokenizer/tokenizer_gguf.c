/* A tokenizer from the tokenizer.ggml.* keys of a GGUF file. */
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model/files/gguf.h"
#include "model/tokenizer/tokenizer_int.h"

#define KEY "tokenizer.ggml."

/* Values of tokenizer.ggml.token_type. */
enum token_type { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

struct source {
    const struct gguf *g;
    const char *file;
    const struct gguf_key *tokens, *types, *scores, *merges; /* the last three may be NULL */
    uint32_t n;
    bool pieces; /* SentencePiece */
    const char *const *keeping_marks;
    struct pretokenize_traits traits;
};

static enum token_type type_of(const struct source *s, uint32_t id)
{
    return s->types ? (enum token_type)gguf_element_i64(s->types, id) : TYPE_NORMAL;
}

static int find_array(const struct source *s, const char *name, bool strings, uint64_t count,
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

static int find_arrays(struct source *s, struct err *e)
{
    int rc = find_array(s, KEY "tokens", true, 0, &s->tokens, e);
    if (rc < 0)
        return rc;
    if (!s->tokens || s->tokens->count == 0)
        return err_set(e, HP_EPARSE, "%s: has no " KEY "tokens: the file carries no tokenizer",
                       s->file);
    if (s->tokens->count > VOCABULARY_MAX_IDS)
        return err_set(e, HP_ELIMIT, "%s: " KEY "tokens has %llu entries; at most %d are read",
                       s->file, (unsigned long long)s->tokens->count, VOCABULARY_MAX_IDS);
    s->n = (uint32_t)s->tokens->count;
    rc = find_array(s, KEY "token_type", false, s->n, &s->types, e);
    if (rc == 0 && s->pieces)
        rc = find_array(s, KEY "scores", false, s->n, &s->scores, e);
    return rc < 0 ? rc : find_array(s, KEY "merges", true, 0, &s->merges, e);
}

/* Rows of the embedding beyond the last token are filled up with "[PAD794]". */
static bool is_padding(const struct source *s, uint32_t id)
{
    const struct gguf_string *t = &s->tokens->strings[id];
    return type_of(s, id) == TYPE_UNUSED && t->size > 4 && memcmp(t->data, "[PAD", 4) == 0;
}

static bool is_among(const char *const *texts, const struct vocabulary_token *token)
{
    for (; *texts; texts++)
        if (strlen(*texts) == token->size && memcmp(*texts, token->text, token->size) == 0)
            return true;
    return false;
}

static int add_spelled(struct tokenizer *t, const struct source *s, uint32_t id, struct err *e)
{
    const struct vocabulary_token *token = &t->vocabulary.tokens[id];
    bool takes_blanks = s->keeping_marks && token->special && !is_among(s->keeping_marks, token);
    return added_tokens_add(
        &t->raw, token->text, token->size,
        &(struct added_token){.id = id, .special = token->special, .rstrip = takes_blanks}, e);
}

static int read_token(struct tokenizer *t, const struct source *s, uint32_t id, bool *takes_part,
                      struct err *e)
{
    const struct gguf_string *text = &s->tokens->strings[id];
    enum token_type type = type_of(s, id);
    if (is_padding(s, id))
        return 0;
    int rc = vocabulary_set(&t->vocabulary, &t->arena, id, text->data, text->size, e);
    if (rc < 0)
        return rc;
    t->vocabulary.tokens[id].special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
    if (type == TYPE_CONTROL || type == TYPE_USER || type == TYPE_UNKNOWN)
        return add_spelled(t, s, id, e);
    bool may_be_byte = type == TYPE_BYTE || (s->pieces && !s->types);
    int byte = may_be_byte ? tokenizer_byte_of_name(text->data, text->size) : -1;
    if (byte >= 0)
        return tokenizer_set_byte_token(t, id, (uint8_t)byte, e);
    takes_part[id] = type != TYPE_UNUSED;
    if (takes_part[id])
        vocabulary_index(&t->vocabulary, id);
    return t->bytes ? tokenizer_set_byte_text(t, id, e) : tokenizer_set_piece_text(t, id, e);
}

static int read_merges(struct tokenizer *t, const struct source *s, struct err *e)
{
    if (!s->merges)
        return err_set(e, HP_EPARSE, "%s: has no " KEY "merges", s->file);
    for (uint64_t i = 0; i < s->merges->count; i++) {
        const struct gguf_string *m = &s->merges->strings[i];
        const char *space = m->size > 2 ? memchr(m->data + 1, ' ', m->size - 1) : NULL;
        size_t cut = space ? (size_t)(space - m->data) : 0;
        if (!space || cut + 1 == m->size)
            return err_set(e, HP_EPARSE, "%s: " KEY "merges[%llu] is not two tokens", s->file,
                           (unsigned long long)i);
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
                e, HP_EPARSE, "%s: " KEY "merges[%llu] (\"%.*s\") names a token that is not there",
                s->file, (unsigned long long)i, (int)(m->size < 80 ? m->size : 80), m->data);
        bpe_add_merge(&t->bpe, (uint32_t)left, (uint32_t)right, (uint32_t)i, (uint32_t)merged);
    }
    return 0;
}

static int read_scored(struct tokenizer *t, const struct source *s, const bool *takes_part,
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
    int rc = bpe_init_scores(&t->bpe, &t->arena, &t->vocabulary, scores, takes_part, e);
    memcpy(t->bpe.byte_ids, byte_ids, sizeof byte_ids);
    free(scores);
    return rc;
}

static int read_vocabulary(struct tokenizer *t, const struct source *s, struct err *e)
{
    uint32_t n = s->n;
    while (n > 0 && is_padding(s, n - 1))
        n--;
    int rc = vocabulary_init(&t->vocabulary, &t->arena, n, e);
    if (rc == 0)
        rc = bpe_init(&t->bpe, &t->arena, &t->vocabulary,
                      s->pieces || !s->merges ? 0 : s->merges->count, e);
    bool *takes_part = rc < 0 ? NULL : calloc(n ? n : 1, sizeof *takes_part);
    if (rc == 0 && !takes_part)
        rc = err_set(e, HP_ENOMEM, "%s: out of memory for %u tokens", s->file, n);
    for (uint32_t id = 0; id < n && rc == 0; id++)
        rc = read_token(t, s, id, takes_part, e);
    if (rc == 0)
        rc = s->pieces ? read_scored(t, s, takes_part, e) : read_merges(t, s, e);
    free(takes_part);
    return rc;
}

/* -1 where the key says that there is none (-1, 2^32 - 1); `missing` where there is no key. */
static int read_id(const struct source *s, const char *name, int64_t missing, int64_t *id,
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
static int add_usual_ends(struct tokenizer *t, const struct source *s, struct err *e)
{
    static const char *const usual[] = {"<|end_of_text|>", "<|eot_id|>", "<|im_end|>",
                                        "<|endoftext|>",   "<|eom_id|>", "<end_of_turn>"};
    for (uint32_t id = 0; id < t->vocabulary.n; id++) {
        struct vocabulary_token *token = &t->vocabulary.tokens[id];
        for (size_t i = 0; i < sizeof usual / sizeof *usual && token->text; i++) {
            if (token->size != strlen(usual[i]) || memcmp(token->text, usual[i], token->size) != 0)
                continue;
            token->special = true;
            tokenizer_add_end(t, id);
            int rc = add_spelled(t, s, id, e);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int read_ends(struct tokenizer *t, const struct source *s, int64_t *bos, int64_t *eos,
                     struct err *e)
{
    static const char *const keys[] = {KEY "eot_token_id", KEY "eom_token_id"};
    /* SentencePiece's usual ids. */
    int rc = read_id(s, KEY "bos_token_id", s->pieces ? 1 : -1, bos, e);
    if (rc == 0)
        rc = read_id(s, KEY "eos_token_id", s->pieces ? 2 : -1, eos, e);
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

static int read_specials(struct tokenizer *t, const struct source *s, struct err *e)
{
    int64_t bos, eos, unknown, pad = -1;
    bool first, last;
    int rc = read_ends(t, s, &bos, &eos, e);
    if (rc == 0)
        rc = read_id(s, KEY "unknown_token_id", -1, &unknown, e);
    if (rc == 0)
        rc = read_id(s, KEY "padding_token_id", -1, &pad, e);
    if (rc == 0)
        rc = gguf_get_bool(s->g, s->file, KEY "add_bos_token", s->pieces || s->traits.first_token,
                           &first, e);
    if (rc == 0)
        rc = gguf_get_bool(s->g, s->file, KEY "add_eos_token", false, &last, e);
    if (rc < 0)
        return rc;
    if (s->pieces && unknown < 0)
        for (uint32_t id = 0; id < t->vocabulary.n && unknown < 0; id++)
            unknown = type_of(s, id) == TYPE_UNKNOWN ? (int64_t)id : -1;
    t->bpe.unknown = s->pieces ? unknown : -1;
    t->bpe.fuse_unknown = true;
    t->bos_text = text_of(t, bos);
    t->eos_text = text_of(t, eos);
    t->pad_text = text_of(t, pad);
    t->unknown_text = text_of(t, unknown);
    if (first && bos >= 0)
        t->first[t->n_first++] = (uint32_t)bos;
    if (last && eos >= 0)
        t->last[t->n_last++] = (uint32_t)eos;
    return 0;
}

static void add_step(struct tokenizer *t, enum normalize_kind kind, const char *what,
                     const char *with)
{
    t->normalizer.steps[t->normalizer.n_steps++] =
        (struct normalize_step){kind, what, with, strlen(what), strlen(with)};
}

static int read_steps(struct tokenizer *t, struct source *s, struct err *e)
{
    if (s->pieces) {
        bool prefix;
        int rc = gguf_get_bool(s->g, s->file, KEY "add_space_prefix", true, &prefix, e);
        if (prefix)
            add_step(t, NORMALIZE_PREPEND, "", "\xE2\x96\x81");
        add_step(t, NORMALIZE_REPLACE, " ", "\xE2\x96\x81");
        t->strip_leading_space = prefix;
        return rc;
    }
    struct gguf_string name = {0};
    int rc = gguf_get_string(s->g, s->file, KEY "pre", &name, e);
    if (rc < 0)
        return rc;
    if (!name.data)
        name = (struct gguf_string){"default", 7};
    s->traits = pretokenize_traits_of(name.data, name.size);
    if (s->traits.nfc)
        add_step(t, NORMALIZE_NFC, "", "");
    rc = pretokenizer_add_named(&t->pretokenizer, name.data, name.size, e);
    return rc < 0 ? err_at(e, "%s", s->file) : 0;
}

/* A file that carries no tokenizer, and says so or nothing at all, can be run by ids. */
static bool has_none(const struct source *s, const struct gguf_string *kind)
{
    static const char *const names[] = {"none", "no_vocab"};
    for (size_t i = 0; i < 2; i++)
        if (kind->data && kind->size == strlen(names[i]) &&
            memcmp(kind->data, names[i], kind->size) == 0)
            return true;
    return !kind->data && !gguf_find(s->g, KEY "tokens");
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

int tokenizer_from_gguf(const struct gguf *g, const char *file, const char *const *keeping_marks,
                        struct tokenizer **out, struct err *e)
{
    struct source s = {.g = g, .file = file, .keeping_marks = keeping_marks};
    struct gguf_string kind = {0};
    int rc = gguf_get_string(g, file, KEY "model", &kind, e);
    if (rc < 0)
        return rc;
    if (has_none(&s, &kind))
        return make_none(out, e);
    s.pieces = kind.data && kind.size == 5 && memcmp(kind.data, "llama", 5) == 0;
    size_t shown = utf8_valid_prefix(kind.data ? kind.data : "", kind.size < 64 ? kind.size : 64);
    if (!s.pieces && (!kind.data || kind.size != 4 || memcmp(kind.data, "gpt2", 4) != 0))
        return err_set(e, kind.data ? HP_EUNSUPPORTED : HP_EPARSE,
                       "%s: " KEY "model is \"%.*s\"; known are \"gpt2\" (byte-level BPE) and "
                       "\"llama\" (SentencePiece BPE)",
                       file, (int)shown, kind.data ? kind.data : "");
    rc = find_arrays(&s, e);
    if (rc < 0)
        return rc;
    struct tokenizer *t = tokenizer_create();
    if (!t)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the tokenizer", file);
    t->bytes = !s.pieces;
    rc = read_steps(t, &s, e);
    if (rc == 0)
        rc = read_vocabulary(t, &s, e);
    if (rc == 0)
        rc = read_specials(t, &s, e);
    t->bpe.ignore_merges = s.traits.ignore_merges;
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
