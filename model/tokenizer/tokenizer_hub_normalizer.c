/* The normalizer of tokenizer.json. */
#include <sodium.h>
#include <string.h>

#include "model/tokenizer/hub_steps.h"

static int copy_text(struct tokenizer *t, const struct json_at *at, const char *key,
                     const char **out, size_t *size, struct err *e)
{
    const char *text;
    int rc = json_get_string(at, key, &text, e);
    if (rc < 0)
        return rc;
    *out = arena_strdup(&t->arena, text);
    *size = strlen(text);
    return *out ? 0 : err_set(e, HP_ENOMEM, "%s: out of memory", at->file);
}

/* "pattern": {"String": ...} or {"Regex": ...}, and "content" beside it. */
static int read_replacement(struct tokenizer *t, const struct json_at *at, struct normalize_step *s,
                            struct err *e)
{
    struct json_at pattern;
    const char *regex;
    int rc = json_get(at, "pattern", &pattern, e);
    rc = rc < 0 ? rc : copy_text(t, at, "content", &s->with, &s->with_size, e);
    if (rc < 0 || json_object_get(pattern.value, "String"))
        return rc < 0 ? rc : copy_text(t, &pattern, "String", &s->what, &s->what_size, e);
    s->kind = NORMALIZE_PATTERN;
    rc = json_get_string(&pattern, "Regex", &regex, e);
    rc = rc < 0 ? rc : pattern_compile(regex, strlen(regex), &s->pattern, e);
    return rc == HP_EUNSUPPORTED ? err_at(e, "%s", at->file) : rc;
}

static int read_bert_normalizer(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    struct bert_steps s;
    int rc = json_opt_bool(at, "clean_text", true, &s.clean, e);
    rc = rc < 0 ? rc : json_opt_bool(at, "handle_chinese_chars", true, &s.space_han, e);
    rc = rc < 0 ? rc : json_opt_bool(at, "lowercase", true, &s.lowercase, e);
    json_t *strip = json_object_get(at->value, "strip_accents");
    s.strip_marks = s.lowercase;
    if (rc == 0 && strip && !json_is_null(strip))
        rc = json_opt_bool(at, "strip_accents", true, &s.strip_marks, e);
    return rc < 0 ? rc : tokenizer_add_bert_steps(t, &s, e);
}

static int read_strip(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    static const struct normalize_step left = {.kind = NORMALIZE_STRIP_LEFT},
                                       right = {.kind = NORMALIZE_STRIP_RIGHT};
    bool from_left, from_right;
    int rc = json_opt_bool(at, "strip_left", true, &from_left, e);
    rc = rc < 0 ? rc : json_opt_bool(at, "strip_right", true, &from_right, e);
    if (rc == 0 && from_left)
        rc = normalizer_add(&t->normalizer, &left, e);
    return rc < 0 || !from_right ? rc : normalizer_add(&t->normalizer, &right, e);
}

static int read_charsmap(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    const char *text;
    struct charsmap *map = arena_alloc(&t->arena, 1, sizeof *map);
    int rc = json_get_string(at, "precompiled_charsmap", &text, e);
    if (rc < 0)
        return rc;
    size_t size = strlen(text), n = 0;
    uint8_t *bytes = arena_alloc(&t->arena, size / 4 + 1, 3);
    if (!map || !bytes)
        return err_set(e, HP_ENOMEM, "%s: out of memory", at->file);
    if (sodium_base642bin(bytes, size / 4 * 3 + 3, text, size, NULL, &n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        return json_fail(at, e, "precompiled_charsmap is not base64");
    rc = charsmap_read(bytes, n, &t->arena, map, e);
    if (rc < 0)
        return err_at(e, "%s", at->file);
    return normalizer_add(&t->normalizer,
                          &(struct normalize_step){.kind = NORMALIZE_CHARSMAP, .map = map}, e);
}

static int read_normalizer_step(struct tokenizer *t, const struct json_at *at, const char *type,
                                void *ctx, struct err *e)
{
    static const struct {
        const char *type;
        enum normalize_kind kind;
    } kinds[] = {{"Prepend", NORMALIZE_PREPEND},
                 {"Replace", NORMALIZE_REPLACE},
                 {"NFC", NORMALIZE_NFC},
                 {"NFD", NORMALIZE_NFD},
                 {"NFKC", NORMALIZE_NFKC},
                 {"NFKD", NORMALIZE_NFKD},
                 {"Nmt", NORMALIZE_NMT},
                 {"StripAccents", NORMALIZE_STRIP_ALL_MARKS},
                 {"Lowercase", NORMALIZE_LOWERCASE}};
    (void)ctx;
    if (strcmp(type, "BertNormalizer") == 0)
        return read_bert_normalizer(t, at, e);
    if (strcmp(type, "Strip") == 0)
        return read_strip(t, at, e);
    if (strcmp(type, "Precompiled") == 0)
        return read_charsmap(t, at, e);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].type, type) != 0)
            continue;
        struct normalize_step s = {.kind = kinds[i].kind};
        int rc = 0;
        if (s.kind == NORMALIZE_PREPEND)
            rc = copy_text(t, at, "prepend", &s.with, &s.with_size, e);
        if (s.kind == NORMALIZE_REPLACE)
            rc = read_replacement(t, at, &s, e);
        return rc < 0 ? rc : normalizer_add(&t->normalizer, &s, e);
    }
    return hub_step_unsupported(
        at, "normalizer", type,
        "BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, "
        "Prepend, Replace, Sequence, Strip, StripAccents",
        e);
}

int tokenizer_read_normalizer(struct tokenizer *t, const struct json_at *at, struct err *e)
{
    return hub_steps_each(t, at, "normalizers", 0, read_normalizer_step, NULL, e);
}
