/* Bodies of completion requests, checked field by field. Unknown fields are ignored; known ones
 * that are not built get a refusal that names them. */
#include "coordinator/gateway/openai_body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/json.h"
#include "common/vector.h"
#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/body_samplers.h"
#include "coordinator/gateway/body_unbuilt.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/openai_grammar.h"
#include "coordinator/gateway/openai_prompts.h"
#include "coordinator/gateway/tools_body.h"

enum { MAX_CHOICES = 128 };

#define LEAST_TOP_P 1e-9

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
    bool drawn = !given || json_is_null(given) || seed == -1; /* as in vLLM and llama-server */
    s->seed = drawn ? env_random_u64(&env_real) : (uint64_t)seed;
    b->structured = openai_grammar_asked(b->root);
    rc = body_samplers_read(b->root, s, param, e);
    return rc < 0 ? rc : read_bias(b, param, e);
}

/* ---- text ---- */

static int read_stops(struct openai_body *b, const char **param, struct err *e)
{
    json_t *stop = json_object_get(b->root, "stop");
    size_t n = json_is_array(stop) ? json_array_size(stop) : 1, bytes = 0;
    if (!stop || json_is_null(stop))
        return 0;
    if (n > COMPLETION_MAX_STOPS)
        return body_field_refuse(param, "stop", e, "holds more than 128 strings");
    if (!(b->stops = calloc(n + 1, sizeof *b->stops)))
        return err_no_memory(e, "a request");
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_array(stop) ? json_array_get(stop, i) : stop);
        if (!s || strlen(s) > COMPLETION_MAX_STOP_BYTES)
            return body_field_refuse(param, "stop", e,
                                     "must be a text of at most 1024 bytes, or a list of such");
        if ((bytes += strlen(s)) > COMPLETION_MAX_STOPS_BYTES)
            return body_field_refuse(param, "stop", e, "has more than 16 KiB of texts together");
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
        if (!vector_push(b->stop_ids, b->n_stop_ids, b->room_stop_ids,
                         (uint32_t)json_integer_value(v)))
            return err_no_memory(e, "a request");
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

/* A stream's usage: at its end, and so far with each piece, too. */
static int read_stream_options(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *options = json_object_get(b->root, "stream_options");
    bool each = false;
    if (!options || json_is_null(options))
        return 0;
    if (!json_is_object(options))
        return body_field_refuse(param, "stream_options", e, "must be an object");
    int rc = body_field_flag(options, "include_usage", &b->include_usage, param, e);
    rc = rc < 0 ? rc : body_field_flag(options, "continuous_usage_stats", &each, param, e);
    b->tells_usage = b->include_usage && each;
    return rc;
}

/* A template writes a chat's own first token, a text has none yet. */
static int read_special(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *given = json_object_get(b->root, "add_special_tokens");
    int rc = body_field_flag(b->root, "add_special_tokens", &b->adds_special, param, e);
    if (!given || json_is_null(given))
        b->adds_special = !b->chat;
    return rc;
}

static int read_options(struct openai_body *b, const char **param, struct err *e)
{
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
        (rc = body_field_flag(b->root, "return_tokens", &b->return_tokens, param, e)) < 0 ||
        (rc = body_field_flag(b->root, "timings_per_token", &b->tells_timings, param, e)) < 0 ||
        (rc = body_field_flag(b->root, "post_sampling_probs", &b->probabilities, param, e)) < 0 ||
        (rc = body_field_flag(b->root, "literal_specials", &b->literal_specials, param, e)) < 0)
        return rc;
    b->max_tokens = (uint64_t)(max_completion_tokens ? max_completion_tokens : max_tokens);
    b->priority = (int32_t)priority;
    b->most_ms = most_ms > 0 ? (uint32_t)most_ms : 0;
    b->least_indent = indent > 0 ? (uint32_t)indent : 0;
    b->ignore_end |= b->no_answer;
    rc = read_stream_options(b, param, e);
    return rc < 0 ? rc : read_special(b, param, e);
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

/* llama-server's names for some of OpenAI's and vLLM's fields, which go before where both are
 * there. */
static const char *const aliases[][2] = {
    {"repeat_penalty", "repetition_penalty"}, {"n_predict", "max_tokens"}, {"n_cmpl", "n"}};

