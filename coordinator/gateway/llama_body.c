#include "coordinator/gateway/llama_body.h"

#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/dialect_fields.h"
#include "coordinator/gateway/llama_samplers.h"

/* Fields that would be disobeyed in silence; all of them may say nothing. */
static int unbuilt_check(const json_t *root, const char **param, struct err *e)
{
    static const char *const unbuilt[][2] = {
        {"return_tokens", "\"logprobs\" of /v1/completions tells tokens; leave it out"},
        {"image_data", "this server reads text alone"},
        {"multimodal_data", "this server reads text alone"},
        {"return_progress", "this server does not support it yet; leave it out"},
        {"timings_per_token", "the last event has \"timings\"; leave it out"},
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

/* -1 and -2 are for as many tokens as there is room for, there and here. 0 reads the prompt, which
 * the next request with its beginning then finds. */
static int most_read(json_t *root, struct err *e)
{
    const json_t *most = json_object_get(root, "n_predict");
    bool is_whole = json_is_integer(most), reads = is_whole && json_integer_value(most) == 0,
         endless = is_whole && json_integer_value(most) == -2;
    if ((reads || endless) &&
        json_object_set_new(root, "n_predict", json_integer(reads ? 1 : -1)) < 0)
        return err_no_memory(e, "a request");
    return reads ? DIALECT_READ : 0;
}

/* DIALECT_READ, or 0. */
static int fields_check(json_t *root, const char **param, struct err *e)
{
    int rc = unbuilt_check(root, param, e);
    rc = rc < 0 ? rc : bias_move(root, param, e);
    rc = rc < 0 ? rc : llama_samplers_read(root, param, e);
    seed_drop(root);
    rc = rc < 0 ? rc : most_read(root, e);
    const json_t *model = json_object_get(root, "model");
    if (rc >= 0 && (!model || json_is_null(model)) &&
        json_object_set_new(root, "model", json_string("")) < 0)
        rc = err_no_memory(e, "a request");
    return rc;
}

int llama_completion_translate(json_t **root, bool *chat, const char **param, struct err *e)
{
    *chat = false;
    int rc = fields_check(*root, param, e), wrong = rc < 0 ? rc : prompt_check(*root, param, e);
    return wrong < 0 ? wrong : rc;
}

static const char *text_field(const json_t *root, const char *name, bool *wrong)
{
    const json_t *v = json_object_get(root, name);
    *wrong = v && !json_is_null(v) && !json_is_string(v);
    return json_is_string(v) ? json_string_value(v) : "";
}

/* [{"filename", "text"}, ..]; both may be missing. */
static int files_check(const json_t *root, const char **param, struct err *e)
{
    static const char *const texts[] = {"filename", "text"};
    const json_t *files = json_object_get(root, "input_extra"), *one;
    size_t i;
    bool wrong = files && !json_is_null(files) && !json_is_array(files), odd = false;
    json_array_foreach(files, i, one)
    {
        for (int k = 0; k < 2; k++) {
            text_field(one, texts[k], &odd);
            wrong = wrong || odd || !json_is_object(one);
        }
    }
    return wrong
               ? body_field_refuse(param, "input_extra", e,
                                   "must be a list of {\"filename\": .., \"text\": ..}, both texts")
               : 0;
}

int llama_infill_translate(json_t **root, bool *chat, const char **param, struct err *e)
{
    static const char *const names[] = {"input_prefix", "prompt", "input_suffix"};
    const char *texts[3];
    struct buffer before = {0};
    bool wrong;
    *chat = false;
    int asked = fields_check(*root, param, e);
    int rc = asked < 0 ? asked : files_check(*root, param, e);
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
    return fine ? asked : err_no_memory(e, "a request");
}
