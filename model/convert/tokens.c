/* A folder's tokenizer in the keys of a GGUF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert/convert_int.h"
#include "model/tokenizer/tokenizer_int.h"

#define KEY "tokenizer.ggml."

/* Values of tokenizer.ggml.token_type. */
enum written_type {
    WRITTEN_NORMAL = 1,
    WRITTEN_UNKNOWN,
    WRITTEN_CONTROL,
    WRITTEN_USER,
    WRITTEN_UNUSED,
    WRITTEN_BYTE
};

/* Everything for one id: rows of the embedding beyond the last token are filled up. */
struct token_rows {
    const struct tokenizer *t;
    uint32_t n;
    int32_t *types; /* [n] */
    float *scores;  /* [n] */
    struct bpe_pair *merges;
    size_t n_merges;
};

static bool has_text(const struct token_rows *r, uint32_t id)
{
    return id < r->t->vocabulary.n && r->t->vocabulary.tokens[id].text;
}

static void types_of_added(struct token_rows *r, const struct added_tokens *added)
{
    for (uint32_t i = 0; i < added->n_tokens; i++)
        if (added->tokens[i].id < r->n)
            r->types[added->tokens[i].id] =
                added->tokens[i].special ? WRITTEN_CONTROL : WRITTEN_USER;
}

static void types_find(struct token_rows *r)
{
    for (uint32_t id = 0; id < r->n; id++)
        r->types[id] = has_text(r, id) ? WRITTEN_NORMAL : WRITTEN_UNUSED;
    for (int i = 0; i < 256; i++)
        if (!r->t->bytes && r->t->bpe.byte_ids[i] >= 0)
            r->types[r->t->bpe.byte_ids[i]] = WRITTEN_BYTE;
    types_of_added(r, &r->t->raw);
    types_of_added(r, &r->t->normalized);
    if (r->t->bpe.unknown >= 0 && r->t->bpe.unknown < (int64_t)r->n)
        r->types[r->t->bpe.unknown] = WRITTEN_UNKNOWN;
}

/* ---- merges ---- */

static const struct vocabulary_token *token_of(const struct token_rows *r, uint32_t id)
{
    return &r->t->vocabulary.tokens[id];
}

static void merges_put(struct gguf_header *h, const struct token_rows *r)
{
    gguf_put_array(h, KEY "merges", GGUF_STRING, r->n_merges);
    for (size_t i = 0; i < r->n_merges; i++) {
        const struct vocabulary_token *left = token_of(r, r->merges[i].left),
                                      *right = token_of(r, r->merges[i].right);
        struct buffer both = {0};
        buffer_append(&both, left->text, left->size);
        buffer_append(&both, " ", 1);
        buffer_append(&both, right->text, right->size);
        gguf_add_text(h, both.data ? (const char *)both.data : "", both.size);
        h->keys.failed = h->keys.failed || both.failed;
        buffer_free(&both);
    }
}

/* What SentencePiece merges by: a token's score falls with the place of the first merge that makes
 * it. */
static void scores_of_merges(struct token_rows *r)
{
    for (uint32_t id = 0; id < r->n; id++)
        r->scores[id] = r->types[id] == WRITTEN_BYTE ? 0 : -1e9f;
    for (size_t i = r->n_merges; i-- > 0;)
        if (r->merges[i].merged < r->n)
            r->scores[r->merges[i].merged] = -(float)r->merges[i].rank - 1;
}

/* ---- keys ---- */

/* Tokens that are looked for in the text itself are spelled as it is: with spaces, where pieces
 * have U+2581. */
static void spelled_put(struct gguf_header *h, const struct vocabulary_token *token)
{
    static const char mark[] = "\u2581";
    enum { MARK_BYTES = sizeof mark - 1 };
    struct buffer text = {0};
    for (size_t i = 0; i < token->size;) {
        bool is_mark =
            token->size - i >= MARK_BYTES && memcmp(token->text + i, mark, MARK_BYTES) == 0;
        buffer_append(&text, is_mark ? " " : token->text + i, 1);
        i += is_mark ? MARK_BYTES : 1;
    }
    gguf_add_text(h, text.data ? (const char *)text.data : "", text.size);
    h->keys.failed = h->keys.failed || text.failed;
    buffer_free(&text);
}

