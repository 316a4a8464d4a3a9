#include "coordinator/gateway/embedding_body.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/ollama_body.h"
#include "coordinator/gateway/rank_body.h"
#include "model/pooling.h"

enum { LIKELY_TOKEN_BYTES = 3 }; /* a text of fewer for each token is worth making tokens of */

#define INPUT_TYPES "must be a text, token ids, or a list of these"

static int field_refuse(struct embedding_body *b, const char *name, const char *text)
{
    b->param = name;
    return err_set(&b->failure, HP_EINVAL, "%s: %s", name, text);
}

/* As the body calls what it wants a row of; `i`: of all that it wants rows of. */
static const char *input_name(const struct embedding_body *b, size_t i)
{
    bool first = i < b->n_queries;
    return b->form == EMBEDDING_RERANK       ? first ? "query" : "documents"
           : b->form == EMBEDDING_SCORE      ? first ? "text_1" : "text_2"
           : b->form == EMBEDDING_LLAMA      ? "content"
           : b->form == EMBEDDING_OLLAMA_ONE ? "prompt"
                                             : "input";
}

static size_t input_number(const struct embedding_body *b, size_t i)
{
    return i < b->n_queries ? i : i - b->n_queries;
}

static size_t input_index(const struct embedding_body *b, const struct embedding_text *in)
{
    return (size_t)(in - b->texts);
}

static int ids_take(struct embedding_body *b, size_t item, struct embedding_text *in,
                    const json_t *list)
{
    uint32_t vocabulary = (uint32_t)model_config(b->model)->vocabulary, *ids = NULL;
    size_t n = 0, i = 0;
    int rc = body_ids_take(&b->ids, item, list, &ids, &n);
    if (rc == HP_ENOMEM)
        return err_set(&b->failure, rc, "out of memory for an input");
    while (rc == 0 && i < n && ids[i] < vocabulary)
        i++;
    if (rc < 0 || i < n)
        rc = field_refuse(b, input_name(b, input_index(b, in)),
                          "has what is no token id of this model");
    else
        buffer_append(&in->ids, ids, n * sizeof *ids);
    free(ids);
    return rc;
}

/* `item`: of the list of inputs, or BODY_IDS_WHOLE. */
static int input_take(struct embedding_body *b, size_t item, struct embedding_text *in,
                      const json_t *v)
{
    const struct tokenizer *t;
    const char *name = input_name(b, input_index(b, in));
    int rc = model_tokenizer(b->model, &t, &b->failure);
    size_t n = json_string_length(v),
           least = rc == 0 && n / LIKELY_TOKEN_BYTES > b->context
                       ? tokenizer_least_tokens(t, json_string_value(v), n, b->context)
                       : 0;
    bool unread = least > b->context;
    if (rc == 0 && json_is_string(v) && !unread)
        rc = tokenizer_encode(t, json_string_value(v), n, true, &in->ids, &b->failure);
    else if (rc == 0 && json_is_array(v))
        rc = ids_take(b, item, in, v);
    else if (rc == 0 && !json_is_string(v))
        return field_refuse(b, name, INPUT_TYPES);
    if (rc == 0 && in->ids.failed)
        rc = err_set(&b->failure, HP_ENOMEM, "out of memory for an input");
    in->n_ids = in->ids.size / sizeof(uint32_t);
    if (rc == 0 && (unread || in->n_ids > b->context)) {
        b->code = "context_length_exceeded";
        b->param = name;
        return err_set(&b->failure, HP_EINVAL,
                       "This model's maximum context length is %llu tokens. However, %s %zu "
                       "resulted in %s%zu tokens. Please reduce the length of the input.",
                       (unsigned long long)b->context, name, input_number(b, input_index(b, in)),
                       unread ? "at least " : "", unread ? least : in->n_ids);
    }
    if (rc == 0 && in->n_ids == 0)
        return field_refuse(b, name, n ? "this model makes no tokens of it" : "is empty");
    return rc;
}

