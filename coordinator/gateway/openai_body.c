/* Bodies of completion requests, checked field by field. Unknown fields are ignored; known ones
 * that are not built get a refusal that names them. */
#include "coordinator/gateway/openai_body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/json.h"
#include "coordinator/gateway/body_measure.h"

enum { MAX_MESSAGES = 4096, MAX_PROMPT_IDS = 1 << 22, MAX_CHOICES = 128 };

/* A refusal that names its field. */
static int field_refuse(const char **param, const char *name, struct err *e, const char *text)
{
    *param = name;
    return err_set(e, HP_EINVAL, "%s: %s", name, text);
}

/* ---- fields that are not built: given with another value than their default, they would be
 * silently disobeyed ---- */

static bool is_default(const char *name, const json_t *v)
{
    if (json_is_null(v) || json_is_false(v))
        return true;
    if (strcmp(name, "min_tokens") == 0 || strcmp(name, "top_logprobs") == 0)
        return json_is_integer(v) && json_integer_value(v) == 0;
    if (strcmp(name, "logprobs") == 0 || strcmp(name, "prompt_logprobs") == 0)
        return false;
    if (strcmp(name, "tool_choice") == 0 ||
        strcmp(name, "function_call") == 0) /* without tools nobody can choose one */
        return json_is_string(v) && (strcmp(json_string_value(v), "none") == 0 ||
                                     strcmp(json_string_value(v), "auto") == 0);
    if (strcmp(name, "response_format") == 0) {
        const json_t *type = json_object_get(v, "type");
        return json_is_string(type) && strcmp(json_string_value(type), "text") == 0;
    }
    if (strcmp(name, "modalities") == 0 && json_array_size(v) == 1)
        return json_is_string(json_array_get(v, 0)) &&
               strcmp(json_string_value(json_array_get(v, 0)), "text") == 0;
    if (json_is_array(v))
        return json_array_size(v) == 0;
    return json_is_string(v) && !*json_string_value(v);
}

static int check_unbuilt(const struct openai_body *b, const char **param, struct err *e)
{
    static const char *const fields[] = {"tools",
                                         "tool_choice",
                                         "functions",
                                         "function_call",
                                         "response_format",
                                         "logprobs",
                                         "top_logprobs",
                                         "suffix",
                                         "echo",
                                         "audio",
                                         "modalities",
                                         "prediction",
                                         "grammar",
                                         "json_schema",
                                         "guided_json",
                                         "guided_regex",
                                         "guided_choice",
                                         "guided_grammar",
                                         "structured_outputs",
                                         "min_tokens",
                                         "stop_token_ids",
                                         "prompt_logprobs",
                                         "continue_final_message",
                                         NULL};
    for (int i = 0; fields[i]; i++) {
        const json_t *v = json_object_get(b->root, fields[i]);
        if (v && !is_default(fields[i], v))
            return field_refuse(param, fields[i], e,
                                "this server does not support it yet; leave it out");
    }
    return 0;
}

/* ---- numbers ---- */

static int field_number(const struct openai_body *b, const char *name, double min, double max,
                        double fallback, double *out, const char **param, struct err *e)
{
    const json_t *v = json_object_get(b->root, name);
    *out = fallback;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_number(v))
        return field_refuse(param, name, e, "must be a number");
    double got = json_number_value(v);
    if (!isfinite(got) || got < min || got > max) {
        *param = name;
        return err_set(e, HP_EINVAL, "%s: %g is not between %g and %g", name, got, min, max);
    }
    *out = got;
    return 0;
}

static int field_whole(const struct openai_body *b, const char *name, int64_t min, int64_t max,
                       int64_t fallback, int64_t *out, const char **param, struct err *e)
{
    double v;
    int rc = field_number(b, name, (double)min, (double)max, (double)fallback, &v, param, e);
    if (rc == 0 && v != floor(v))
        return field_refuse(param, name, e, "must be a whole number");
    const json_t *exact = json_object_get(b->root, name);
    *out = json_is_integer(exact) ? json_integer_value(exact) : (int64_t)v;
    return rc;
}

