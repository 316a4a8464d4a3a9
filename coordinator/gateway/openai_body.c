/* Bodies of completion requests, checked field by field. Unknown fields are ignored; known ones
 * that are not built get a refusal that names them. */
#include "coordinator/gateway/openai_body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/json.h"
#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/openai_grammar.h"
#include "coordinator/gateway/openai_prompts.h"
#include "coordinator/gateway/tools_body.h"

enum { MAX_CHOICES = 128 };

#define LEAST_TOP_P 1e-9

/* ---- fields that are not built: given with another value than their default, they would be
 * silently disobeyed ---- */

struct unbuilt_field {
    const char *name, *why;
    double usual; /* the number that asks for nothing */
    bool on;      /* true asks for nothing, and not false */
};

static bool is_default(const struct unbuilt_field *f, const json_t *v)
{
    const char *name = f->name;
    if (json_is_null(v) || (json_is_boolean(v) && json_is_true(v) == f->on))
        return true;
    if (json_is_number(v))
        return fpclassify(json_number_value(v) - f->usual) == FP_ZERO;
    if (strcmp(name, "function_call") == 0) /* without functions nobody can choose one */
        return json_is_string(v) && (strcmp(json_string_value(v), "none") == 0 ||
                                     strcmp(json_string_value(v), "auto") == 0);
    if (strcmp(name, "modalities") == 0 && json_array_size(v) == 1)
        return json_is_string(json_array_get(v, 0)) &&
               strcmp(json_string_value(json_array_get(v, 0)), "text") == 0;
    if (json_is_array(v))
        return json_array_size(v) == 0;
    return json_is_string(v) && !*json_string_value(v);
}

static int check_unbuilt(const struct openai_body *b, const char **param, struct err *e)
{
    static const char leave_out[] = "this server does not support it yet; leave it out";
    static const struct unbuilt_field fields[] = {
        {"functions",
         "are what \"tools\" have replaced: {\"type\": \"function\", \"function\": {..}}", 0,
         false},
        {"function_call", "is what \"tool_choice\" has replaced, which chooses among \"tools\"", 0,
         false},
        {"suffix", leave_out, 0, false},
        {"audio", leave_out, 0, false},
        {"modalities", leave_out, 0, false},
        {"prediction", leave_out, 0, false},
        {"web_search_options", "this server has no tools of its own; leave it out", 0, false},
        /* vLLM's */
        {"use_beam_search", leave_out, 0, false},
        {"bad_words", leave_out, 0, false},
        {"allowed_token_ids", leave_out, 0, false},
        {"truncate_prompt_tokens", leave_out, -1, false},
        {"include_stop_str_in_output", leave_out, 0, false},
        {"skip_special_tokens", leave_out, 0, true},
        {"return_token_ids", leave_out, 0, false},
        {"return_tokens_as_token_ids", leave_out, 0, false},
        {"prompt_embeds", leave_out, 0, false},
        {"documents", leave_out, 0, false},
        /* llama-server's */
        {"mirostat", leave_out, 0, false},
        {"typical_p", leave_out, 1, false},
        {"dynatemp_range", leave_out, 0, false},
        {"xtc_probability", leave_out, 0, false},
        {"dry_multiplier", leave_out, 0, false},
        {"top_n_sigma", leave_out, -1, false},
        {"n_probs", "\"logprobs\" and \"top_logprobs\" are what tells of probabilities here", 0,
         false},
        {"lora", leave_out, 0, false}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *v = json_object_get(b->root, fields[i].name);
        if (v && !is_default(&fields[i], v))
            return body_field_refuse(param, fields[i].name, e, fields[i].why);
    }
    return 0;
}

/* ---- numbers ---- */

static int read_bias(struct openai_body *b, const char **param, struct err *e)
{
    json_t *bias = json_object_get(b->root, "logit_bias"), *v;
    const char *key;
    if (!bias || json_is_null(bias))
        return 0;
    if (!json_is_object(bias) || json_object_size(bias) > SAMPLING_MAX_BIAS)
        return body_field_refuse(param, "logit_bias", e,
                                 "must be an object of at most 300 token ids");
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
            return body_field_refuse(param, "logit_bias", e,
                                     "maps token ids to numbers between -100 and 100");
        list[b->sampling.bias.count++] = (struct sampling_bias){id, x};
    }
    return 0;
}