/* A refusal of what came by its other name has that one. */
static void alias_name(const json_t *root, const char **param, struct err *e)
{
    for (size_t i = 0; *param && i < sizeof aliases / sizeof *aliases; i++) {
        const json_t *v = json_object_get(root, aliases[i][0]);
        size_t n = strlen(aliases[i][1]);
        if (!v || v != json_object_get(root, aliases[i][1]) || strcmp(*param, aliases[i][1]) != 0)
            continue;
        const struct err told = *e;
        if (strncmp(told.text, *param, n) == 0)
            err_set(e, told.code, "%s%s", aliases[i][0], told.text + n);
        *param = aliases[i][0];
    }
}

/* An "n_predict" of 0 reads the prompt, which the next request with its beginning then
 * finds, and one of -2 is as -1. */
static int read_aliases(struct openai_body *b, struct err *e)
{
    const json_t *most = json_object_get(b->root, "n_predict");
    json_int_t n = json_is_integer(most) ? json_integer_value(most) : -1;
    bool reads = n == 0 && !json_object_get(b->root, "max_tokens");
    if ((reads || n == -2) &&
        json_object_set_new(b->root, "n_predict", json_integer(reads ? 1 : -1)) < 0)
        return err_no_memory(e, "a request");
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        json_t *v = json_object_get(b->root, aliases[i][0]);
        if (v && !json_object_get(b->root, aliases[i][1]) &&
            json_object_set(b->root, aliases[i][1], v) < 0)
            return err_no_memory(e, "a request");
    }
    b->no_answer |= reads;
    return 0;
}

/* Without a name, as llama-server's and some of vLLM's clients ask, the only one is meant. */
static int read_model(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *model = json_object_get(b->root, "model");
    if (model && !json_is_null(model) && !json_is_string(model))
        return body_field_refuse(param, "model", e, "is not a text");
    b->model = strdup(json_is_string(model) ? json_string_value(model) : "");
    return b->model ? 0 : err_no_memory(e, "a request");
}

static int read_fields(struct openai_body *b, const char **param, struct err *e)
{
    int rc;
    if (!json_is_object(b->root))
        return err_set(e, HP_EINVAL, "the body is not a JSON object");
    if ((rc = read_aliases(b, e)) < 0 || (rc = read_model(b, param, e)) < 0 ||
        (rc = body_unbuilt_check(b->root, param, e)) < 0 || (rc = read_echo(b, param, e)) < 0 ||
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
    b->ids.field = chat ? NULL : "prompt"; /* other paths that are no chats keep its name */
    b->values_left = BODY_MAX_COST;
    int rc = body_measure_load_within(body, n, &b->ids, &b->values_left, &b->root, error_param, e);
    if (rc == 0 && translate && json_is_object(b->root))
        rc = translate(&b->root, &b->chat, error_param, e);
    b->loads = rc > 0 ? rc : 0;
    rc = rc < 0 ? rc : read_fields(b, error_param, e);
    if (rc < 0) {
        alias_name(b->root, error_param, e);
        openai_body_destroy(&b);
    } else {
        *out = b;
    }
    return rc;
}

/* Whether what is drawn differs in its probabilities from what the logits say. */
static bool samplers_change(const struct openai_body *b)
{
    struct sampling_params s = b->sampling;
    bool changes = s.top_k || s.steps || s.min_tokens || s.bias.count || b->structured;
    for (const struct sampling_number *n = sampling_numbers; n->name; n++)
        changes = changes || *sampling_number_of(&s, n) < n->usual ||
                  *sampling_number_of(&s, n) > n->usual;
    return changes;
}

int openai_body_check_told(const struct openai_body *b, bool may_be_probabilities,
                           const char **param, struct err *e)
{
    static const char name[] = "post_sampling_probs";
    if (!b->probabilities || !b->logprobs)
        return 0;
    if (!may_be_probabilities)
        return body_field_refuse(param, name, e, "is of POST /completion; leave it out");
    return samplers_change(b)
               ? body_field_refuse(param, name, e,
                                   "probabilities are told before sampling here: leave it out, or "
                                   "what changes them (temperature 1, top_k 0, top_p 1, min_p 0, "
                                   "no penalty, bias or grammar)")
               : 0;
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

int openai_body_keep_asked(struct openai_body *b, struct err *e)
{
    const char *asked = json_string_value(json_object_get(b->root, "asked"));
    b->asked = asked ? strdup(asked) : NULL;
    return b->asked || !asked ? 0 : err_no_memory(e, "a request");
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
    free(b->stops);
    free(b->stop_ids);
    sampling_free(&b->sampling);
    free(b->model);
    free(b->asked);
    free(b);
}
