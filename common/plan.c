#include "common/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "common/profile.h"

json_t *plan_envelope(const char *kind, const char *method, double solver_seconds)
{
    return json_pack("{s:s, s:s, s:[], s:{s:s, s:f}, s:[]}", "format", "hp-plan/1", "kind", kind,
                     "inputs", "solver", "method", method, "seconds", solver_seconds, "why");
}

int plan_add_input(json_t *plan, const char *file, struct err *e)
{
    char hex[DIGEST_SHA256_HEX];
    int rc = digest_file_sha256(file, hex, e);
    if (rc < 0)
        return rc;
    const char *slash = strrchr(file, '/');
    json_array_append_new(json_object_get(plan, "inputs"),
                          json_pack("{s:s, s:s}", "name", slash ? slash + 1 : file, "sha256", hex));
    return 0;
}

void plan_set_bound(json_t *plan, double bound, double value, double gap)
{
    json_t *solver = json_object_get(plan, "solver");
    if (isnan(gap))
        gap = bound > 0 ? (value - bound) / bound : 0;
    json_object_set_new(solver, "bound", json_real(bound));
    json_object_set_new(solver, "gap", json_real(gap));
}

void plan_add_why(json_t *plan, const char *candidate, double predicted, const char *reason)
{
    json_t *row = json_pack("{s:s}", "candidate", candidate);
    json_object_set_new(row, "predicted", isfinite(predicted) ? json_real(predicted) : json_null());
    json_object_set_new(row, "reason", json_string(reason));
    json_array_append_new(json_object_get(plan, "why"), row);
}

int plan_kind(const struct json_at *at, const char **kind, struct err *e)
{
    int rc = json_expect_format(at, "hp-plan/1", e);
    return rc == 0 ? json_get_string(at, "kind", kind, e) : rc;
}

int plan_kind_expect(const struct json_at *at, const char *expected, struct err *e)
{
    const char *kind;
    int rc = plan_kind(at, &kind, e);
    if (rc == 0 && strcmp(kind, expected) != 0)
        rc = json_fail(at, e, "is a plan of kind \"%s\", expected \"%s\"", kind, expected);
    return rc;
}

