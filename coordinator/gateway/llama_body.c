#include "coordinator/gateway/llama_body.h"

#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/dialect_fields.h"

/* Fields that would be disobeyed in silence; all of them may say nothing. */
static int unbuilt_check(const json_t *root, const char **param, struct err *e)
{
    static const char *const unbuilt[][2] = {
        {"samplers", "are run in this server's own order; leave it out"},
        {"response_fields", "a reply has all of its fields; leave it out"},
        {"return_tokens", "\"logprobs\" of /v1/completions tells tokens; leave it out"},
        {"image_data", "this server reads text alone"},
        {"multimodal_data", "this server reads text alone"},
        {"t_max_predict_ms", "this server does not support it yet; leave it out"},
        {"input_extra", "this server does not support it yet; leave it out"},
        {"n_indent", "this server does not support it yet; leave it out"},
        {"return_progress", "this server does not support it yet; leave it out"},
        {"post_sampling_probs", "/v1/completions tells of probabilities; leave it out"},
        {"logprobs", "/v1/completions tells of probabilities; leave it out"},
        {"prompt_logprobs", "/v1/completions tells of probabilities; leave it out"},
        {"echo", "is of /v1/completions"}};
    int64_t n;
    int rc = body_field_whole(root, "n", 1, 1, 1, &n, param, e);
    rc = rc < 0 ? rc : body_field_whole(root, "best_of", 1, 1, 1, &n, param, e);
    rc = rc < 0 ? rc : body_field_whole(root, "n_cmpl", 1, 1, 1, &n, param, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++) {
        const json_t *v = json_object_get(root, unbuilt[i][0]);
        bool zero = json_is_integer(v) && json_integer_value(v) == 0;
        if (!zero && field_asks(root, unbuilt[i][0]))
            return body_field_refuse(param, unbuilt[i][0], e, unbuilt[i][1]);
    }
    return 0;
}

/* [[id, bias], ..] is an object of OpenAI's; false for a bias forbids the token. */
static int bias_move(json_t *root, const char **param, struct err *e)
{
    json_t *list = json_object_get(root, "logit_bias"), *made, *pair;
    size_t i;
    if (!json_is_array(list))
        return 0;
    made = json_object();
    json_array_foreach(list, i, pair)
    {
        char id[32];
        json_t *bias = json_array_get(pair, 1);
        if (!json_is_integer(json_array_get(pair, 0)) || json_array_size(pair) != 2 ||
            !(json_is_number(bias) || json_is_false(bias))) {
            json_decref(made);
            return body_field_refuse(param, "logit_bias", e,
                                     "must be a list of a token id and a number each");
        }
        snprintf(id, sizeof id, "%lld", (long long)json_integer_value(json_array_get(pair, 0)));
        json_t *number = json_real(json_is_false(bias) ? -100 : json_number_value(bias));
        if (json_object_set_new(made, id, number) < 0) {
            json_decref(made);
            return err_no_memory(e, "a request");
        }
    }
    return json_object_set_new(root, "logit_bias", made) == 0 ? 0 : err_no_memory(e, "a request");
}

/* One prompt: a text, ids, or a list with one text. */
static int prompt_check(json_t *root, const char **param, struct err *e)
{
    json_t *prompt = json_object_get(root, "prompt");
    bool texts = json_is_array(prompt) && json_array_size(prompt) > 0 &&
                 !json_is_integer(json_array_get(prompt, 0));
    if (!texts)
        return 0;
    if (json_array_size(prompt) > 1)
        return body_field_refuse(param, "prompt", e,
                                 "is one text, or one list of token ids, here; /v1/completions "
                                 "takes several");
    json_t *one = json_incref(json_array_get(prompt, 0));
    return json_object_set_new(root, "prompt", one) == 0 ? 0 : err_no_memory(e, "a request");
}

/* Any other seed than these is one; with them each answer draws anew. */
static void seed_drop(json_t *root)
{
    const json_t *seed = json_object_get(root, "seed");
    json_int_t n = json_integer_value(seed);
    if (json_is_integer(seed) && (n == -1 || n == UINT32_MAX))
        json_object_del(root, "seed");
}

/* -1 and -2 are for as many tokens as there is room for, there and here. */
static int fields_check(json_t *root, const char **param, struct err *e)
{
    json_t *most = json_object_get(root, "n_predict");
    int rc = unbuilt_check(root, param, e);
    rc = rc < 0 ? rc : bias_move(root, param, e);
    seed_drop(root);
    if (rc == 0 && json_is_integer(most) && json_integer_value(most) == -2 &&
        json_object_set_new(root, "n_predict", json_integer(-1)) < 0)
        rc = err_no_memory(e, "a request");
    const json_t *model = json_object_get(root, "model");
    if (rc == 0 && (!model || json_is_null(model)) &&
        json_object_set_new(root, "model", json_string("")) < 0)
        rc = err_no_memory(e, "a request");
    return rc;
}

int llama_completion_translate(json_t **root, bool *chat, const char **param, struct err *e)
{
    *chat = false;
    int rc = fields_check(*root, param, e);
    return rc < 0 ? rc : prompt_check(*root, param, e);
}

static const char *text_field(const json_t *root, const char *name, bool *wrong)
{
    const json_t *v = json_object_get(root, name);
    *wrong = v && !json_is_null(v) && !json_is_string(v);
    return json_is_string(v) ? json_string_value(v) : "";
}

int llama_infill_translate(json_t **root, bool *chat, const char **param, struct err *e)
{
    static const char *const names[] = {"input_prefix", "prompt", "input_suffix"};
    const char *texts[3];
    struct buffer before = {0};
    bool wrong;
    *chat = false;
    int rc = fields_check(*root, param, e);
    for (int i = 0; i < 3 && rc == 0; i++) {
        texts[i] = text_field(*root, names[i], &wrong);
        if (wrong)
            rc = body_field_refuse(param, names[i], e, "must be a text");
    }
    if (rc < 0)
        return rc;
    buffer_printf(&before, "%s%s", texts[0], texts[1]);
    bool fine =
        !before.failed &&
        json_object_set_new(*root, "input_prefix", json_string(buffer_cstr(&before))) == 0 &&
        json_object_set_new(*root, "prompt", json_string("-")) == 0;
    buffer_free(&before);
    return fine ? 0 : err_no_memory(e, "a request");
}