/* WordPiece's tokens that begin a word have a mark, those that go on with one lose theirs. */
static void word_put(struct gguf_header *h, const struct vocabulary_token *token)
{
    static const char goes_on[] = "##";
    enum { GOES_ON_BYTES = sizeof goes_on - 1 };
    if (token->size > GOES_ON_BYTES && memcmp(token->text, goes_on, GOES_ON_BYTES) == 0) {
        gguf_add_text(h, token->text + GOES_ON_BYTES, token->size - GOES_ON_BYTES);
        return;
    }
    struct buffer text = {0};
    buffer_append(&text, "\u2581", sizeof "\u2581" - 1);
    buffer_append(&text, token->text, token->size);
    gguf_add_text(h, text.data ? (const char *)text.data : "", text.size);
    h->keys.failed = h->keys.failed || text.failed;
    buffer_free(&text);
}

static void tokens_put(struct gguf_header *h, const struct token_rows *r)
{
    gguf_put_array(h, KEY "tokens", GGUF_STRING, r->n);
    for (uint32_t id = 0; id < r->n; id++) {
        const struct vocabulary_token *token = &r->t->vocabulary.tokens[id];
        char filling[32];
        snprintf(filling, sizeof filling, "[PAD%u]", id);
        if (!has_text(r, id))
            gguf_add_text(h, filling, strlen(filling));
        else if (r->types[id] == WRITTEN_USER && !r->t->bytes)
            spelled_put(h, token);
        else if (r->types[id] == WRITTEN_NORMAL && r->t->model == TOKENIZER_WORDPIECE)
            word_put(h, token);
        else
            gguf_add_text(h, token->text, token->size);
    }
    gguf_put_array(h, KEY "token_type", GGUF_I32, r->n);
    for (uint32_t id = 0; id < r->n; id++)
        gguf_add_i32(h, r->types[id]);
}

static int64_t id_of(const struct tokenizer *t, const char *text)
{
    size_t size = strlen(text);
    for (uint32_t id = 0; size > 0 && id < t->vocabulary.n; id++) {
        const struct vocabulary_token *token = &t->vocabulary.tokens[id];
        if (token->text && token->size == size && memcmp(token->text, text, size) == 0)
            return id;
    }
    return -1;
}

static void id_put(struct gguf_header *h, const char *key, int64_t id)
{
    if (id >= 0)
        gguf_put_u32(h, key, (uint32_t)id);
}

/* The end of a text, then what ends a turn and a message. */
static void ends_put(struct gguf_header *h, const struct tokenizer *t)
{
    static const char *const more[] = {KEY "eot_token_id", KEY "eom_token_id"};
    int64_t eos = t->n_last ? t->last[0] : id_of(t, t->eos_text);
    size_t at = 0;
    if (eos < 0 && t->n_end_ids)
        eos = t->end_ids[0];
    id_put(h, KEY "eos_token_id", eos);
    for (int i = 0; i < t->n_end_ids && at < sizeof more / sizeof *more; i++)
        if ((int64_t)t->end_ids[i] != eos)
            id_put(h, more[at++], t->end_ids[i]);
}

static void specials_put(struct gguf_header *h, const struct tokenizer *t)
{
    id_put(h, KEY "bos_token_id", t->n_first ? t->first[0] : id_of(t, t->bos_text));
    ends_put(h, t);
    id_put(h, KEY "unknown_token_id",
           t->bpe.unknown >= 0 ? t->bpe.unknown : id_of(t, t->unknown_text));
    id_put(h, KEY "padding_token_id", id_of(t, t->pad_text));
    if (t->model == TOKENIZER_WORDPIECE) {
        id_put(h, KEY "cls_token_id", t->n_first ? (int64_t)t->first[0] : -1);
        id_put(h, KEY "seperator_token_id", t->n_last ? (int64_t)t->last[0] : -1);
    }
    gguf_put_bool(h, KEY "add_bos_token", t->n_first > 0);
    gguf_put_bool(h, KEY "add_eos_token", t->n_last > 0);
}