static int read_sampling(struct openai_body *b, const char **param, struct err *e)
{
    struct sampling_params *s = &b->sampling;
    int64_t top_k, seed, min_tokens;
    int rc;
    *s = sampling_greedy;
    for (const struct sampling_number *n = sampling_numbers; n->name; n++)
        if ((rc = body_field_number(b->root, n->name, n->asked_low, n->asked_high, n->usual,
                                    sampling_number_of(s, n), param, e)) < 0)
            return rc;
    if ((rc = body_field_whole(b->root, "top_k", -1, INT32_MAX, 0, &top_k, param, e)) < 0)
        return rc;
    if ((rc = body_field_whole(b->root, "min_tokens", 0, INT32_MAX, 0, &min_tokens, param, e)) < 0)
        return rc;
    s->min_tokens = (uint64_t)min_tokens;
    if (fpclassify(s->top_p) == FP_ZERO)
        s->top_p = LEAST_TOP_P; /* the likeliest alone */
    s->top_k = top_k > 0 ? (uint64_t)top_k : 0;
    const json_t *given = json_object_get(b->root, "seed");
    if ((rc = body_field_whole(b->root, "seed", INT64_MIN, INT64_MAX, 0, &seed, param, e)) < 0)
        return rc;
    s->seed = given && !json_is_null(given) ? (uint64_t)seed : env_random_u64(&env_real);
    b->structured = openai_grammar_asked(b->root);
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
        return body_field_refuse(param, "stop", e, "holds more than 16 strings");
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_array(stop) ? json_array_get(stop, i) : stop);
        if (!s || strlen(s) > COMPLETION_MAX_STOP_BYTES)
            return body_field_refuse(param, "stop", e,
                                     "must be a text of at most 1024 bytes, or a list of such");
        if (!*s)
            continue; /* some clients send one for none */
        if (!(b->stops[b->n_stops] = strdup(s)))
            return err_set(e, HP_ENOMEM, "out of memory for a request");
        b->n_stops++;
    }
    return 0;
}

static int read_stop_ids(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *list = json_object_get(b->root, "stop_token_ids");
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list) || json_array_size(list) > OPENAI_MAX_STOP_IDS)
        return body_field_refuse(param, "stop_token_ids", e,
                                 "must be a list of at most 64 token ids");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
            return body_field_refuse(param, "stop_token_ids", e, "holds what is no token id");
        b->stop_ids[b->n_stop_ids++] = (uint32_t)json_integer_value(v);
    }
    return 0;
}

/* Of more answers than are given the likeliest are, which is known when all are over. */
static int read_choices(struct openai_body *b, const char **param, struct err *e)
{
    int64_t n, best_of;
    int rc;
    if ((rc = body_field_whole(b->root, "n", 1, MAX_CHOICES, 1, &n, param, e)) < 0 ||
        (rc = body_field_whole(b->root, "best_of", 1, MAX_CHOICES, n, &best_of, param, e)) < 0)
        return rc;
    if (best_of < n)
        return body_field_refuse(param, "best_of", e, "is less than n, the answers to be given");
    if (best_of > n && b->stream)
        return body_field_refuse(param, "best_of", e,
                                 "answers are ranked when all are over: leave out \"stream\", or "
                                 "give n");
    b->n_choices = (uint32_t)best_of;
    b->n_given = (uint32_t)n;
    return 0;
}

