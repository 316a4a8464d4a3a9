#include "coordinator/pools/pool_workload.h"

#include "common/names.h"
#include "coordinator/pools/pool_requests.h"

static int names_check(const struct json_at *workload, const struct workload *w, struct err *e)
{
    struct json_at models;
    int rc = json_get(workload, "models", &models, e);
    for (int i = 0; rc == 0 && i < w->n_models; i++) {
        struct json_at model = json_item(&models, (size_t)i);
        if (!name_is_valid(w->models[i].name, POOL_NAME_BYTES))
            rc = json_fail(&model, e,
                           "\"%.80s\" cannot name a model: " NAME_ALPHABET " can, up to %d of them",
                           w->models[i].name, POOL_NAME_BYTES);
    }
    return rc;
}

int pool_workload_read(const struct json_at *document, struct workload *out, struct err *e)
{
    struct json_at at;
    struct workload w;
    int rc = json_get(document, "workload", &at, e);
    rc = rc < 0 ? rc : workload_from_json(&at, "", &w, e);
    if (rc < 0)
        return rc;
    if (w.n_models > POOL_MAX_MODELS)
        rc = json_fail(&at, e, "%d models; at most %d are served", w.n_models, POOL_MAX_MODELS);
    rc = rc < 0 ? rc : names_check(&at, &w, e);
    if (rc < 0)
        workload_free(&w);
    else
        *out = w;
    return rc;
}