static int field_flag(const json_t *object, const char *name, bool *out, const char **param,
                      struct err *e)
{
    const json_t *v = json_object_get(object, name);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return field_refuse(param, name, e, "must be true or false");
    *out = json_is_true(v);
    return 0;
}

static int read_bias(struct openai_body *b, const char **param, struct err *e)
{
    json_t *bias = json_object_get(b->root, "logit_bias"), *v;
    const char *key;
    if (!bias || json_is_null(bias))
        return 0;
    if (!json_is_object(bias) || json_object_size(bias) > SAMPLING_MAX_BIAS)
        return field_refuse(param, "logit_bias", e, "must be an object of at most 300 token ids");
    struct sampling_bias *list = calloc(json_object_size(bias) + 1, sizeof *list);
    if (!list)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    b->sampling.bias.items = list;
    json_object_foreach(bias, key, v)
    {
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        double x = json_number_value(v);
        if (*end || end == key || id > UINT32_MAX || !json_is_number(v) || x < -100 || x > 100)
            return field_refuse(param, "logit_bias", e,
                                "maps token ids to numbers between -100 and 100");
        list[b->sampling.bias.count++] = (struct sampling_bias){id, x};
    }
    return 0;
}

static int read_sampling(struct openai_body *b, const char **param, struct err *e)
{
    struct sampling_params *s = &b->sampling;
    int64_t top_k, seed;
    int rc;
    *s = sampling_greedy;
    for (const struct sampling_number *n = sampling_numbers; n->name; n++)
        if ((rc = field_number(b, n->name, n->asked_low, n->asked_high, n->usual,
                               sampling_number_of(s, n), param, e)) < 0)
            return rc;
    if ((rc = field_whole(b, "top_k", -1, INT32_MAX, 0, &top_k, param, e)) < 0)
        return rc;
    if (fpclassify(s->top_p) == FP_ZERO)
        return field_refuse(param, "top_p", e, "must be above 0");
    s->top_k = top_k > 0 ? (uint64_t)top_k : 0;
    const json_t *given = json_object_get(b->root, "seed");
    if ((rc = field_whole(b, "seed", INT64_MIN, INT64_MAX, 0, &seed, param, e)) < 0)
        return rc;
    s->seed = given && !json_is_null(given) ? (uint64_t)seed : env_random_u64(&env_real);
    return read_bias(b, param, e);
}

/* ---- text ---- */

static int read_stops(struct openai_body *b, const char **param, struct err *e)
{
    json_t *stop = json_object_get(b->root, "stop");
    size_t n = json_is_array(stop) ? json_array_size(stop) : 1;
    if (!stop || json_is_null(stop))
        return 0;
    if (n > COMPLETION_MAX_STOPS)
        return field_refuse(param, "stop", e, "holds more than 16 strings");
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_array(stop) ? json_array_get(stop, i) : stop);
        if (!s || !*s || strlen(s) > COMPLETION_MAX_STOP_BYTES)
            return field_refuse(param, "stop", e,
                                "must be a text of 1 to 1024 bytes, or a list of such");
        if (!(b->stops[b->n_stops] = strdup(s)))
            return err_set(e, HP_ENOMEM, "out of memory for a request");
        b->n_stops++;
    }
    return 0;
}

