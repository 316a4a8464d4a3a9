/* Bodies of completion requests, checked field by field. Unknown fields are ignored; known ones
 * that are not built get a refusal that names them. */
#include "coordinator/gateway/openai_body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/env.h"
#include "common/json.h"

enum { MAX_MESSAGES = 4096, MAX_PROMPT_IDS = 1 << 22 };

/* A refusal that names its field. */
static int refuse(const char **param, const char *name, struct err *e, const char *text)
{
    *param = name;
    return err_set(e, HP_EINVAL, "%s: %s", name, text);
}

/* ---- fields that are not built: given with another value than their default, they would be
 * silently disobeyed ------- */

static bool is_default(const char *name, const json_t *v)
{
    if (json_is_null(v) || json_is_false(v))
        return true;
    if (strcmp(name, "n") == 0 || strcmp(name, "best_of") == 0)
        return json_is_integer(v) && json_integer_value(v) == 1;
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
    static const char *const fields[] = {"n",
                                         "best_of",
                                         "tools",
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
            return refuse(param, fields[i], e, "this server does not support it yet; leave it out");
    }
    return 0;
}

/* ---- numbers
 * --------------------------------------------------------------------------------------------------------
 */

static int number(const struct openai_body *b, const char *name, double min, double max,
                  double fallback, double *out, const char **param, struct err *e)
{
    const json_t *v = json_object_get(b->root, name);
    *out = fallback;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_number(v))
        return refuse(param, name, e, "must be a number");
    double got = json_number_value(v);
    if (!isfinite(got) || got < min || got > max) {
        *param = name;
        return err_set(e, HP_EINVAL, "%s: %g is not between %g and %g", name, got, min, max);
    }
    *out = got;
    return 0;
}

static int whole(const struct openai_body *b, const char *name, int64_t min, int64_t max,
                 int64_t fallback, int64_t *out, const char **param, struct err *e)
{
    double v;
    int rc = number(b, name, (double)min, (double)max, (double)fallback, &v, param, e);
    if (rc == 0 && v != floor(v))
        return refuse(param, name, e, "must be a whole number");
    const json_t *exact = json_object_get(b->root, name);
    *out = json_is_integer(exact) ? json_integer_value(exact) : (int64_t)v;
    return rc;
}

static int flag(const json_t *object, const char *name, bool *out, const char **param,
                struct err *e)
{
    const json_t *v = json_object_get(object, name);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return refuse(param, name, e, "must be true or false");
    *out = json_is_true(v);
    return 0;
}

static int read_bias(struct openai_body *b, const char **param, struct err *e)
{
    json_t *bias = json_object_get(b->root, "logit_bias"), *v;
    const char *key;
    if (!bias || json_is_null(bias))
        return 0;
    if (!json_is_object(bias) || json_object_size(bias) > REQUEST_MAX_BIAS)
        return refuse(param, "logit_bias", e, "must be an object of at most 300 token ids");
    json_object_foreach(bias, key, v)
    {
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        double x = json_number_value(v);
        if (*end || end == key || id > UINT32_MAX || !json_is_number(v) || x < -100 || x > 100)
            return refuse(param, "logit_bias", e, "maps token ids to numbers between -100 and 100");
        b->sampling.bias[b->sampling.n_bias++] = (struct request_bias){(uint32_t)id, (float)x};
    }
    return 0;
}

