#include "coordinator/pools/pool_spec_lengths.h"

#include <stdio.h>

#include "common/json.h"

static int axis_read(const struct json_at *tensor, const struct infer_tensor *t, int *out,
                     struct err *e)
{
    struct json_at at;
    uint64_t axis;
    *out = -1;
    if (!json_find(tensor, "length_axis", &at))
        return 0;
    int rc = json_as_u64(&at, &axis, e);
    if (rc == 0 && axis >= (uint64_t)(t->n_dims > 0 ? t->n_dims : 0))
        rc = json_fail(&at, e, "the tensor has %d dimensions", t->n_dims);
    if (rc == 0 && t->dims[axis] >= 0)
        rc = json_fail(&at, e, "dimension %d is the length, and has a size", (int)axis);
    *out = rc == 0 ? (int)axis : -1;
    return rc;
}

static int axes_read(const struct json_at *at, const char *key, const struct infer_tensor *t, int n,
                     struct arena *arena, const int **out, struct err *e)
{
    struct json_at list;
    int rc = json_get(at, key, &list, e), *axes = arena_alloc(arena, (size_t)n + 1, sizeof *axes);
    if (rc == 0 && !axes)
        return json_no_memory(at, e);
    for (int i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, (size_t)i);
        rc = axis_read(&item, &t[i], &axes[i], e);
    }
    *out = axes;
    return rc;
}

/* The free dimensions of each length: those of all, and the length under all its names. */
static int length_dims_make(const struct json_at *at, struct arena *arena, struct pool_model *m,
                            struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = json_get(at, "length_symbols", &list, e);
    rc = rc < 0 ? rc : json_as_array(&list, &n, e);
    if (rc < 0)
        return rc;
    size_t each = (size_t)m->n_dims + n;
    if (each * (size_t)m->n_lengths > MESSAGE_MAX_DIMS)
        return json_fail(&list, e, "%d lengths of %zu dimensions; at most %d are taken",
                         m->n_lengths, each, MESSAGE_MAX_DIMS);
    struct message_dim *out = arena_alloc(arena, each * (size_t)m->n_lengths + 1, sizeof *out);
    if (!out)
        return json_no_memory(at, e);
    for (int k = 0; rc == 0 && k < m->n_lengths; k++) {
        struct message_dim *own = out + (size_t)k * each;
        for (int i = 0; i < m->n_dims; i++)
            own[i] = m->dims[i];
        for (size_t i = 0; rc == 0 && i < n; i++) {
            struct json_at item = json_item(&list, i);
            own[(size_t)m->n_dims + i].size = (uint64_t)m->lengths[k];
            rc = json_as_string(&item, &own[(size_t)m->n_dims + i].symbol, e);
        }
    }
    m->dims = out;
    m->n_dims = (int)each;
    return rc;
}

/* Without lengths no input may leave one free. */
static int lengths_missing(const struct json_at *at, const struct pool_model *m, struct err *e)
{
    for (int i = 0; i < m->facts.n_inputs; i++)
        for (int d = 1; d < m->facts.inputs[i].n_dims; d++)
            if (m->facts.inputs[i].dims[d] < 0)
                return json_fail(at, e, "input \"%s\" has a length, and no lengths are named",
                                 m->facts.inputs[i].name);
    return 0;
}

int pool_lengths_read(const struct json_at *at, struct arena *arena, struct pool_model *m,
                      struct err *e)
{
    struct json_at list;
    size_t n = 0;
    if (!json_find(at, "lengths", &list))
        return lengths_missing(at, m, e);
    int rc = json_as_array(&list, &n, e);
    rc = rc < 0 ? rc : json_opt_string(at, "mask", "", &m->mask, e);
    if (rc == 0 && (n == 0 || n > MESSAGE_MAX_SIZES))
        rc = json_fail(&list, e, "%zu lengths; 1 to %d are served", n, MESSAGE_MAX_SIZES);
    if (rc < 0)
        return rc;
    int64_t *lengths = arena_alloc(arena, n, sizeof *lengths);
    m->profiles = arena_alloc(arena, n, sizeof *m->profiles);
    if (!lengths || !m->profiles)
        return json_no_memory(&list, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, i);
        uint64_t v;
        rc = json_as_u64(&item, &v, e);
        if (rc == 0 && (v == 0 || v > INT32_MAX || (i > 0 && (int64_t)v >= lengths[i - 1])))
            rc = json_fail(&item, e, "lengths are above 0, the longest first");
        lengths[i] = rc == 0 ? (int64_t)v : 0;
    }
    m->lengths = lengths;
    m->n_lengths = rc == 0 ? (int)n : 0;
    rc = rc < 0 ? rc
                : axes_read(at, "inputs", m->facts.inputs, m->facts.n_inputs, arena, &m->input_axes,
                            e);
    rc = rc < 0 ? rc
                : axes_read(at, "outputs", m->facts.outputs, m->facts.n_outputs, arena,
                            &m->output_axes, e);
    return rc < 0 ? rc : length_dims_make(at, arena, m, e);
}

int pool_length_profiles_read(const struct json_at *profile, struct pool_model *m, struct err *e)
{
    struct json_at lengths, one;
    char key[24];
    uint64_t longest;
    int rc = m->n_lengths ? json_opt_u64(profile, "length", 0, &longest, e) : 0;
    if (rc == 0 && m->n_lengths && longest && (int64_t)longest != m->lengths[0])
        return json_fail(profile, e, "is of length %llu, and the longest that is served is %lld",
                         (unsigned long long)longest, (long long)m->lengths[0]);
    if (rc < 0 || m->n_lengths < 2)
        return rc;
    rc = json_get(profile, "lengths", &lengths, e);
    for (int k = 1; rc == 0 && k < m->n_lengths; k++) {
        snprintf(key, sizeof key, "%lld", (long long)m->lengths[k]);
        rc = json_get(&lengths, key, &one, e);
        rc = rc < 0 ? rc : profile_from_json(&one, &m->profiles[k], e);
        if (rc == 0 &&
            (m->profiles[k].shape != PROFILE_FIXED || m->profiles[k].n_layers != m->n_blocks))
            rc = json_fail(&one, e, "other blocks than those of the longest");
    }
    return rc < 0 ? err_hint(e, "`hpctl profile model` with --lengths measures all of them in the "
                                "same blocks")
                  : 0;
}
