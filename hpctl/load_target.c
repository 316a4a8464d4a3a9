#include "hpctl/load_target.h"

#include <stdio.h>
#include <string.h>

#include "hpctl/http_client.h"
#include "hpctl/shown.h"

enum { UNKNOWN_VOCABULARY = 256, PATH_BYTES = 96 };

/* Every request must fit the context: else its refusal would say nothing of the load. */
static int plan_check(const struct load_plan *p, uint64_t context, struct err *e)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct load_request *r = &p->requests[i];
        if ((uint64_t)r->prompt_tokens + r->answer_tokens > context) {
            err_set(e, HP_EINVAL,
                    "request %zu has a prompt of %u tokens and an answer of %u: the deployment's "
                    "context is %llu",
                    i + 1, r->prompt_tokens, r->answer_tokens, (unsigned long long)context);
            return err_hint(e, "lower the upper ends of --prompt-tokens and --answer-tokens");
        }
    }
    return 0;
}

int load_target_ask(struct context *where, struct load_run *r, struct err *e)
{
    char path[PATH_BYTES];
    json_t *model = NULL;
    snprintf(path, sizeof path, "/v1/models/%s", r->deployment);
    int rc = http_get(where, path, &model, e);
    const char *state = string_member(model, "state");
    json_int_t vocabulary = json_integer_value(json_object_get(model, "vocabulary"));
    if (rc == 0 && strcmp(state, "serving") != 0)
        rc = err_set(e, HP_ESTALE, "\"%s\" does not serve now (%s)", r->deployment, state);
    if (rc == 0 && strcmp(string_member(model, "task"), "embed") == 0) {
        err_set(e, HP_EINVAL, "\"%s\" makes embeddings, and a load is of answers", r->deployment);
        rc = err_hint(e, "name a deployment of a model that writes text (hpctl ps)");
    }
    if (rc == 0)
        rc = plan_check(r->plan, (uint64_t)number_member(model, "max_model_len"), e);
    r->vocabulary = vocabulary > 0 ? (uint32_t)vocabulary : UNKNOWN_VOCABULARY;
    json_decref(model);
    return rc;
}
