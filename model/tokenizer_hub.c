/* A tokenizer from tokenizer.json (the format of Hugging Face's `tokenizers`), with what
 * tokenizer_config.json, config.json and generation_config.json say about special tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/utf8.h"
#include "model/tokenizer_int.h"

/* One allocation of ids may be this much larger than the number of tokens: files with holes exist,
 * files that lie do too. */
static uint64_t max_ids(size_t n_tokens)
{
    return (uint64_t)n_tokens * 8 + 65536;
}

static int read_id(const struct json_at *at, uint64_t limit, uint32_t *id, struct err *e)
{
    uint64_t value;
    int rc = json_as_u64(at, &value, e);
    if (rc < 0)
        return rc;
    if (value >= limit || value >= VOCABULARY_MAX_IDS)
        return json_fail(at, e, "the id %llu is out of all proportion to the number of tokens",
                         (unsigned long long)value);
    *id = (uint32_t)value;
    return 0;
}

/* Number of ids: one more than the largest of vocabulary and added tokens. */
static int count_ids(const struct json_at *vocab, const struct json_at *added, uint32_t *n,
                     struct err *e)
{
    size_t n_added = added ? json_array_size(added->value) : 0;
    uint64_t limit = max_ids(json_object_size(vocab->value) + n_added);
    const char *key;
    json_t *value;
    uint32_t id = 0;
    *n = 0;
    json_object_foreach(vocab->value, key, value)
    {
        int rc = read_id(&(struct json_at){vocab->file, value, vocab, key, 0}, limit, &id, e);
        if (rc < 0)
            return rc;
        *n = id >= *n ? id + 1 : *n;
    }
    for (size_t i = 0; i < n_added; i++) {
        struct json_at item = json_item(added, i), at;
        int rc = json_get(&item, "id", &at, e);
        if (rc == 0)
            rc = read_id(&at, limit, &id, e);
        if (rc < 0)
            return rc;
        *n = id >= *n ? id + 1 : *n;
    }
    return 0;
}

