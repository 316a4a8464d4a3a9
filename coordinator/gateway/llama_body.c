#include "coordinator/gateway/llama_body.h"

#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "common/sampling.h"
#include "common/score.h"
#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/dialect_fields.h"

/* Fields that would be disobeyed in silence; all of them may say nothing. */
static int unbuilt_check(const json_t *root, const char **param, struct err *e)
{
    static const char *const unbuilt[][2] = {
        {"return_progress", "this server does not support it yet; leave it out"},
        {"prompt_logprobs", "/v1/completions tells of probabilities; leave it out"},
        {"echo", "is of /v1/completions"}};
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
    if (json_array_size(list) > SAMPLING_MAX_BIAS)
        return body_field_refuse(param, "logit_bias", e, "must be a list of at most 300 pairs");
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

/* -1, as llama-server writes it. */
static void seed_drop(json_t *root)
{
    const json_t *seed = json_object_get(root, "seed");
    if (json_is_integer(seed) && json_integer_value(seed) == UINT32_MAX)
        json_object_del(root, "seed");
}

/* How many of the likeliest tokens are told of each: "logprobs" of OpenAI's completions, which is
 * its other name here, too. 0 is none of them, and there it is the token alone. */
static int probs_move(json_t *root, const char **param, struct err *e)
{
    const char *name = json_object_get(root, "n_probs") ? "n_probs" : "logprobs";
    int64_t n;
    int rc = body_field_whole(root, name, 0, SCORE_MAX_TOP, 0, &n, param, e);
    if (rc < 0)
        return rc;
    json_object_del(root, "n_probs");
    json_object_del(root, "logprobs");
    return n == 0 || json_object_set_new(root, "logprobs", json_integer(n)) == 0
               ? 0
               : err_no_memory(e, "a request");
}

static int fields_translate(json_t *root, const char **param, struct err *e)
{
    int rc = unbuilt_check(root, param, e);
    rc = rc < 0 ? rc : bias_move(root, param, e);
    rc = rc < 0 ? rc : probs_move(root, param, e);
    seed_drop(root);
    return rc;
}

int llama_completion_translate(json_t **root, bool *chat, const char **param, struct err *e)
{
    *chat = false;
    return fields_translate(*root, param, e);
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
    int rc = fields_translate(*root, param, e);
    rc = rc < 0 ? rc : files_check(*root, param, e);
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
