#include "common/workload.h"

#include <string.h>

static int number_positive(const struct json_at *at, const char *key, double *out, struct err *e)
{
    struct json_at m;
    int rc;
    if ((rc = json_get(at, key, &m, e)) < 0 || (rc = json_as_number(&m, out, e)) < 0)
        return rc;
    if (*out <= 0)
        return json_fail(&m, e, "%g is not above 0", *out);
    /* Far from anything real, and so that no figure made from it overflows. */
    return *out >= 1e-9 && *out <= 1e9 ? 0
                                       : json_fail(&m, e, "%g is out of range: 1e-9 to 1e9", *out);
}

static int read_margin(const struct json_at *at, double fallback, double *out, struct err *e)
{
    struct json_at m;
    *out = fallback;
    if (!json_find(at, "slo_margin", &m))
        return 0;
    int rc = json_as_number_min(&m, 0, out, e);
    if (rc < 0)
        return rc;
    return *out < 1 ? 0 : json_fail(&m, e, "%g leaves no time: a margin is below 1", *out);
}

static int read_batching(const struct json_at *at, struct workload_model *m, struct err *e)
{
    struct json_at b;
    int rc;
    if (!json_find(at, "batching", &b))
        return 0;
    m->has_batching = true;
    if ((rc = json_as_object(&b, e)) < 0 ||
        (rc = json_get_number_min(&b, "factor", 0, &m->batching_factor, e)) < 0)
        return rc;
    if (m->batching_factor > 1e9)
        return json_fail(&b, e, "factor is %g, expected at most 1e9", m->batching_factor);
    return number_positive(&b, "throughput_per_s", &m->batching_throughput_per_s, e);
}

static int read_model(struct workload *w, const struct json_at *at, const char *folder,
                      struct workload_model *m, struct err *e)
{
    const char *name, *file;
    int rc;
    if ((rc = json_get_string(at, "name", &name, e)) < 0 ||
        (rc = json_opt_string(at, "profile", "", &file, e)) < 0 ||
        (rc = number_positive(at, "weight", &m->weight, e)) < 0 ||
        (rc = number_positive(at, "slo_s", &m->slo_s, e)) < 0 ||
        (rc = read_margin(at, w->slo_margin, &m->slo_margin, e)) < 0 ||
        (rc = read_batching(at, m, e)) < 0)
        return rc;
    if (workload_find_model(w, name) >= 0)
        return json_fail(at, e, "is a second model of the name \"%s\"", name);
    m->name = arena_strdup(&w->arena, name);
    m->has_profile_file = file[0] != '\0';
    m->profile_file = !file[0] ? arena_printf(&w->arena, "what was measured of \"%s\"", name)
                      : file[0] == '/' || !folder[0]
                          ? arena_strdup(&w->arena, file)
                          : arena_printf(&w->arena, "%s/%s", folder, file);
    return m->name && m->profile_file ? 0 : json_no_memory(at, e);
}

static int read_models(struct workload *w, const struct json_at *at, const char *folder,
                       struct err *e)
{
    struct json_at list;
    size_t n;
    int rc;
    if ((rc = json_get(at, "models", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    if (n == 0 || n > WORKLOAD_MAX_MODELS)
        return json_fail(&list, e, "has %zu models, expected 1 to %d", n, WORKLOAD_MAX_MODELS);
    w->models = arena_alloc(&w->arena, n, sizeof *w->models);
    if (!w->models)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_model(w, &item, folder, &w->models[i], e)) < 0)
            return rc;
        w->n_models++;
    }
    return 0;
}

static int read_share_list(const struct json_at *at, struct workload_shares *s, struct err *e)
{
    size_t n;
    int rc = json_as_array(at, &n, e);
    if (rc < 0)
        return rc;
    if (n == 0 || n > WORKLOAD_MAX_SHARES)
        return json_fail(at, e, "has %zu shares, expected 1 to %d", n, WORKLOAD_MAX_SHARES);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(at, i);
        uint64_t v;
        if ((rc = json_as_u64(&item, &v, e)) < 0)
            return rc;
        if (v == 0 || v > WORKLOAD_MAX_SHARE || (i > 0 && (int)v <= s->shares[i - 1]))
            return json_fail(&item, e, "%llu: shares are whole numbers from 1 to %d, rising",
                             (unsigned long long)v, WORKLOAD_MAX_SHARE);
        s->shares[s->n_shares++] = (int)v;
    }
    return 0;
}