static int read_vocabulary(struct tokenizer *t, const struct json_at *vocab,
                           const struct decoder_traits *traits, struct err *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(vocab->value, key, value)
    {
        uint32_t id = (uint32_t)json_integer_value(value);
        if (json_is_real(value))
            id = (uint32_t)json_real_value(value);
        struct json_at at = {vocab->file, value, vocab, key, 0};
        if (t->vocabulary.tokens[id].text)
            return json_fail(&at, e, "two tokens have the id %u", id);
        int rc = vocabulary_set(&t->vocabulary, &t->arena, id, key, strlen(key), e);
        if (rc < 0)
            return rc;
        vocabulary_index(&t->vocabulary, id);
        rc = traits->bytes    ? tokenizer_set_byte_text(t, id, e)
             : traits->pieces ? tokenizer_set_piece_text(t, id, e)
                              : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A merge is "a b" or ["a", "b"]. */
static int read_merge(const struct tokenizer *t, const struct json_at *at, int64_t parts[3],
                      struct err *e)
{
    const char *left = NULL, *right = NULL;
    size_t left_size = 0, right_size = 0;
    if (json_is_string(at->value)) {
        left = json_string_value(at->value);
        const char *space = strchr(left, ' ');
        right = space ? space + 1 : NULL;
        left_size = space ? (size_t)(space - left) : 0;
        right_size = right ? strlen(right) : 0;
    } else if (json_array_size(at->value) == 2 && json_is_string(json_array_get(at->value, 0)) &&
               json_is_string(json_array_get(at->value, 1))) {
        left = json_string_value(json_array_get(at->value, 0));
        right = json_string_value(json_array_get(at->value, 1));
        left_size = strlen(left);
        right_size = strlen(right);
    }
    if (left_size == 0 || right_size == 0)
        return json_fail(at, e, "is not two tokens");
    char *joined = malloc(left_size + right_size);
    if (!joined)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the merges", at->file);
    memcpy(joined, left, left_size);
    memcpy(joined + left_size, right, right_size);
    parts[0] = vocabulary_find(&t->vocabulary, left, left_size);
    parts[1] = vocabulary_find(&t->vocabulary, right, right_size);
    parts[2] = vocabulary_find(&t->vocabulary, joined, left_size + right_size);
    free(joined);
    if (parts[0] < 0 || parts[1] < 0 || parts[2] < 0)
        return json_fail(
            at, e,
            "the merge of \"%.40s\" and \"%.40s\" names a token that is not in the vocabulary",
            left, right);
    return 0;
}

static int read_merges(struct tokenizer *t, const struct json_at *merges, struct err *e)
{
    size_t n = json_array_size(merges->value);
    int rc = bpe_init(&t->bpe, &t->arena, &t->vocabulary, n, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct json_at at = json_item(merges, i);
        int64_t parts[3] = {0};
        rc = read_merge(t, &at, parts, e);
        if (rc == 0)
            bpe_add_merge(&t->bpe, (uint32_t)parts[0], (uint32_t)parts[1], (uint32_t)i,
                          (uint32_t)parts[2]);
    }
    return rc;
}

static int refuse_affixes(const struct json_at *model, struct err *e)
{
    static const char *const names[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const char *affix;
        int rc = json_opt_string(model, names[i], "", &affix, e);
        if (rc < 0)
            return rc;
        if (*affix)
            return err_set(e, HP_EUNSUPPORTED, "%s: $.model.%s: \"%s\" is not supported",
                           model->file, names[i], affix);
    }
    return 0;
}

static int read_byte_tokens(struct tokenizer *t, struct err *e)
{
    int rc = 0;
    for (uint32_t id = 0; id < t->vocabulary.n && rc == 0; id++) {
        const struct token *token = &t->vocabulary.tokens[id];
        int byte = token->text ? tokenizer_byte_of_name(token->text, token->size) : -1;
        if (byte >= 0)
            rc = tokenizer_set_byte_token(t, id, (uint8_t)byte, e);
    }
    return rc;
}

static int read_switches(struct tokenizer *t, const struct json_at *model, struct err *e)
{
    const char *unknown = "";
    bool byte_fallback = false;
    int rc = json_opt_bool(model, "fuse_unk", false, &t->bpe.fuse_unknown, e);
    if (rc == 0)
        rc = json_opt_bool(model, "ignore_merges", false, &t->bpe.ignore_merges, e);
    if (rc == 0)
        rc = json_opt_bool(model, "byte_fallback", false, &byte_fallback, e);
    if (rc == 0)
        rc = json_opt_string(model, "unk_token", "", &unknown, e);
    if (rc < 0)
        return rc;
    t->bpe.unknown = *unknown ? vocabulary_find(&t->vocabulary, unknown, strlen(unknown)) : -1;
    return byte_fallback ? read_byte_tokens(t, e) : 0;
}

static int read_model(struct tokenizer *t, const struct json_at *model, const struct json_at *added,
                      const struct decoder_traits *traits, struct err *e)
{
    struct json_at vocab, merges;
    const char *type = "";
    uint32_t n = 0;
    size_t n_merges;
    int rc = json_opt_string(model, "type", "BPE", &type, e);
    if (rc == 0 && strcmp(type, "BPE") != 0)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: $.model.type: \"%s\" tokenizers are not supported; BPE ones are",
                       model->file, type);
    if (rc == 0)
        rc = refuse_affixes(model, e);
    if (rc == 0 && (rc = json_get(model, "vocab", &vocab, e)) == 0)
        rc = json_as_object(&vocab, e);
    if (rc == 0 && (rc = json_get(model, "merges", &merges, e)) == 0)
        rc = json_as_array(&merges, &n_merges, e);
    if (rc == 0)
        rc = count_ids(&vocab, added, &n, e);
    if (rc == 0)
        rc = vocabulary_init(&t->vocabulary, &t->arena, n, e);
    if (rc == 0)
        rc = read_vocabulary(t, &vocab, traits, e);
    if (rc == 0)
        rc = read_merges(t, &merges, e);
    return rc < 0 ? rc : read_switches(t, model, e);
}

static int read_added(struct tokenizer *t, const struct json_at *at, uint32_t id,
                      const struct decoder_traits *traits, struct err *e)
{
    const char *text;
    bool special, normalized;
    struct added_token a = {.id = id};
    int rc = json_get_string(at, "content", &text, e);
    if (rc == 0 && (rc = json_opt_bool(at, "lstrip", false, &a.lstrip, e)) == 0 &&
        (rc = json_opt_bool(at, "rstrip", false, &a.rstrip, e)) == 0 &&
        (rc = json_opt_bool(at, "single_word", false, &a.single_word, e)) == 0 &&
        (rc = json_opt_bool(at, "special", false, &special, e)) == 0)
        rc = json_opt_bool(at, "normalized", !special, &normalized, e);
    if (rc == 0)
        rc = vocabulary_set(&t->vocabulary, &t->arena, id, text, strlen(text), e);
    if (rc == 0 && traits->pieces)
        rc = tokenizer_set_piece_text(t, id, e);
    if (rc < 0)
        return rc;
    t->vocabulary.tokens[id].special = a.special = special;
    if (!normalized)
        return added_tokens_add(&t->raw, text, strlen(text), &a, e);
    struct buffer normal = {0}, scratch = {0};
    rc = normalize(&t->normalizer, text, strlen(text), true, &normal, &scratch, e);
    if (rc == 0)
        rc = added_tokens_add(&t->normalized, buffer_cstr(&normal), normal.size, &a, e);
    buffer_free(&normal);
    buffer_free(&scratch);
    return rc;
}

static int read_all_added(struct tokenizer *t, const struct json_at *added,
                          const struct decoder_traits *traits, struct err *e)
{
    size_t n = added ? json_array_size(added->value) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(added, i), at;
        int rc = json_get(&item, "id", &at, e);
        uint64_t id = 0;
        if (rc == 0)
            rc = json_as_u64(&at, &id, e);
        if (rc == 0)
            rc = read_added(t, &item, (uint32_t)id, traits, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The text of a special token of tokenizer_config.json, which is a string or an object with
 * `content`; "" where there is none. */
static const char *special_text(struct tokenizer *t, const struct json_at *settings,
                                const char *name)
{
    json_t *value = settings ? json_object_get(settings->value, name) : NULL;
    if (json_is_object(value))
        value = json_object_get(value, "content");
    const char *copy =
        json_is_string(value) ? arena_strdup(&t->arena, json_string_value(value)) : NULL;
    return copy ? copy : "";
}

static int64_t id_of_text(const struct tokenizer *t, const char *text)
{
    size_t size = strlen(text);
    for (uint32_t id = t->vocabulary.n; size > 0 && id-- > 0;) {
        const struct token *token = &t->vocabulary.tokens[id];
        if (token->text && token->size == size && memcmp(token->text, text, size) == 0)
            return id;
    }
    return -1;
}

static void add_end(struct tokenizer *t, const json_t *id)
{
    double value = json_number_value(id);
    if (json_is_number(id) && value >= 0 && value < VOCABULARY_MAX_IDS && value == floor(value))
        tokenizer_add_end(t, (int64_t)value);
}

/* eos_token_id is a number or a list of them. */
static void add_ends(struct tokenizer *t, const struct json_at *config)
{
    json_t *ends = config ? json_object_get(config->value, "eos_token_id") : NULL;
    add_end(t, ends);
    for (size_t i = 0; i < json_array_size(ends); i++)
        add_end(t, json_array_get(ends, i));
}

/* Tokenizers of these classes build their post-processor from two switches, whatever the file has.
 */
static bool class_has_switches(const struct json_at *settings)
{
    static const char *const classes[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"};
    json_t *value = json_object_get(settings->value, "tokenizer_class");
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strncmp(name, classes[i], strlen(classes[i])) == 0)
            return true;
    return false;
}

static void apply_switch(const struct json_at *settings, const char *name, int64_t id,
                         bool by_class, uint32_t *ids, int *n)
{
    json_t *value = json_object_get(settings->value, name);
    if (!json_is_boolean(value) || (!by_class && (*n > 0 || !json_is_true(value))))
        return;
    *n = 0;
    if (json_is_true(value) && id >= 0)
        ids[(*n)++] = (uint32_t)id;
}

static void read_settings(struct tokenizer *t, const struct json_at *settings, bool has_template)
{
    if (!settings)
        return;
    t->bos_text = special_text(t, settings, "bos_token");
    t->eos_text = special_text(t, settings, "eos_token");
    t->pad_text = special_text(t, settings, "pad_token");
    t->unknown_text = special_text(t, settings, "unk_token");
    int64_t bos = id_of_text(t, t->bos_text), eos = id_of_text(t, t->eos_text);
    tokenizer_add_end(t, eos);
    bool by_class = class_has_switches(settings);
    if (has_template && !by_class)
        return;
    apply_switch(settings, "add_bos_token", bos, by_class, t->first, &t->n_first);
    apply_switch(settings, "add_eos_token", eos, by_class, t->last, &t->n_last);
}

static int read_parts(struct tokenizer *t, const struct json_at *root,
                      const struct json_at *settings, struct err *e)
{
    struct json_at at, model, added;
    struct decoder_traits traits = {0};
    bool has_added = json_find(root, "added_tokens", &added);
    int rc = has_added ? json_as_array(&added, &(size_t){0}, e) : 0;
    if (rc == 0 && json_find(root, "normalizer", &at))
        rc = tokenizer_read_normalizer(t, &at, e);
    if (rc == 0 && json_find(root, "pre_tokenizer", &at))
        rc = tokenizer_read_pretokenizer(t, &at, e);
    traits.bytes = t->bytes;
    if (rc == 0 && json_find(root, "decoder", &at))
        rc = tokenizer_read_decoder(t, &at, &traits, e);
    if (rc == 0 && (rc = json_get(root, "model", &model, e)) == 0 &&
        (rc = json_as_object(&model, e)) == 0)
        rc = read_model(t, &model, has_added ? &added : NULL, &traits, e);
    if (rc == 0)
        rc = read_all_added(t, has_added ? &added : NULL, &traits, e);
    bool has_template = json_find(root, "post_processor", &at);
    if (rc == 0 && has_template)
        rc = tokenizer_read_post_processor(t, &at, e);
    if (rc == 0)
        read_settings(t, settings, t->n_first + t->n_last > 0);
    rc = rc < 0 ? rc : added_tokens_finish(&t->raw, e);
    return rc < 0 ? rc : added_tokens_finish(&t->normalized, e);
}

int tokenizer_from_json(const struct json_at *root, const struct json_at *settings,
                        const struct json_at *config, const struct json_at *generation,
                        struct tokenizer **out, struct err *e)
{
    int rc = json_as_object(root, e);
    if (rc < 0)
        return rc;
    struct tokenizer *t = tokenizer_create();
    if (!t)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the tokenizer", root->file);
    rc = read_parts(t, root, settings, e);
    if (rc < 0) {
        tokenizer_destroy(&t);
        if (e)
            utf8_clean(e->text);
        return rc;
    }
    add_ends(t, config);
    add_ends(t, generation);
    *out = t;
    return 0;
}

struct document {
    char path[4096];
    json_t *root;
    struct json_at at;
};

/* A file that need not be there. */
static int load(struct document *d, const char *folder, const char *name, bool needed,
                struct err *e)
{
    int n = snprintf(d->path, sizeof d->path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof d->path)
        return err_set(e, HP_EINVAL, "%s: path too long", folder);
    int rc = json_load_wide_at(d->path, &d->root, &d->at, e);
    if (rc == HP_ENOENT && !needed)
        return 0;
    return rc;
}

/* Older folders name their special tokens in a file of its own; tokenizer_config.json goes before
 * it. */
static void add_special_map(struct document *settings, struct document *map)
{
    const char *name;
    json_t *value;
    if (!json_is_object(map->root))
        return;
    if (!json_is_object(settings->root)) {
        struct document swap = *settings;
        *settings = *map;
        *map = swap;
        settings->at.file = settings->path;
        return;
    }
    json_object_foreach(map->root, name, value)
    {
        json_t *known = json_object_get(settings->root, name);
        if (!known || json_is_null(known))
            json_object_set(settings->root, name, value);
    }
}

int tokenizer_from_hub(const char *folder, struct tokenizer **out, struct err *e)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "config.json",
                                        "generation_config.json", "special_tokens_map.json"};
    enum { N = sizeof names / sizeof *names };
    struct document *d = calloc(N, sizeof *d);
    if (!d)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the tokenizer", folder);
    int rc = 0;
    const struct json_at *at[N] = {NULL};
    for (int i = 0; i < N && rc == 0; i++)
        rc = load(&d[i], folder, names[i], i == 0, e);
    add_special_map(&d[1], &d[4]);
    for (int i = 0; i < N; i++)
        at[i] = d[i].root && json_is_object(d[i].root) ? &d[i].at : NULL;
    if (rc == HP_ENOENT)
        err_hint(
            e, "a Hugging Face folder needs its tokenizer.json; tokenizer.model alone is not read");
    if (rc == 0)
        rc = tokenizer_from_json(&d[0].at, at[1], at[2], at[3], out, e);
    for (int i = 0; i < N; i++)
        json_decref(d[i].root);
    free(d);
    return rc;
}