int plan_layers_from_json(const struct json_at *at, int expected_first, int *first, int *end,
                          struct err *e)
{
    struct json_at list;
    size_t n;
    uint64_t v[2] = {0};
    int rc;
    if ((rc = json_get(at, "layers", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    if (n != 2)
        return json_fail(&list, e, "has %zu values; it is a half-open range [first, end)", n);
    for (size_t i = 0; i < 2; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = json_as_u64(&item, &v[i], e)) < 0)
            return rc;
    }
    if (v[0] >= v[1] || v[1] > 1 << 20)
        return json_fail(&list, e, "[%llu, %llu) is no range of layers", (unsigned long long)v[0],
                         (unsigned long long)v[1]);
    if (v[0] != (uint64_t)expected_first)
        return json_fail(&list, e, "starts at layer %llu; the stage before it ends at %d",
                         (unsigned long long)v[0], expected_first);
    *first = (int)v[0];
    *end = (int)v[1];
    return 0;
}

static int read_stage(const struct json_at *at, struct arena *arena, int expected_first,
                      struct plan_stage *s, struct err *e)
{
    struct json_at list;
    const char *device;
    int rc;
    if ((rc = json_opt_string(at, "device", NULL, &device, e)) < 0 ||
        (rc = plan_layers_from_json(at, expected_first, &s->first_layer, &s->end_layer, e)) < 0 ||
        (rc = json_opt_number_min(at, "compute_s", 0, 0, &s->compute_s, e)) < 0 ||
        (rc = json_opt_number_min(at, "memory_bytes", 0, 0, &s->memory_bytes, e)) < 0)
        return rc;
    if (json_find(at, "devices", &list)) {
        size_t n;
        if ((rc = json_as_array(&list, &n, e)) < 0)
            return rc;
        s->devices = arena_alloc(arena, n + 1, sizeof *s->devices);
        for (size_t i = 0; s->devices && i < n; i++) {
            struct json_at item = json_item(&list, i);
            const char *id;
            if ((rc = json_as_string(&item, &id, e)) < 0)
                return rc;
            s->devices[s->n_devices++] = arena_strdup(arena, id);
        }
        if (!device && s->n_devices > 0)
            device = s->devices[0];
    }
    if (!device)
        return json_fail(at, e, "has no \"device\"");
    s->device = arena_strdup(arena, device);
    return s->device ? 0 : json_no_memory(at, e);
}

static int read_slices(const struct json_at *at, struct arena *arena, struct plan_pipeline *p,
                       struct err *e)
{
    struct json_at list;
    size_t n;
    int rc;
    if (!json_find(at, "slices", &list))
        return 0;
    if ((rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    p->slices = arena_alloc(arena, n + 1, sizeof *p->slices);
    if (!p->slices)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        uint64_t tokens;
        if ((rc = json_as_u64(&item, &tokens, e)) < 0)
            return rc;
        if (tokens == 0 || tokens > 1 << 30)
            return json_fail(&item, e, "%llu is no number of tokens", (unsigned long long)tokens);
        p->slices[p->n_slices++] = (int)tokens;
    }
    return 0;
}

int plan_pipeline_from_json(const struct json_at *at, struct arena *arena,
                            struct plan_pipeline *out, struct err *e)
{
    struct plan_pipeline p = {0};
    struct json_at list, predicted;
    size_t n;
    int rc;
    if ((rc = plan_kind_expect(at, "pipeline", e)) < 0 ||
        (rc = json_get(at, "stages", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    if (n == 0)
        return json_fail(&list, e, "is empty: a pipeline has at least one stage");
    p.stages = arena_alloc(arena, n, sizeof *p.stages);
    if (!p.stages)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_stage(&item, arena, i ? p.stages[i - 1].end_layer : 0, &p.stages[i], e)) < 0)
            return rc;
        p.n_stages++;
    }
    uint64_t groups = 0;
    if (json_find(at, "expert_groups", &list) && (rc = json_as_u64(&list, &groups, e)) < 0)
        return rc;
    if (groups > PROFILE_EXPERTS_MAX)
        return json_fail(&list, e, "%llu is no number of groups: 1 to %d",
                         (unsigned long long)groups, PROFILE_EXPERTS_MAX);
    p.expert_groups = groups > 1 ? (unsigned)groups : 0;
    if ((rc = read_slices(at, arena, &p, e)) < 0 ||
        (rc = json_opt_number_min(at, "micro_batches", 0, 0, &p.micro_batches, e)) < 0)
        return rc;
    if (json_find(at, "predicted", &predicted) &&
        (rc = json_opt_number_min(&predicted, "makespan_s", 0, 0, &p.makespan_s, e)) < 0)
        return rc;
    *out = p;
    return 0;
}

int plan_pipeline_to_json(const struct plan_pipeline *p, json_t *plan)
{
    json_t *stages = json_array(), *slices = json_array();
    for (int i = 0; i < p->n_stages; i++) {
        const struct plan_stage *s = &p->stages[i];
        json_t *row =
            json_pack("{s:s, s:[i,i], s:f, s:f}", "device", s->device, "layers", s->first_layer,
                      s->end_layer, "compute_s", s->compute_s, "memory_bytes", s->memory_bytes);
        if (s->n_devices > 0) {
            json_t *devices = json_array();
            for (int k = 0; k < s->n_devices; k++)
                json_array_append_new(devices, json_string(s->devices[k]));
            json_object_set_new(row, "devices", devices);
        }
        json_array_append_new(stages, row);
    }
    for (int i = 0; i < p->n_slices; i++)
        json_array_append_new(slices, json_integer(p->slices[i]));
    json_object_set_new(plan, "stages", stages);
    json_object_set_new(plan, "slices", slices);
    if (p->expert_groups > 1)
        json_object_set_new(plan, "expert_groups", json_integer(p->expert_groups));
    if (p->micro_batches > 0)
        json_object_set_new(plan, "micro_batches", json_real(p->micro_batches));
    json_t *predicted = json_object_get(plan, "predicted");
    if (!predicted)
        predicted = json_member_add(plan, "predicted", json_object());
    return json_object_set_new(predicted, "makespan_s", json_real(p->makespan_s)) == 0 ? 0
                                                                                       : HP_ENOMEM;
}