static bool has_normalizer(const struct tokenizer *t, enum normalize_kind kind)
{
    for (int i = 0; i < t->normalizer.n_steps; i++)
        if (t->normalizer.steps[i].kind == kind)
            return true;
    return false;
}

static bool puts_space_first(const struct tokenizer *t)
{
    bool first = has_normalizer(t, NORMALIZE_PREPEND);
    for (int i = 0; i < t->pretokenizer.n_steps; i++)
        first = first || (t->pretokenizer.steps[i].kind == PRETOKENIZE_METASPACE &&
                          t->pretokenizer.steps[i].prepend != METASPACE_NEVER);
    return first;
}

/* SentencePiece's table of characters as its files have it: its trie's bytes, trie, texts. */
static void charsmap_put(struct gguf_header *h, const struct tokenizer *t)
{
    for (int i = 0; i < t->normalizer.n_steps; i++) {
        const struct charsmap *m = t->normalizer.steps[i].map;
        if (t->normalizer.steps[i].kind != NORMALIZE_CHARSMAP)
            continue;
        struct buffer bytes = {0};
        uint32_t trie = (uint32_t)(m->n_units * sizeof *m->units);
        buffer_append(&bytes, &trie, sizeof trie);
        buffer_append(&bytes, m->units, trie);
        buffer_append(&bytes, m->texts, m->texts_size);
        gguf_put_array(h, KEY "precompiled_charsmap", GGUF_U8, bytes.size);
        buffer_append(&h->keys, bytes.data, bytes.size);
        h->keys.failed = h->keys.failed || bytes.failed;
        buffer_free(&bytes);
    }
}

/* Spaces at the ends go, and of several one stays: a step of its own, or patterns that say so. */
static bool spaces_squeezed(const struct tokenizer *t)
{
    return has_normalizer(t, NORMALIZE_SQUEEZE) ||
           (t->model == TOKENIZER_UNIGRAM && has_normalizer(t, NORMALIZE_PATTERN));
}

static void pieces_put(struct gguf_header *h, struct token_rows *r)
{
    bool unigram = r->t->model == TOKENIZER_UNIGRAM;
    gguf_put_text(h, KEY "model", unigram ? "t5" : "llama");
    gguf_put_text(h, KEY "pre", "default");
    tokens_put(h, r);
    if (!unigram)
        scores_of_merges(r);
    for (uint32_t id = 0; unigram && id < r->n; id++)
        r->scores[id] = id < r->t->vocabulary.n ? (float)r->t->unigram.scores[id] : 0;
    gguf_put_array(h, KEY "scores", GGUF_F32, r->n);
    for (uint32_t id = 0; id < r->n; id++)
        gguf_add_f32(h, r->scores[id]);
    gguf_put_bool(h, KEY "add_space_prefix", puts_space_first(r->t));
    if (spaces_squeezed(r->t))
        gguf_put_bool(h, KEY "remove_extra_whitespaces", true);
    charsmap_put(h, r->t);
}

static void words_put(struct gguf_header *h, const struct token_rows *r)
{
    const struct tokenizer *t = r->t;
    gguf_put_text(h, KEY "model", "bert");
    gguf_put_text(h, KEY "pre", "default");
    tokens_put(h, r);
    gguf_put_bool(h, KEY "normalizer.lowercase", has_normalizer(t, NORMALIZE_LOWERCASE));
    gguf_put_bool(h, KEY "normalizer.strip_accents", has_normalizer(t, NORMALIZE_STRIP_MARKS));
}

static int bytes_put(struct gguf_header *h, struct token_rows *r, const char *file, struct err *e)
{
    const struct tokenizer *t = r->t;
    struct pretokenize_traits traits = {.nfc = has_normalizer(t, NORMALIZE_NFC),
                                        .ignore_merges = t->bpe.ignore_merges};
    const char *name;
    int rc = pretokenizer_name(&t->pretokenizer, &traits, &name, e);
    if (rc < 0)
        return err_at(e, "%s", file);
    gguf_put_text(h, KEY "model", "gpt2");
    gguf_put_text(h, KEY "pre", name);
    tokens_put(h, r);
    merges_put(h, r);
    return 0;
}