static int read_shares(struct workload *w, const struct json_at *at, struct err *e)
{
    struct json_at object;
    int rc;
    if (!json_find(at, "shares", &object))
        return 0;
    if ((rc = json_as_object(&object, e)) < 0)
        return rc;
    w->shares = arena_alloc(&w->arena, json_object_size(object.value) + 1, sizeof *w->shares);
    if (!w->shares)
        return json_no_memory(at, e);
    const char *kind;
    json_t *value;
    json_object_foreach(object.value, kind, value)
    {
        struct json_at item = {at->file, value, &object, kind, 0};
        struct workload_shares *s = &w->shares[w->n_shares];
        s->kind = arena_strdup(&w->arena, kind);
        if (!s->kind)
            return json_no_memory(at, e);
        if ((rc = read_share_list(&item, s, e)) < 0)
            return rc;
        w->n_shares++;
    }
    return 0;
}

static int read_numbers(struct workload *w, const struct json_at *at, struct err *e)
{
    uint64_t stages, pipelines;
    int rc;
    if ((rc = read_margin(at, 0, &w->slo_margin, e)) < 0 ||
        (rc = json_opt_number_min(at, "replan_margin", 0, 0, &w->replan_margin, e)) < 0 ||
        (rc = json_opt_u64(at, "max_stages", 2, &stages, e)) < 0 ||
        (rc = json_opt_u64(at, "pipelines_per_assignment", 0, &pipelines, e)) < 0 ||
        (rc = json_opt_bool(at, "share_devices_across_pipelines", false,
                            &w->share_devices_across_pipelines, e)) < 0)
        return rc;
    if (stages < 1 || stages > WORKLOAD_MAX_STAGES)
        return json_fail(at, e, "max_stages is %llu, expected 1 to %d", (unsigned long long)stages,
                         WORKLOAD_MAX_STAGES);
    if (pipelines > 64)
        return json_fail(at, e, "pipelines_per_assignment is %llu, expected 0 (any number) to 64",
                         (unsigned long long)pipelines);
    if (w->replan_margin > 100)
        return json_fail(at, e, "replan_margin is %g, expected 0 (never) to 100", w->replan_margin);
    w->max_stages = (int)stages;
    w->pipelines_per_assignment = (int)pipelines;
    return 0;
}

int workload_from_json(const struct json_at *at, const char *folder, struct workload *out,
                       struct err *e)
{
    struct workload w = {0};
    int rc = json_expect_format(at, "hp-workload/1", e);
    if (rc == 0 && (rc = read_numbers(&w, at, e)) == 0 &&
        (rc = read_models(&w, at, folder, e)) == 0)
        rc = read_shares(&w, at, e);
    if (rc < 0)
        arena_free(&w.arena);
    else
        *out = w;
    return rc;
}

/* Opens the profile of every model. */
static int profiles_load(struct workload *w, const char *file, struct err *e)
{
    for (int i = 0; i < w->n_models; i++) {
        struct workload_model *m = &w->models[i];
        if (!m->has_profile_file)
            return err_set(e, HP_EPARSE, "%s: $.models[%d] (\"%s\") has no key \"profile\"", file,
                           i, m->name);
        int rc = profile_load(m->profile_file, &m->profile, e);
        if (rc < 0)
            return rc;
        if (m->profile.shape != PROFILE_FIXED)
            return err_set(
                e, HP_EINVAL,
                "%s: is a profile by slice and prefix; a workload needs one by share and batch",
                m->profile_file);
    }
    return 0;
}

int workload_load(const char *file, struct workload *out, struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_load_at(file, &root, &at, e);
    if (rc < 0)
        return rc;
    struct workload w = {0};
    struct arena scratch = {0};
    const char *slash = strrchr(file, '/');
    const char *folder =
        slash ? arena_strndup(&scratch, file, (size_t)(slash - file) + (slash == file)) : "";
    rc = folder ? workload_from_json(&at, folder, &w, e) : json_no_memory(&at, e);
    arena_free(&scratch);
    json_decref(root);
    if (rc == 0 && (rc = profiles_load(&w, file, e)) < 0)
        workload_free(&w);
    if (rc == 0)
        *out = w;
    return rc;
}

void workload_free(struct workload *w)
{
    for (int i = 0; i < w->n_models; i++)
        profile_free(&w->models[i].profile);
    arena_free(&w->arena);
    *w = (struct workload){0};
}

struct workload_shares workload_shares_of(const struct workload *w, const char *kind)
{
    for (int i = 0; i < w->n_shares; i++)
        if (strcmp(w->shares[i].kind, kind) == 0)
            return w->shares[i];
    return (struct workload_shares){.kind = kind, .shares = {1}, .n_shares = 1};
}

int workload_find_model(const struct workload *w, const char *name)
{
    for (int i = 0; i < w->n_models; i++)
        if (strcmp(w->models[i].name, name) == 0)
            return i;
    return -1;
}
