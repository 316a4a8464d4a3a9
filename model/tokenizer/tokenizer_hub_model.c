/* The part of tokenizer.json that is called its model: vocabulary and merges. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "model/tokenizer/tokenizer_int.h"

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
        const struct vocabulary_token *token = &t->vocabulary.tokens[id];
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

int tokenizer_read_model(struct tokenizer *t, const struct json_at *model,
                         const struct json_at *added, const struct decoder_traits *traits,
                         struct err *e)
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
