#include "common/plan_pools.h"

#include <string.h>

#include "common/plan.h"

static int read_count(const struct json_at *at, const char *key, int *out, struct err *e)
{
    uint64_t v;
    int rc = json_get_u64(at, key, &v, e);
    if (rc < 0)
        return rc;
    if (v == 0 || v > 10000000)
        return json_fail(at, e, "%s is %llu, expected 1 to 10000000", key, (unsigned long long)v);
    *out = (int)v;
    return 0;
}

static int read_stage(const struct json_at *at, struct arena *arena, int expected_first,
                      struct plan_pools_stage *s, struct err *e)
{
    const char *kind;
    uint64_t devices;
    int rc;
    if ((rc = json_get_string(at, "kind", &kind, e)) < 0 ||
        (rc = plan_layers_from_json(at, expected_first, &s->first_layer, &s->end_layer, e)) < 0 ||
        (rc = read_count(at, "share", &s->share, e)) < 0 ||
        (rc = read_count(at, "count", &s->count, e)) < 0 ||
        (rc = json_opt_u64(at, "devices", 0, &devices, e)) < 0 ||
        (rc = json_opt_number_min(at, "compute_s", 0, 0, &s->compute_s, e)) < 0 ||
        (rc = json_opt_number_min(at, "transfer_s", 0, 0, &s->transfer_s, e)) < 0)
        return rc;
    if (devices > 10000000)
        return json_fail(at, e, "devices is %llu, expected at most 10000000",
                         (unsigned long long)devices);
    s->devices = (int)devices;
    s->kind = arena_strdup(arena, kind);
    return s->kind ? 0 : json_no_memory(at, e);
}

static int read_pipeline(const struct json_at *at, struct arena *arena,
                         struct plan_pools_pipeline *p, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc;
    if ((rc = read_count(at, "batch", &p->batch, e)) < 0 ||
        (rc = json_opt_number_min(at, "throughput_per_s", 0, 0, &p->throughput_per_s, e)) < 0 ||
        (rc = json_opt_number_min(at, "latency_s", 0, 0, &p->latency_s, e)) < 0 ||
        (rc = json_get(at, "stages", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    if (n == 0 || n > PLAN_POOLS_MAX_STAGES)
        return json_fail(&list, e, "has %zu stages, expected 1 to %d", n, PLAN_POOLS_MAX_STAGES);
    p->stages = arena_alloc(arena, n, sizeof *p->stages);
    if (!p->stages)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        int first = i ? p->stages[i - 1].end_layer : 0;
        if ((rc = read_stage(&item, arena, first, &p->stages[i], e)) < 0)
            return rc;
        p->n_stages++;
    }
    return 0;
}

static int read_model(const struct json_at *at, struct arena *arena, struct plan_pools_model *m,
                      struct err *e)
{
    struct json_at list;
    const char *name;
    size_t n;
    int rc;
    if ((rc = json_get_string(at, "name", &name, e)) < 0 ||
        (rc = json_opt_number_min(at, "throughput_per_s", 0, 0, &m->throughput_per_s, e)) < 0 ||
        (rc = json_opt_number_min(at, "slo_margin", 0, -1, &m->slo_margin, e)) < 0 ||
        (rc = json_get(at, "pipelines", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    m->name = arena_strdup(arena, name);
    m->pipelines = arena_alloc(arena, n + 1, sizeof *m->pipelines);
    if (!m->name || !m->pipelines)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_pipeline(&item, arena, &m->pipelines[i], e)) < 0)
            return rc;
        m->n_pipelines++;
    }
    return 0;
}

int plan_pools_from_json(const struct json_at *at, struct arena *arena, struct plan_pools *out,
                         struct err *e)
{
    struct plan_pools p = {0};
    struct json_at list, predicted;
    size_t n;
    int rc;
    if ((rc = plan_kind_expect(at, "pools", e)) < 0 ||
        (rc = json_get(at, "models", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    if (n == 0)
        return json_fail(&list, e, "is empty: a plan serves at least one model");
    p.models = arena_alloc(arena, n, sizeof *p.models);
    if (!p.models)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_model(&item, arena, &p.models[i], e)) < 0)
            return rc;
        for (size_t k = 0; k < i; k++)
            if (strcmp(p.models[k].name, p.models[i].name) == 0)
                return json_fail(&item, e, "is a second model of the name \"%s\"",
                                 p.models[i].name);
        p.n_models++;
    }
    if (json_find(at, "predicted", &predicted) &&
        (rc = json_opt_number_min(&predicted, "normalized_throughput_per_s", 0, 0,
                                  &p.normalized_throughput_per_s, e)) < 0)
        return rc;
    *out = p;
    return 0;
}

/* ---- writing ---- */

static json_t *stage_json(const struct plan_pools_stage *s)
{
    return json_pack("{s:[i,i], s:s, s:i, s:i, s:i, s:f, s:f}", "layers", s->first_layer,
                     s->end_layer, "kind", s->kind, "share", s->share, "count", s->count, "devices",
                     s->devices, "compute_s", s->compute_s, "transfer_s", s->transfer_s);
}

static json_t *pipeline_json(const struct plan_pools_pipeline *p)
{
    json_t *stages = json_array();
    for (int i = 0; i < p->n_stages; i++)
        if (json_array_append_new(stages, stage_json(&p->stages[i])) < 0) {
            json_decref(stages);
            return NULL;
        }
    return json_pack("{s:i, s:f, s:f, s:o}", "batch", p->batch, "throughput_per_s",
                     p->throughput_per_s, "latency_s", p->latency_s, "stages", stages);
}

int plan_pools_to_json(const struct plan_pools *p, json_t *plan)
{
    json_t *models = json_array();
    for (int m = 0; m < p->n_models; m++) {
        const struct plan_pools_model *model = &p->models[m];
        json_t *pipelines = json_array();
        for (int i = 0; i < model->n_pipelines; i++)
            if (json_array_append_new(pipelines, pipeline_json(&model->pipelines[i])) < 0) {
                json_decref(pipelines);
                json_decref(models);
                return HP_ENOMEM;
            }
        json_t *row = json_pack("{s:s, s:f, s:o}", "name", model->name, "throughput_per_s",
                                model->throughput_per_s, "pipelines", pipelines);
        if (row && model->slo_margin >= 0)
            json_object_set_new(row, "slo_margin", json_real(model->slo_margin));
        if (json_array_append_new(models, row) < 0) {
            json_decref(models);
            return HP_ENOMEM;
        }
    }
    json_t *predicted =
        json_pack("{s:f}", "normalized_throughput_per_s", p->normalized_throughput_per_s);
    if (!predicted || json_object_set_new(plan, "predicted", predicted) < 0 ||
        json_object_set_new(plan, "models", models) < 0)
        return HP_ENOMEM;
    return 0;
}
