/* What a folder's files beside its vocabulary say of special tokens. */
#include <math.h>
#include <string.h>

#include "common/json.h"
#include "model/tokenizer/tokenizer_int.h"

/* The text of a special token of tokenizer_config.json, which is a string, an object with `content`
 * or null for none; where it says nothing `*text` stays. */
static void special_text(struct tokenizer *t, const struct json_at *settings, const char *name,
                         const char **text)
{
    json_t *value = json_object_get(settings->value, name);
    if (!value)
        return;
    if (json_is_object(value))
        value = json_object_get(value, "content");
    const char *copy =
        json_is_string(value) ? arena_strdup(&t->arena, json_string_value(value)) : NULL;
    *text = copy ? copy : "";
}

int64_t tokenizer_id_of(const struct tokenizer *t, const char *text)
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

void tokenizer_read_ends(struct tokenizer *t, const struct json_at *config)
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
                         bool may_take, uint32_t *ids, int *n)
{
    json_t *value = json_object_get(settings->value, name);
    if (!json_is_boolean(value) || (!may_take && (*n > 0 || !json_is_true(value))))
        return;
    *n = 0;
    if (json_is_true(value) && id >= 0)
        ids[(*n)++] = (uint32_t)id;
}

void tokenizer_read_names(struct tokenizer *t, const struct json_at *settings)
{
    if (settings) {
        special_text(t, settings, "bos_token", &t->bos_text);
        special_text(t, settings, "eos_token", &t->eos_text);
        special_text(t, settings, "pad_token", &t->pad_text);
        special_text(t, settings, "unk_token", &t->unknown_text);
    }
    tokenizer_add_end(t, tokenizer_id_of(t, t->eos_text));
}

void tokenizer_read_switches(struct tokenizer *t, const struct json_at *settings, bool may_take)
{
    if (!settings)
        return;
    apply_switch(settings, "add_bos_token", tokenizer_id_of(t, t->bos_text), may_take, t->first,
                 &t->n_first);
    apply_switch(settings, "add_eos_token", tokenizer_id_of(t, t->eos_text), may_take, t->last,
                 &t->n_last);
}

void tokenizer_read_settings(struct tokenizer *t, const struct json_at *settings, bool has_template)
{
    bool by_class = settings && class_has_switches(settings);
    tokenizer_read_names(t, settings);
    if (!has_template || by_class)
        tokenizer_read_switches(t, settings, by_class);
}