static int inputs_take(struct embedding_body *b)
{
    const json_t *input = json_object_get(b->root, "input");
    bool one = json_is_string(input) || body_ids_whole(&b->ids) ||
               json_is_integer(json_array_get(input, 0));
    size_t n = one ? 1 : json_array_size(input);
    if (input && !one && !json_is_array(input))
        return field_refuse(b, input_name(b, b->n_queries), INPUT_TYPES);
    if (!input || n == 0)
        return field_refuse(b, input_name(b, b->n_queries), input ? "is empty" : "is missing");
    if (n > EMBEDDING_MAX_TEXTS)
        return field_refuse(b, input_name(b, b->n_queries), "has more than 2048 texts");
    b->texts = calloc(n, sizeof *b->texts);
    if (!b->texts)
        return err_set(&b->failure, HP_ENOMEM, "out of memory for %zu inputs", n);
    b->n_texts = n;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        b->texts[i].row = calloc(b->width, sizeof(float));
        rc = b->texts[i].row ? input_take(b, one ? BODY_IDS_WHOLE : i, &b->texts[i],
                                          one ? input : json_array_get(input, i))
                             : err_set(&b->failure, HP_ENOMEM, "out of memory for a row");
        b->prompt_tokens += b->texts[i].n_ids;
    }
    return rc;
}

/* Without a name the only one is meant. */
static int name_take(struct embedding_body *b)
{
    const json_t *model = json_object_get(b->root, "model");
    const char *name = json_string_value(model);
    if (!name && model && !json_is_null(model))
        return field_refuse(b, "model", "is not a text");
    bool named = name && *name;
    b->name = named ? strdup(name) : NULL;
    return b->name || !named ? 0 : err_no_memory(&b->failure, "a request");
}

/* Where the inputs are called otherwise. */
static int input_rename(struct embedding_body *b, const char *name)
{
    json_t *input = json_object_get(b->root, name);
    return !input || json_object_set(b->root, "input", input) == 0
               ? 0
               : err_set(&b->failure, HP_ENOMEM, "out of memory for a request");
}

/* llama-server's 2 is for rows of length 1. */
static int llama_read(struct embedding_body *b)
{
    const json_t *v = json_object_get(b->root, "embd_normalize");
    b->scales = json_is_integer(v) && json_integer_value(v) == 2;
    if (v && !json_is_null(v) && !b->scales)
        return field_refuse(b, "embd_normalize",
                            "2 scales rows to length 1; without it they are as the model says");
    return input_rename(b, "content");
}

/* As numbers, or as bytes where rows may come so. */
static int encoding_take(struct embedding_body *b)
{
    const json_t *form = json_object_get(b->root, "encoding_format");
    const char *word = form && !json_is_null(form) ? json_string_value(form) : "float";
    bool base64 = word && strcmp(word, "base64") == 0;
    bool numbers = b->form == EMBEDDING_LLAMA;
    if (!word || (base64 && numbers) || (!base64 && strcmp(word, "float") != 0))
        return field_refuse(b, "encoding_format",
                            numbers ? "must be \"float\"; /v1/embeddings has \"base64\""
                                    : "must be \"float\" or \"base64\"");
    b->base64 = base64;
    return 0;
}

