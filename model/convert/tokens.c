/* A folder's tokenizer in the keys of a GGUF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
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

/* The two sides of a merge: "a b" or ["a", "b"]. */
static bool merge_sides(const json_t *merge, struct gguf_string *left, struct gguf_string *right)
{
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge), *space = strchr(text + (*text != '\0'), ' ');
        if (!space)
            return false;
        *left = (struct gguf_string){text, (size_t)(space - text)};
        *right = (struct gguf_string){space + 1, strlen(space + 1)};
        return true;
    }
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (!json_is_string(a) || !json_is_string(b))
        return false;
    *left = (struct gguf_string){json_string_value(a), json_string_length(a)};
    *right = (struct gguf_string){json_string_value(b), json_string_length(b)};
    return true;
}

static void merges_put(struct gguf_header *h, const json_t *merges)
{
    gguf_put_array(h, KEY "merges", GGUF_STRING, json_array_size(merges));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        struct gguf_string left = {"", 0}, right = {"", 0};
        struct buffer both = {0};
        merge_sides(json_array_get(merges, i), &left, &right);
        buffer_append(&both, left.data, left.size);
        buffer_append(&both, " ", 1);
        buffer_append(&both, right.data, right.size);
        gguf_add_text(h, both.data ? (const char *)both.data : "", both.size);
        h->keys.failed = h->keys.failed || both.failed;
        buffer_free(&both);
    }
}

/* What SentencePiece merges by: a token's score falls with the place of the first merge that makes
 * it. */
static int scores_find(struct token_rows *r, const json_t *merges, struct err *e)
{
    for (uint32_t id = 0; id < r->n; id++)
        r->scores[id] = r->types[id] == WRITTEN_BYTE ? 0 : -1e9f;
    for (size_t i = json_array_size(merges); i-- > 0;) {
        struct gguf_string left, right;
        struct buffer both = {0};
        if (!merge_sides(json_array_get(merges, i), &left, &right))
            continue;
        buffer_append(&both, left.data, left.size);
        buffer_append(&both, right.data, right.size);
        int64_t id = both.failed
                         ? -1
                         : vocabulary_find(&r->t->vocabulary, (const char *)both.data, both.size);
        bool failed = both.failed;
        buffer_free(&both);
        if (failed)
            return err_no_memory(e, "a merge");
        if (id >= 0 && id < (int64_t)r->n)
            r->scores[id] = -(float)i - 1;
    }
    return 0;
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

static int pieces_put(struct gguf_header *h, struct token_rows *r, const json_t *merges,
                      struct err *e)
{
    gguf_put_text(h, KEY "model", "llama");
    gguf_put_text(h, KEY "pre", "default");
    tokens_put(h, r);
    int rc = scores_find(r, merges, e);
    gguf_put_array(h, KEY "scores", GGUF_F32, r->n);
    for (uint32_t id = 0; id < r->n; id++)
        gguf_add_f32(h, r->scores[id]);
    gguf_put_bool(h, KEY "add_space_prefix", puts_space_first(r->t));
    return rc;
}

static int bytes_put(struct gguf_header *h, struct token_rows *r, const json_t *merges,
                     const char *file, struct err *e)
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
    merges_put(h, merges);
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
    if (t->model != TOKENIZER_BPE)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: its tokenizer is of kind %s; BPE ones are written into GGUF files here",
                       m->path, tokenizer_kind(t));
    if (t->n_first > 1 || t->n_last > 1)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: its tokenizer puts %d tokens before a text and %d behind it; GGUF has "
                       "a place for one each",
                       m->path, t->n_first, t->n_last);
    return 0;
}

static int rows_put(struct model *m, const struct tokenizer *t, const json_t *root,
                    struct gguf_header *h, struct err *e)
{
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    uint32_t n = (uint32_t)m->facts.config.vocabulary;
    struct token_rows r = {.t = t, .n = n > t->vocabulary.n ? n : t->vocabulary.n};
    r.types = calloc(r.n + 1, sizeof *r.types);
    r.scores = calloc(r.n + 1, sizeof *r.scores);
    int rc = r.types && r.scores ? 0 : err_no_memory(e, "%u tokens", r.n);
    if (rc == 0) {
        types_find(&r);
        rc = t->bytes ? bytes_put(h, &r, merges, m->path, e) : pieces_put(h, &r, merges, e);
    }
    free(r.types);
    free(r.scores);
    return rc;
}

int convert_tokens(struct model *m, struct gguf_header *h, struct err *e)
{
    const struct tokenizer *t;
    json_t *root = NULL;
    struct json_at at;
    int rc = model_tokenizer(m, &t, e);
    rc = rc < 0 ? rc : tokenizer_refuse(m, t, e);
    const char *path = rc < 0 ? NULL : hub_path(&m->hub, &m->arena, "tokenizer.json");
    if (rc == 0 && !path)
        rc = err_no_memory(e, "a path");
    rc = rc < 0 ? rc : json_load_wide_at(path, &root, &at, e);
    rc = rc < 0 ? rc : rows_put(m, t, root, h, e);
    json_decref(root);
    if (rc < 0)
        return rc;
    specials_put(h, t);
    templates_put(h, m);
    return 0;
}