static int read_options(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *options = json_object_get(b->root, "stream_options");
    int64_t max_tokens, max_completion_tokens, priority, most_ms, indent;
    int rc;
    if ((rc = body_field_tokens(b->root, "max_tokens", &max_tokens, param, e)) < 0 ||
        (rc = body_field_tokens(b->root, "max_completion_tokens", &max_completion_tokens, param,
                                e)) < 0 ||
        (rc = body_field_whole(b->root, "priority", -REQUEST_PRIORITY_MOST, REQUEST_PRIORITY_MOST,
                               0, &priority, param, e)) < 0 ||
        (rc = body_field_whole(b->root, "t_max_predict_ms", -1, INT32_MAX, 0, &most_ms, param, e)) <
            0 ||
        (rc = body_field_whole(b->root, "n_indent", -1, INT32_MAX, 0, &indent, param, e)) < 0 ||
        (rc = body_field_flag(b->root, "stream", &b->stream, param, e)) < 0 ||
        (rc = body_field_flag(b->root, "ignore_eos", &b->ignore_end, param, e)) < 0 ||
        (rc = body_field_flag(b->root, "literal_specials", &b->literal_specials, param, e)) < 0)
        return rc;
    b->max_tokens = (uint64_t)(max_completion_tokens ? max_completion_tokens : max_tokens);
    b->priority = (int32_t)priority;
    b->most_ms = most_ms > 0 ? (uint32_t)most_ms : 0;
    b->least_indent = indent > 0 ? (uint32_t)indent : 0;
    b->ignore_end |= b->no_answer;
    if (options && !json_is_null(options)) {
        if (!json_is_object(options))
            return body_field_refuse(param, "stream_options", e, "must be an object");
        return body_field_flag(options, "include_usage", &b->include_usage, param, e);
    }
    return 0;
}

/* Chats ask with "logprobs": true and "top_logprobs", completions with a number. */
static int read_logprobs(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *given = json_object_get(b->root, "logprobs");
    const char *name = b->chat ? "top_logprobs" : "logprobs";
    bool none = !given || json_is_null(given) || json_is_false(given);
    int64_t top = 0, prompt_top;
    int rc = b->chat ? body_field_flag(b->root, "logprobs", &b->logprobs, param, e) : 0;
    if (rc == 0 && (b->chat || !none))
        rc = body_field_whole(b->root, name, 0, SCORE_MAX_TOP, 0, &top, param, e);
    rc = rc < 0 ? rc
                : body_field_whole(b->root, "prompt_logprobs", 0, SCORE_MAX_TOP, -1, &prompt_top,
                                   param, e);
    if (rc < 0)
        return rc;
    if (b->chat && top && !b->logprobs)
        return body_field_refuse(param, "top_logprobs", e, "needs \"logprobs\": true");
    b->logprobs = b->chat ? b->logprobs : !none;
    b->prompt_logprobs = prompt_top >= 0;
    b->top = (uint32_t)top;
    b->prompt_top = b->prompt_logprobs ? (uint32_t)prompt_top : 0;
    if (b->prompt_logprobs && b->stream)
        return body_field_refuse(param, "prompt_logprobs", e,
                                 "come with a whole answer, and not with a stream");
    return 0;
}

/* A prompt alone may be asked for, to have it told with what is said of it. */
static int read_echo(struct openai_body *b, const char **param, struct err *e)
{
    json_t *most = json_object_get(b->root, "max_tokens");
    int rc = body_field_flag(b->root, "echo", &b->echo, param, e);
    if (rc == 0 && b->echo && b->chat)
        return body_field_refuse(param, "echo", e, "is of /v1/completions alone");
    if (rc == 0 && b->echo && json_is_integer(most) && json_integer_value(most) == 0) {
        b->no_answer = true;
        json_object_set_new(b->root, "max_tokens", json_integer(1));
    }
    return rc;
}

/* As llama-server has it: "none" leaves reasoning in the text. */
static int read_reasoning(struct openai_body *b, const char **param, struct err *e)
{
    static const char *const known[] = {"none", "auto", "deepseek"};
    const json_t *v = json_object_get(b->root, "reasoning_format");
    bool given = v && !json_is_null(v), fits = !given;
    b->splits_reasoning = true;
    for (size_t i = 0; i < sizeof known / sizeof *known && given; i++)
        if (json_is_string(v) && strcmp(json_string_value(v), known[i]) == 0) {
            fits = true;
            b->splits_reasoning = i > 0;
        }
    return fits ? 0
                : body_field_refuse(param, "reasoning_format", e,
                                    "may be \"none\", \"auto\" or \"deepseek\"");
}

/* llama-server's names for two of OpenAI's and vLLM's fields, which go before where both are there.
 */
