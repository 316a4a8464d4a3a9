/* A tokenizer from tokenizer.json (the format of Hugging Face's `tokenizers`), with what
 * tokenizer_config.json, config.json and generation_config.json say about special tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/utf8.h"
#include "model/tokenizer/tokenizer_int.h"

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
    if (rc == 0 && traits->words)
        rc = tokenizer_set_word_text(t, id, traits->prefix, traits->cleanup, e);
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
        const struct vocabulary_token *token = &t->vocabulary.tokens[id];
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
        rc = tokenizer_read_model(t, &model, has_added ? &added : NULL, &traits, e);
    if (rc == 0)
        rc = read_all_added(t, has_added ? &added : NULL, &traits, e);
    bool has_template = json_find(root, "post_processor", &at);
    if (rc == 0 && has_template)
        rc = tokenizer_read_post_processor(t, &at, e);
    if (rc == 0)
        read_settings(t, settings, t->n_first + t->n_last > 0);
    if (rc == 0)
        tokenizer_find_marks(t);
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
static int document_load(struct document *d, const char *folder, const char *name, bool needed,
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
        rc = document_load(&d[i], folder, names[i], i == 0, e);
    add_special_map(&d[1], &d[4]);
    for (int i = 0; i < N; i++)
        at[i] = json_is_object(d[i].root) ? &d[i].at : NULL;
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