/* ---- the template ---- */

static void templates_put(struct gguf_header *h, const struct model *m)
{
    static const char name[] = "tool_use";
    if (m->chat.source)
        gguf_put_text(h, "tokenizer.chat_template", m->chat.source);
    if (!m->tool_chat.source)
        return;
    gguf_put_array(h, "tokenizer.chat_templates", GGUF_STRING, 1);
    gguf_add_text(h, name, sizeof name - 1);
    gguf_put_text(h, "tokenizer.chat_template.tool_use", m->tool_chat.source);
}

/* ---- the whole ---- */

/* More than one token before or behind a text has no place. */
static int tokenizer_refuse(const struct model *m, const struct tokenizer *t, struct err *e)
{
    if (t->n_first > 1 || t->n_last > 1)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: its tokenizer puts %d tokens before a text and %d behind it; GGUF has "
                       "a place for one each",
                       m->path, t->n_first, t->n_last);
    return 0;
}

static int rows_put(struct model *m, const struct tokenizer *t, struct gguf_header *h,
                    struct err *e)
{
    uint32_t n = (uint32_t)m->facts.config.vocabulary;
    struct token_rows r = {.t = t, .n = n > t->vocabulary.n ? n : t->vocabulary.n};
    r.types = calloc(r.n + 1, sizeof *r.types);
    r.scores = calloc(r.n + 1, sizeof *r.scores);
    int rc = r.types && r.scores ? 0 : err_no_memory(e, "%u tokens", r.n);
    if (rc == 0 && t->model == TOKENIZER_BPE)
        rc = bpe_merges_list(&t->bpe, &m->arena, &r.merges, &r.n_merges, e);
    if (rc == 0) {
        types_find(&r);
        if (t->bytes)
            rc = bytes_put(h, &r, m->path, e);
        else if (t->model == TOKENIZER_WORDPIECE)
            words_put(h, &r);
        else
            pieces_put(h, &r);
    }
    free(r.types);
    free(r.scores);
    return rc;
}

int convert_tokens(struct model *m, struct gguf_header *h, struct err *e)
{
    const struct tokenizer *t;
    int rc = model_tokenizer(m, &t, e);
    rc = rc < 0 ? rc : tokenizer_refuse(m, t, e);
    rc = rc < 0 ? rc : rows_put(m, t, h, e);
    if (rc < 0)
        return rc;
    specials_put(h, t);
    templates_put(h, m);
    return 0;
}

/* Words in both cases and several scripts, marks, digits, white space of several kinds, what is
 * written with more than one character, and what has no token. */
static const char probe[] =
    " The quick  brown fox, isn't it?  Na\u00efve caf\u00e9 cafe\u0301 \u00c9COLE \u00df "
    "\u0130stanbul 12345 3.14 \u00b2\u00bd \ufb01 \u4f60\u597d \u6771\u4eac\u306b "
    "\ud55c\uad6d\uc5b4 \u043f\u0440\u0438\u0432\u0435\u0442 \u0928\u092e\u0938 "
    "\U0001f600 a\u00a0b\u3000c\n\nline\tend ##x unhappiness...!? ";

static int probe_encode(struct model *m, struct buffer *ids, struct err *e)
{
    const struct tokenizer *t;
    int rc = model_tokenizer(m, &t, e);
    return rc < 0 ? rc : tokenizer_encode(t, probe, sizeof probe - 1, true, ids, e);
}

int convert_tokens_check(struct model *from, struct model *made, struct err *e)
{
    struct buffer a = {0}, b = {0};
    int rc = probe_encode(from, &a, e);
    rc = rc < 0 ? rc : probe_encode(made, &b, e);
    bool same = rc == 0 && a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
    buffer_free(&a);
    buffer_free(&b);
    if (rc < 0 || same)
        return rc;
    err_set(e, HP_EUNSUPPORTED,
            "%s: its tokenizer does what the keys of a GGUF file cannot say: the file that was "
            "made cuts text otherwise",
            from->path);
    return err_hint(e, "serve the folder as it is");
}