static int read_sampling(struct openai_body *b, const char **param, struct err *e)
{
    struct request_sampling *s = &b->sampling;
    int64_t top_k, seed;
    int rc;
    *s = request_sampling_greedy;
    if ((rc = number(b, "temperature", 0, 100, 1, &s->temperature, param, e)) < 0 ||
        (rc = number(b, "top_p", 0, 1, 1, &s->top_p, param, e)) < 0 ||
        (rc = number(b, "min_p", 0, 1, 0, &s->min_p, param, e)) < 0 ||
        (rc = number(b, "repetition_penalty", 0.01, 10, 1, &s->repetition_penalty, param, e)) < 0 ||
        (rc = number(b, "presence_penalty", -2, 2, 0, &s->presence_penalty, param, e)) < 0 ||
        (rc = number(b, "frequency_penalty", -2, 2, 0, &s->frequency_penalty, param, e)) < 0 ||
        (rc = whole(b, "top_k", -1, INT32_MAX, 0, &top_k, param, e)) < 0)
        return rc;
    if (fpclassify(s->top_p) == FP_ZERO)
        return refuse(param, "top_p", e, "must be above 0");
    s->top_k = top_k > 0 ? (uint32_t)top_k : 0;
    const json_t *given = json_object_get(b->root, "seed");
    if ((rc = whole(b, "seed", INT64_MIN, INT64_MAX, 0, &seed, param, e)) < 0)
        return rc;
    s->seed = given && !json_is_null(given) ? (uint64_t)seed : env_random_u64(&env_real);
    return read_bias(b, param, e);
}

/* ---- text
 * -----------------------------------------------------------------------------------------------------------
 */

