/* A tokenizer from tokenizer.json (the format of Hugging Face's `tokenizers`), or from what a
 * folder has instead, with what tokenizer_config.json, config.json and generation_config.json say
 * about special tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fs.h"
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
    rc = normalizer_run(&t->normalizer, text, strlen(text), true, &normal, &scratch, e);
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
        tokenizer_read_settings(t, settings, t->n_first + t->n_last > 0);
    if (rc == 0)
        tokenizer_find_marks(t);
    rc = rc < 0 ? rc : added_tokens_finish(&t->raw, e);
    return rc < 0 ? rc : added_tokens_finish(&t->normalized, e);
}

/* What is made is given out, or destroyed with its error made printable. */
static int tokenizer_give(struct tokenizer **t, int rc, const struct folder_settings *s,
                          struct tokenizer **out, struct err *e)
{
    if (rc < 0) {
        tokenizer_destroy(t);
        if (e)
            utf8_clean(e->text);
        return rc;
    }
    tokenizer_read_ends(*t, s->config);
    tokenizer_read_ends(*t, s->generation);
    *out = *t;
    return 0;
}

int tokenizer_from_json(const struct json_at *root, const struct json_at *settings,
                        const struct json_at *config, const struct json_at *generation,
                        struct tokenizer **out, struct err *e)
{
    const struct folder_settings s = {settings, config, generation, NULL};
    int rc = json_as_object(root, e);
    if (rc < 0)
        return rc;
    struct tokenizer *t = tokenizer_create();
    if (!t)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the tokenizer", root->file);
    return tokenizer_give(&t, read_parts(t, root, settings, e), &s, out, e);
}

int tokenizer_from_pieces(const char *file, const void *bytes, size_t size,
                          const struct folder_settings *s, struct tokenizer **out, struct err *e)
{
    struct tokenizer *t = tokenizer_create();
    if (!t)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the tokenizer", file);
    return tokenizer_give(&t, tokenizer_read_pieces(t, file, bytes, size, s, e), s, out, e);
}

int tokenizer_from_tekken(const struct json_at *root, const struct folder_settings *s,
                          struct tokenizer **out, struct err *e)
{
    struct tokenizer *t = tokenizer_create();
    if (!t)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the tokenizer", root->file);
    return tokenizer_give(&t, tokenizer_read_tekken(t, root, e), s, out, e);
}

/* ---- the folder ---- */

struct document {
    char path[4096];
    json_t *root;
    struct json_at at;
};

static int path_make(char path[4096], const char *folder, const char *name, struct err *e)
{
    int n = snprintf(path, 4096, "%s/%s", folder, name);
    return n < 0 || n >= 4096 ? err_set(e, HP_EINVAL, "%s: path too long", folder) : 0;
}

/* A file that need not be there. */
static int document_load(struct document *d, const char *folder, const char *name, struct err *e)
{
    int rc = path_make(d->path, folder, name, e);
    rc = rc < 0 ? rc : json_load_wide_at(d->path, &d->root, &d->at, e);
    return rc == HP_ENOENT ? 0 : rc;
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

static int pieces_load(const char *folder, const char *name, const struct folder_settings *s,
                       struct tokenizer **out, struct err *e)
{
    enum { PIECES_MAX_BYTES = 64 << 20 };
    char path[4096];
    struct buffer bytes = {0};
    int rc = path_make(path, folder, name, e);
    rc = rc < 0 ? rc : fs_file_read(path, PIECES_MAX_BYTES, &bytes, e);
    rc = rc < 0 ? rc : tokenizer_from_pieces(path, bytes.data, bytes.size, s, out, e);
    buffer_free(&bytes);
    return rc;
}

/* The first file that is there; where several are they say the same. */
static int tokenizer_load(const char *folder, const struct folder_settings *s,
                          struct document *first, struct tokenizer **out, struct err *e)
{
    static const char *const names[] = {"tokenizer.model", "spiece.model"};
    int rc = document_load(first, folder, "tokenizer.json", e);
    if (rc < 0 || first->root)
        return rc < 0
                   ? rc
                   : tokenizer_from_json(&first->at, s->settings, s->config, s->generation, out, e);
    rc = document_load(first, folder, "tekken.json", e);
    if (rc < 0 || first->root)
        return rc < 0 ? rc : tokenizer_from_tekken(&first->at, s, out, e);
    rc = HP_ENOENT;
    for (size_t i = 0; i < sizeof names / sizeof *names && rc == HP_ENOENT; i++)
        rc = pieces_load(folder, names[i], s, out, e);
    if (rc != HP_ENOENT)
        return rc;
    err_set(e, HP_ENOENT, "%s: has no tokenizer", folder);
    return err_hint(e, "a Hugging Face folder needs its tokenizer.json, tekken.json or "
                       "tokenizer.model");
}

int tokenizer_from_hub(const char *folder, struct tokenizer **out, struct err *e)
{
    static const char *const names[] = {"tokenizer_config.json", "config.json",
                                        "generation_config.json", "added_tokens.json",
                                        "special_tokens_map.json"};
    enum { SPECIAL_MAP = 4, N = sizeof names / sizeof *names };
    struct document *d = calloc(N + 1, sizeof *d);
    if (!d)
        return err_set(e, HP_ENOMEM, "%s: out of memory for the tokenizer", folder);
    int rc = 0;
    const struct json_at *at[N] = {NULL};
    for (int i = 0; i < N && rc == 0; i++)
        rc = document_load(&d[i], folder, names[i], e);
    add_special_map(&d[0], &d[SPECIAL_MAP]);
    for (int i = 0; i < N; i++)
        at[i] = json_is_object(d[i].root) ? &d[i].at : NULL;
    const struct folder_settings s = {at[0], at[1], at[2], at[3]};
    rc = rc < 0 ? rc : tokenizer_load(folder, &s, &d[N], out, e);
    for (int i = 0; i <= N; i++)
        json_decref(d[i].root);
    free(d);
    return rc;
}