/* A list of text parts becomes one text. */
static int flatten_content(json_t *message, const char **param, struct err *e)
{
    json_t *content = json_object_get(message, "content"), *part;
    size_t i;
    if (json_is_string(content))
        return 0;
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!content && strcmp(role, "assistant") != 0)
        return field_refuse(param, "messages", e,
                            "every message but the assistant's needs a \"content\"");
    if (!content || json_is_null(content))
        return json_object_set_new(message, "content", json_string("")) == 0
                   ? 0
                   : err_set(e, HP_ENOMEM, "out of memory for a request");
    if (!json_is_array(content))
        return field_refuse(param, "messages", e,
                            "a content must be a string or a list of text parts");
    struct buffer all = {0};
    int rc = 0;
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const char *text = json_string_value(json_object_get(part, "text"));
        if (!type || strcmp(type, "text") != 0 || !text) {
            rc = field_refuse(
                param, "messages", e,
                "a content part is not of type \"text\"; images and sound are not supported");
            break;
        }
        buffer_append(&all, text, strlen(text));
    }
    if (rc == 0 && (all.failed ||
                    json_object_set_new(message, "content", json_string(buffer_cstr(&all))) != 0))
        rc = err_set(e, HP_ENOMEM, "out of memory for a request");
    buffer_free(&all);
    return rc;
}

