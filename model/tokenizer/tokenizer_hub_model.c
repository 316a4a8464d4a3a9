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

/* Number of ids: one more than the largest of vocabulary (a map, or a list) and added tokens. */
static int count_ids(const struct json_at *vocab, const struct json_at *added, uint32_t *n,
                     struct err *e)
{
    size_t n_added = added ? json_array_size(added->value) : 0,
           n_list = json_array_size(vocab->value);
    uint64_t limit = max_ids(json_object_size(vocab->value) + n_list + n_added);
    const char *key;
    json_t *value;
    uint32_t id = 0;
    *n = n_list < VOCABULARY_MAX_IDS ? (uint32_t)n_list : VOCABULARY_MAX_IDS;
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

static int set_text(struct tokenizer *t, uint32_t id, const struct decoder_traits *traits,
                    struct err *e)
{
    return traits->bytes    ? tokenizer_set_byte_text(t, id, e)
           : traits->pieces ? tokenizer_set_piece_text(t, id, e)
           : traits->words  ? tokenizer_set_word_text(t, id, traits->prefix, traits->cleanup, e)
                            : 0;
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
        rc = set_text(t, id, traits, e);
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

static int read_bpe(struct tokenizer *t, const struct json_at *model, struct err *e)
{
    struct json_at merges;
    size_t n;
    int rc = refuse_affixes(model, e);
    rc = rc < 0 ? rc : json_get(model, "merges", &merges, e);
    rc = rc < 0 ? rc : json_as_array(&merges, &n, e);
    rc = rc < 0 ? rc : read_merges(t, &merges, e);
    return rc < 0 ? rc : read_switches(t, model, e);
}

static int read_wordpiece(struct tokenizer *t, const struct json_at *model, struct err *e)
{
    const char *prefix;
    uint64_t max_chars;
    int rc = bpe_init(&t->bpe, &t->arena, &t->vocabulary, 0, e);
    rc = rc < 0 ? rc : read_switches(t, model, e);
    rc = rc < 0 ? rc : json_opt_string(model, "continuing_subword_prefix", "##", &prefix, e);
    rc = rc < 0 ? rc : json_opt_u64(model, "max_input_chars_per_word", 100, &max_chars, e);
    if (rc == 0 && t->bpe.unknown < 0)
        return err_set(e, HP_EPARSE, "%s: $.model.unk_token is not in the vocabulary", model->file);
    return rc < 0 ? rc : tokenizer_make_wordpiece(t, prefix, max_chars, e);
}

/* "vocab": [["<unk>", 0.0], ...], the ids in their order. */
static int read_pieces(struct tokenizer *t, const struct json_at *vocab,
                       const struct decoder_traits *traits, double *scores, struct err *e)
{
    size_t n = json_array_size(vocab->value), parts;
    int rc = 0;
    for (size_t id = 0; id < n && rc == 0; id++) {
        struct json_at pair = json_item(vocab, id);
        rc = json_as_array(&pair, &parts, e);
        if (rc == 0 && parts != 2)
            rc = json_fail(&pair, e, "is not a token and its score");
        if (rc < 0)
            return rc;
        struct json_at text_at = json_item(&pair, 0), score_at = json_item(&pair, 1);
        const char *text;
        rc = json_as_string(&text_at, &text, e);
        rc = rc < 0 ? rc : json_as_number(&score_at, &scores[id], e);
        rc = rc < 0
                 ? rc
                 : vocabulary_set(&t->vocabulary, &t->arena, (uint32_t)id, text, strlen(text), e);
        if (rc == 0)
            vocabulary_index(&t->vocabulary, (uint32_t)id);
        rc = rc < 0 ? rc : set_text(t, (uint32_t)id, traits, e);
    }
    return rc;
}

static int read_unigram(struct tokenizer *t, const struct json_at *model,
                        const struct json_at *vocab, const struct decoder_traits *traits,
                        struct err *e)
{
    uint64_t unknown;
    bool byte_fallback;
    double *scores = calloc((size_t)t->vocabulary.n + 1, sizeof *scores);
    int rc = scores ? 0 : err_set(e, HP_ENOMEM, "%s: out of memory for scores", model->file);
    rc = rc < 0 ? rc : bpe_init(&t->bpe, &t->arena, &t->vocabulary, 0, e);
    rc = rc < 0 ? rc : read_pieces(t, vocab, traits, scores, e);
    rc = rc < 0 ? rc : json_opt_u64(model, "unk_id", UINT64_MAX, &unknown, e);
    rc = rc < 0 ? rc : json_opt_bool(model, "byte_fallback", false, &byte_fallback, e);
    if (rc == 0 && byte_fallback)
        rc = read_byte_tokens(t, e);
    if (rc == 0) {
        t->bpe.unknown = unknown < t->vocabulary.n ? (int64_t)unknown : -1;
        rc = tokenizer_make_unigram(t, scores, e);
    }
    free(scores);
    return rc;
}

int tokenizer_read_model(struct tokenizer *t, const struct json_at *model,
                         const struct json_at *added, const struct decoder_traits *traits,
                         struct err *e)
{
    struct json_at vocab;
    const char *type = "";
    uint32_t n = 0;
    size_t n_list;
    int rc = json_opt_string(model, "type", "BPE", &type, e);
    bool unigram = strcmp(type, "Unigram") == 0, wordpiece = strcmp(type, "WordPiece") == 0;
    if (rc == 0 && !unigram && !wordpiece && strcmp(type, "BPE") != 0)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: $.model.type: \"%.100s\" tokenizers are not supported; known are BPE, "
                       "Unigram, WordPiece",
                       model->file, type);
    if (rc == 0 && (rc = json_get(model, "vocab", &vocab, e)) == 0)
        rc = unigram ? json_as_array(&vocab, &n_list, e) : json_as_object(&vocab, e);
    if (rc == 0)
        rc = count_ids(&vocab, added, &n, e);
    if (rc == 0)
        rc = vocabulary_init(&t->vocabulary, &t->arena, n, e);
    if (rc == 0 && unigram)
        return read_unigram(t, model, &vocab, traits, e);
    if (rc == 0)
        rc = read_vocabulary(t, &vocab, traits, e);
    return rc < 0 ? rc : wordpiece ? read_wordpiece(t, model, e) : read_bpe(t, model, e);
}