/* vLLM's, which would be disobeyed in silence. */
static int flags_check(struct embedding_body *b)
{
    static const char *const flags[][2] = {
        {"add_special_tokens", "rows are those of texts with the tokenizer's own tokens"},
        {"normalize", "rows are scaled as the model's files say; leave it out"},
        {"use_activation", "rows are scaled as the model's files say; leave it out"}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (json_is_false(json_object_get(b->root, flags[i][0])))
            return field_refuse(b, flags[i][0], flags[i][1]);
    return 0;
}

/* What the body says beside its inputs. */
static int fields_take(struct embedding_body *b)
{
    if (!json_is_object(b->root))
        return err_set(&b->failure, HP_EINVAL, "the body is not a JSON object");
    if (embedding_speaks_ollama(b->form) && ollama_name_read(b->root) < 0)
        return err_set(&b->failure, HP_ENOMEM, "out of memory for a request");
    if (b->form == EMBEDDING_OLLAMA_ONE) {
        json_t *prompt = json_object_get(b->root, "prompt");
        if (!json_is_string(prompt))
            return field_refuse(b, "prompt", "is missing or not a text");
    }
    int rc = b->form == EMBEDDING_OLLAMA_ONE ? input_rename(b, "prompt")
             : b->form == EMBEDDING_LLAMA    ? llama_read(b)
             : embedding_compares(b->form)   ? rank_body_read(b)
                                             : 0;
    rc = rc < 0 ? rc : flags_check(b);
    rc = rc < 0 ? rc : name_take(b);
    return rc < 0 ? rc : encoding_take(b);
}

static int dimensions_take(struct embedding_body *b)
{
    const json_t *v = json_object_get(b->root, "dimensions");
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    b->dimensions = b->width;
    if (!v || json_is_null(v))
        return 0;
    if (n >= 1 && n <= (json_int_t)b->width) {
        b->dimensions = (size_t)n;
        return 0;
    }
    b->param = "dimensions";
    return err_set(&b->failure, HP_EINVAL,
                   "dimensions must be a whole number from 1 to %zu, which this model's rows have",
                   b->width);
}

const char *embedding_body_field(const struct embedding_body *b)
{
    return input_name(b, b->n_queries);
}

int embedding_body_parse(struct embedding_body *b, const char *text, size_t size)
{
    bool named = b->form == EMBEDDING_OPENAI || b->form == EMBEDDING_OLLAMA;
    b->ids.field = named ? "input" : NULL;
    int rc = body_measure_load(text, size, &b->ids, &b->root, &b->param, &b->failure);
    return rc < 0 ? rc : fields_take(b);
}

int embedding_body_encode(struct embedding_body *b)
{
    int rc = dimensions_take(b);
    rc = rc < 0 ? rc : inputs_take(b);
    body_ids_free(&b->ids);
    json_decref(b->root);
    b->root = NULL;
    return rc;
}

void embedding_body_fini(struct embedding_body *b)
{
    for (size_t i = 0; i < b->n_texts; i++) {
        buffer_free(&b->texts[i].ids);
        free(b->texts[i].row);
    }
    free(b->texts);
    body_ids_free(&b->ids);
    json_decref(b->root);
    json_decref(b->compared);
    free(b->name);
    model_close(&b->model);
}

/* ---- the answer ---- */

static void row_write(const struct embedding_body *b, const struct embedding_text *in,
                      struct buffer *out)
{
    if (b->base64) {
        size_t bytes = b->dimensions * sizeof(float),
               room = sodium_base64_encoded_len(bytes, sodium_base64_VARIANT_ORIGINAL);
        char *text = malloc(room);
        if (!text) {
            out->failed = true;
            return;
        }
        sodium_bin2base64(text, room, (const uint8_t *)in->row, bytes,
                          sodium_base64_VARIANT_ORIGINAL);
        buffer_printf(out, "\"%s\"", text);
        free(text);
        return;
    }
    buffer_append(out, "[", 1);
    for (size_t i = 0; i < b->dimensions; i++)
        buffer_printf(out, i ? ",%.9g" : "%.9g", (double)in->row[i]);
    buffer_append(out, "]", 1);
}

static void ollama_write(const struct embedding_body *b, struct buffer *out)
{
    bool one = b->form == EMBEDDING_OLLAMA_ONE;
    buffer_printf(out, one ? "{\"embedding\":" : "{\"embeddings\":[");
    for (size_t i = 0; i < b->n_texts; i++) {
        buffer_printf(out, "%s", i ? "," : "");
        row_write(b, &b->texts[i], out);
    }
    buffer_printf(out, one ? ",\"model\":" : "],\"model\":");
    json_write_text(out, b->name);
    buffer_printf(out, ",\"prompt_eval_count\":%llu}", (unsigned long long)b->prompt_tokens);
}

/* Rows in rows: of a model that pools there is one for each text. */
static void llama_write(const struct embedding_body *b, struct buffer *out)
{
    buffer_append(out, "[", 1);
    for (size_t i = 0; i < b->n_texts; i++) {
        buffer_printf(out, "%s{\"index\":%zu,\"embedding\":[", i ? "," : "", i);
        row_write(b, &b->texts[i], out);
        buffer_printf(out, "]}");
    }
    buffer_append(out, "]", 1);
}

static void openai_write(const struct embedding_body *b, struct buffer *out)
{
    buffer_printf(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < b->n_texts; i++) {
        buffer_printf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "",
                      i);
        row_write(b, &b->texts[i], out);
        buffer_append(out, "}", 1);
    }
    buffer_printf(out, "],\"model\":");
    json_write_text(out, b->name);
    buffer_printf(out, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}",
                  (unsigned long long)b->prompt_tokens, (unsigned long long)b->prompt_tokens);
}

void embedding_body_write(struct embedding_body *b, struct buffer *out)
{
    for (size_t i = 0; i < b->n_texts && (b->normalised || b->scales); i++)
        pooling_normalise(b->texts[i].row, b->dimensions);
    if (embedding_speaks_ollama(b->form))
        ollama_write(b, out);
    else if (b->form == EMBEDDING_LLAMA)
        llama_write(b, out);
    else if (embedding_compares(b->form))
        rank_body_write(b, out);
    else
        openai_write(b, out);
}