static int read_messages(struct openai_body *b, const char **param, struct err *e)
{
    json_t *message;
    size_t i;
    b->messages = json_object_get(b->root, "messages");
    if (!json_is_array(b->messages) || json_array_size(b->messages) == 0 ||
        json_array_size(b->messages) > MAX_MESSAGES)
        return field_refuse(param, "messages", e, "must be a list of 1 to 4096 messages");
    json_array_foreach(b->messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || !*role)
            return field_refuse(param, "messages", e, "every message needs a \"role\"");
        int rc = flatten_content(message, param, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_prompt_ids(struct openai_body *b, const json_t *list, const char **param,
                           struct err *e)
{
    size_t n = json_array_size(list);
    if (n > MAX_PROMPT_IDS)
        return field_refuse(param, "prompt", e, "holds more than 4 million tokens");
    b->ids = calloc(n + 1, sizeof *b->ids);
    if (!b->ids)
        return err_set(e, HP_ENOMEM, "out of memory for the prompt");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
            return field_refuse(param, "prompt", e, "must be a text or a list of token ids");
        b->ids[b->n_ids++] = (uint32_t)json_integer_value(v);
    }
    return 0;
}

static int read_prompt(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *prompt = json_object_get(b->root, "prompt");
    if (json_is_array(prompt) && json_array_size(prompt) > 0 &&
        !json_is_integer(json_array_get(prompt, 0))) {
        if (json_array_size(prompt) > 1)
            return field_refuse(
                param, "prompt", e,
                "several prompts in one request are not supported yet; send one each");
        prompt = json_array_get(prompt, 0);
    }
    if (json_is_string(prompt) && *json_string_value(prompt)) {
        b->text = json_string_value(prompt);
        return 0;
    }
    if (json_is_array(prompt) && json_array_size(prompt) > 0)
        return read_prompt_ids(b, prompt, param, e);
    bool empty = json_is_array(prompt) || json_is_string(prompt);
    return field_refuse(param, "prompt", e,
                        !prompt ? "is missing"
                        : empty ? "is empty"
                                : "must be a text or a list of token ids");
}

/* How many tokens to make at most; 0: the field is not there. */
static int field_tokens(const struct openai_body *b, const char *name, int64_t *out,
                        const char **param, struct err *e)
{
    const json_t *v = json_object_get(b->root, name);
    *out = 0;
    if (!v || json_is_null(v))
        return 0;
    if (json_is_number(v) && json_number_value(v) < 1)
        return field_refuse(param, name, e,
                            "must be at least 1; leave it out to go on to the end of the context");
    return field_whole(b, name, 1, INT32_MAX, 0, out, param, e);
}

/* As many answers as are made are given: none is better than another by a measure of ours. */
static int read_choices(struct openai_body *b, const char **param, struct err *e)
{
    int64_t n, best_of;
    int rc;
    if ((rc = field_whole(b, "n", 1, MAX_CHOICES, 1, &n, param, e)) < 0 ||
        (rc = field_whole(b, "best_of", 1, MAX_CHOICES, n, &best_of, param, e)) < 0)
        return rc;
    if (best_of != n)
        return field_refuse(param, "best_of", e,
                            "this server does not rank answers: leave it out, or give n");
    b->n_choices = (uint32_t)n;
    return 0;
}

static int read_options(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *options = json_object_get(b->root, "stream_options");
    int64_t max_tokens, max_completion_tokens, priority;
    int rc;
    if ((rc = field_tokens(b, "max_tokens", &max_tokens, param, e)) < 0 ||
        (rc = field_tokens(b, "max_completion_tokens", &max_completion_tokens, param, e)) < 0 ||
        (rc = field_whole(b, "priority", -REQUEST_PRIORITY_MOST, REQUEST_PRIORITY_MOST, 0,
                          &priority, param, e)) < 0 ||
        (rc = field_flag(b->root, "stream", &b->stream, param, e)) < 0 ||
        (rc = field_flag(b->root, "ignore_eos", &b->ignore_end, param, e)) < 0 ||
        (rc = field_flag(b->root, "literal_specials", &b->literal_specials, param, e)) < 0)
        return rc;
    b->max_tokens = (uint64_t)(max_completion_tokens ? max_completion_tokens : max_tokens);
    b->priority = (int32_t)priority;
    if (options && !json_is_null(options)) {
        if (!json_is_object(options))
            return field_refuse(param, "stream_options", e, "must be an object");
        return field_flag(options, "include_usage", &b->include_usage, param, e);
    }
    return 0;
}

static int read_fields(struct openai_body *b, const char **param, struct err *e)
{
    int rc;
    if (!json_is_object(b->root))
        return err_set(e, HP_EINVAL, "the body is not a JSON object");
    const char *model = json_string_value(json_object_get(b->root, "model"));
    if (!model)
        return field_refuse(param, "model", e, "is missing or not a text");
    if (!(b->model = strdup(model)))
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    if ((rc = check_unbuilt(b, param, e)) < 0 || (rc = read_options(b, param, e)) < 0 ||
        (rc = read_choices(b, param, e)) < 0 || (rc = read_sampling(b, param, e)) < 0 ||
        (rc = read_stops(b, param, e)) < 0)
        return rc;
    return b->chat ? read_messages(b, param, e) : read_prompt(b, param, e);
}

/* ---- the bytes ---- */

int openai_body_parse(const char *body, size_t n, bool chat, struct openai_body **out,
                      const char **error_param, struct err *e)
{
    struct openai_body *b = calloc(1, sizeof *b);
    *error_param = NULL;
    if (!b)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    b->chat = chat;
    int rc = body_measure_load(body, n, &b->root, e);
    rc = rc < 0 ? rc : read_fields(b, error_param, e);
    if (rc < 0)
        openai_body_destroy(&b);
    else
        *out = b;
    return rc;
}

int openai_body_check(const struct openai_body *b, uint32_t vocabulary, struct err *e)
{
    const struct sampling_bias *bias = b->sampling.bias.items;
    for (size_t i = 0; i < b->sampling.bias.count; i++)
        if (bias[i].token >= vocabulary)
            return err_set(e, HP_EINVAL, "logit_bias: token %llu is beyond the vocabulary of %u",
                           (unsigned long long)bias[i].token, vocabulary);
    return 0;
}

void openai_body_drop_prompt(struct openai_body *b)
{
    json_decref(b->root);
    free(b->ids);
    b->root = b->messages = NULL;
    b->text = NULL;
    b->ids = NULL;
    b->n_ids = 0;
}

void openai_body_destroy(struct openai_body **out)
{
    struct openai_body *b = *out;
    *out = NULL;
    if (!b)
        return;
    openai_body_drop_prompt(b);
    for (int i = 0; i < b->n_stops; i++)
        free(b->stops[i]);
    sampling_free(&b->sampling);
    free(b->model);
    free(b);
}