static int read_aliases(json_t *root, struct err *e)
{
    static const char *const names[][2] = {{"repeat_penalty", "repetition_penalty"},
                                           {"n_predict", "max_tokens"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *v = json_object_get(root, names[i][0]);
        if (v && !json_object_get(root, names[i][1]) && json_object_set(root, names[i][1], v) < 0)
            return err_set(e, HP_ENOMEM, "out of memory for a request");
    }
    return 0;
}

static int read_fields(struct openai_body *b, const char **param, struct err *e)
{
    int rc;
    if (!json_is_object(b->root))
        return err_set(e, HP_EINVAL, "the body is not a JSON object");
    if ((rc = read_aliases(b->root, e)) < 0)
        return rc;
    const char *model = json_string_value(json_object_get(b->root, "model"));
    if (!model)
        return body_field_refuse(param, "model", e, "is missing or not a text");
    if (!(b->model = strdup(model)))
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    if ((rc = check_unbuilt(b, param, e)) < 0 || (rc = read_echo(b, param, e)) < 0 ||
        (rc = read_options(b, param, e)) < 0 || (rc = read_logprobs(b, param, e)) < 0 ||
        (rc = read_choices(b, param, e)) < 0 || (rc = read_sampling(b, param, e)) < 0 ||
        (rc = read_stops(b, param, e)) < 0 || (rc = read_stop_ids(b, param, e)) < 0 ||
        (rc = read_reasoning(b, param, e)) < 0 || (rc = openai_prompts_read(b, param, e)) < 0)
        return rc;
    if (b->n_prompts * b->n_choices > OPENAI_MAX_ANSWERS)
        return body_field_refuse(param, "n", e,
                                 "a request may have 512 answers to all its prompts");
    return 0;
}

/* ---- the bytes ---- */

int openai_body_read(const char *body, size_t n,
                     int (*translate)(json_t **root, bool *chat, const char **param, struct err *e),
                     bool chat, struct openai_body **out, const char **error_param, struct err *e)
{
    struct openai_body *b = calloc(1, sizeof *b);
    *error_param = NULL;
    if (!b)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    b->chat = chat;
    b->ids.field = chat || translate ? NULL : "prompt";
    int rc = body_measure_load(body, n, &b->ids, &b->root, error_param, e);
    if (rc == 0 && translate && json_is_object(b->root))
        rc = translate(&b->root, &b->chat, error_param, e);
    b->loads = rc > 0 && rc != DIALECT_READ ? rc : 0;
    b->no_answer = rc == DIALECT_READ;
    rc = rc < 0 ? rc : read_fields(b, error_param, e);
    if (rc < 0)
        openai_body_destroy(&b);
    else
        *out = b;
    return rc;
}

static int id_refuse(const char **param, const char *name, uint64_t id, uint32_t vocabulary,
                     struct err *e)
{
    *param = name;
    return err_set(e, HP_EINVAL, "%s: token %llu is beyond the vocabulary of %u", name,
                   (unsigned long long)id, vocabulary);
}

int openai_body_check(const struct openai_body *b, uint32_t vocabulary, const char **param,
                      struct err *e)
{
    const struct sampling_bias *bias = b->sampling.bias.items;
    for (size_t i = 0; i < b->sampling.bias.count; i++)
        if (bias[i].token >= vocabulary)
            return id_refuse(param, "logit_bias", bias[i].token, vocabulary, e);
    for (int i = 0; i < b->n_stop_ids; i++)
        if (b->stop_ids[i] >= vocabulary)
            return id_refuse(param, "stop_token_ids", b->stop_ids[i], vocabulary, e);
    for (size_t p = 0; b->prompts && p < b->n_prompts; p++)
        for (size_t i = 0; i < b->prompts[p].n_ids; i++)
            if (b->prompts[p].ids[i] >= vocabulary)
                return id_refuse(param, "prompt", b->prompts[p].ids[i], vocabulary, e);
    return 0;
}

void openai_body_drop_prompt(struct openai_body *b)
{
    openai_prompts_free(b);
}

void openai_body_destroy(struct openai_body **out)
{
    struct openai_body *b = *out;
    *out = NULL;
    if (!b)
        return;
    openai_body_drop_prompt(b);
    tools_body_free(b);
    response_fields_free(&b->fields);
    for (int i = 0; i < b->n_stops; i++)
        free(b->stops[i]);
    sampling_free(&b->sampling);
    free(b->model);
    free(b);
}