static int read_stops(struct openai_body *b, const char **param, struct err *e)
{
    json_t *stop = json_object_get(b->root, "stop");
    size_t n = json_is_array(stop) ? json_array_size(stop) : 1;
    if (!stop || json_is_null(stop))
        return 0;
    if (n > COMPLETION_MAX_STOPS)
        return refuse(param, "stop", e, "holds more than 16 strings");
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_array(stop) ? json_array_get(stop, i) : stop);
        if (!s || !*s || strlen(s) > COMPLETION_MAX_STOP_BYTES)
            return refuse(param, "stop", e, "must be a text of 1 to 1024 bytes, or a list of such");
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
    if (!content || json_is_null(content))
        return json_object_set_new(message, "content", json_string("")) == 0
                   ? 0
                   : err_set(e, HP_ENOMEM, "out of memory for a request");
    if (!json_is_array(content))
        return refuse(param, "messages", e, "a content must be a string or a list of text parts");
    struct buffer all = {0};
    int rc = 0;
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const char *text = json_string_value(json_object_get(part, "text"));
        if (!type || strcmp(type, "text") != 0 || !text) {
            rc = refuse(
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
        return refuse(param, "messages", e, "must be a list of 1 to 4096 messages");
    json_array_foreach(b->messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || !*role)
            return refuse(param, "messages", e, "every message needs a \"role\"");
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
        return refuse(param, "prompt", e, "holds more than 4 million tokens");
    b->ids = calloc(n + 1, sizeof *b->ids);
    if (!b->ids)
        return err_set(e, HP_ENOMEM, "out of memory for the prompt");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
            return refuse(param, "prompt", e, "must be a text or a list of token ids");
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
            return refuse(param, "prompt", e,
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
    return refuse(param, "prompt", e,
                  !prompt ? "is missing"
                  : empty ? "is empty"
                          : "must be a text or a list of token ids");
}

static int read_options(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *options = json_object_get(b->root, "stream_options");
    int64_t max_tokens, max_completion_tokens;
    int rc;
    if ((rc = whole(b, "max_tokens", 0, INT32_MAX, 0, &max_tokens, param, e)) < 0 ||
        (rc = whole(b, "max_completion_tokens", 0, INT32_MAX, 0, &max_completion_tokens, param,
                    e)) < 0 ||
        (rc = flag(b->root, "stream", &b->stream, param, e)) < 0 ||
        (rc = flag(b->root, "ignore_eos", &b->ignore_end, param, e)) < 0 ||
        (rc = flag(b->root, "literal_specials", &b->literal_specials, param, e)) < 0)
        return rc;
    static const char *const names[] = {"max_tokens", "max_completion_tokens"};
    for (int i = 0; i < 2; i++)
        if (json_is_number(json_object_get(b->root, names[i])) &&
            (i ? max_completion_tokens : max_tokens) == 0)
            return refuse(param, names[i], e, "must be at least 1");
    b->max_tokens = (uint64_t)(max_completion_tokens ? max_completion_tokens : max_tokens);
    if (options && !json_is_null(options)) {
        if (!json_is_object(options))
            return refuse(param, "stream_options", e, "must be an object");
        return flag(options, "include_usage", &b->include_usage, param, e);
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
        return refuse(param, "model", e, "is missing or not a text");
    if (!(b->model = strdup(model)))
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    if ((rc = check_unbuilt(b, param, e)) < 0 || (rc = read_options(b, param, e)) < 0 ||
        (rc = read_sampling(b, param, e)) < 0 || (rc = read_stops(b, param, e)) < 0)
        return rc;
    return b->chat ? read_messages(b, param, e) : read_prompt(b, param, e);
}

/* ---- the bytes
 * ------------------------------------------------------------------------------------------------------
 */

/* What a text holds, counted before a tree is built: the parser takes 60 bytes and more for a value
 * of two. */
struct measure {
    size_t values, depth, deepest, bad; /* bad: where it stops being UTF-8 */
    bool in_string, escaped, valid, nul;
};

static void measure_byte(struct measure *m, const char *text, size_t n)
{
    char c = text[0];
    if (m->in_string) {
        m->nul = m->nul || (m->escaped && n >= 5 && memcmp(text, "u0000", 5) == 0);
        m->in_string = m->escaped || c != '"';
        m->escaped = !m->escaped && c == '\\';
    } else if (c == '"') {
        m->in_string = true;
    } else if (c == ',' || c == ':' || c == '[' || c == '{') {
        m->values++;
        m->depth += c == '[' || c == '{';
        m->deepest = m->depth > m->deepest ? m->depth : m->deepest;
    } else if ((c == ']' || c == '}') && m->depth > 0) {
        m->depth--;
    }
}

static struct measure measure_text(const char *text, size_t n)
{
    struct measure m = {.valid = true};
    utf8proc_int32_t c;
    while (m.bad < n && m.values <= OPENAI_MAX_VALUES && m.deepest <= OPENAI_MAX_DEPTH) {
        utf8proc_ssize_t took = (unsigned char)text[m.bad] < 0x80
                                    ? 1
                                    : utf8proc_iterate((const utf8proc_uint8_t *)text + m.bad,
                                                       (utf8proc_ssize_t)(n - m.bad), &c);
        if (took <= 0) {
            m.valid = false;
            break;
        }
        measure_byte(&m, text + m.bad, n - m.bad);
        m.bad += (size_t)took;
    }
    return m;
}

static int text_load(const char *text, size_t n, json_t **root, struct err *e)
{
    struct json_at at;
    struct measure m = measure_text(text, n);
    if (!m.valid)
        return err_set(e, HP_EINVAL, "the body is not valid UTF-8 at byte %zu", m.bad);
    if (m.values > OPENAI_MAX_VALUES)
        return err_set(e, HP_EINVAL, "the body holds more than %d JSON values", OPENAI_MAX_VALUES);
    if (m.deepest > OPENAI_MAX_DEPTH)
        return err_set(e, HP_EINVAL, "the body is nested deeper than %d levels", OPENAI_MAX_DEPTH);
    if (m.nul)
        return err_set(e, HP_EINVAL, "the body holds \\u0000, which cannot stand in a text");
    /* An integer beyond 64 bits is a number all the same: its field, if it is one that counts, says
     * what it may be. */
    int rc = json_parse_wide_at("the body", text, n, root, &at, e);
    if (rc == HP_EPARSE && e)
        e->code = HP_EINVAL;
    return rc == HP_EPARSE ? HP_EINVAL : rc;
}

int openai_body_parse(const char *body, size_t n, bool chat, struct openai_body **out,
                      const char **error_param, struct err *e)
{
    struct openai_body *b = calloc(1, sizeof *b);
    *error_param = NULL;
    if (!b)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    b->chat = chat;
    int rc = text_load(body, n, &b->root, e);
    rc = rc < 0 ? rc : read_fields(b, error_param, e);
    if (rc < 0)
        openai_body_destroy(&b);
    else
        *out = b;
    return rc;
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
    free(b->model);
    free(b);
}
