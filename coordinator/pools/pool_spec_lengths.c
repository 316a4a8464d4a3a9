#include "coordinator/pools/pool_spec_lengths.h"

#include <math.h>
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

/* ---- profiles ---- */

static bool table_reduce(struct profile_table *t, int unit)
{
    int at = -1;
    for (int j = 0; j < t->n_y; j++)
        at = t->y[j] == unit ? j : at;
    for (int i = 0; i < t->n_x; i++)
        t->seconds[i] = at < 0 ? NAN : t->seconds[i * t->n_y + at];
    if (t->n_y > 0)
        t->y[0] = t->n_y = 1;
    return at >= 0;
}

bool pool_profile_in_units(struct profile *p, int unit)
{
    bool known = false;
    for (int i = 0; i < p->n_kinds * p->n_classes; i++)
        known = table_reduce(&p->tables[i], unit) || known;
    for (int i = 0; i < p->n_layers; i++) {
        p->layers[i].output_bytes *= unit;
        p->layers[i].activation_bytes *= unit;
    }
    return known;
}

/* A shorter length's, in the blocks of the longest. */
static int length_profile_read(const struct json_at *at, const struct pool_model *m,
                               struct profile *out, struct err *e)
{
    int rc = profile_from_json(at, out, e);
    if (rc < 0)
        return rc;
    if (out->shape != PROFILE_FIXED || out->n_layers != m->n_blocks)
        return json_fail(at, e, "other blocks than those of the longest");
    if (!m->batches && !pool_profile_in_units(out, m->unit))
        return json_fail(at, e, "has no times of batches of %d, and the model takes these alone",
                         m->unit);
    return 0;
}

int pool_length_profiles_read(const struct json_at *profile, struct pool_model *m,
                              struct profile *longest, struct err *e)
{
    struct json_at lengths, one;
    char key[24];
    uint64_t said;
    int rc = m->n_lengths ? json_opt_u64(profile, "length", 0, &said, e) : 0;
    if (rc == 0 && m->n_lengths && said && (int64_t)said != m->lengths[0])
        return json_fail(profile, e, "is of length %llu, and the longest that is served is %lld",
                         (unsigned long long)said, (long long)m->lengths[0]);
    if (rc < 0 || m->n_lengths < 2)
        return rc;
    rc = json_get(profile, "lengths", &lengths, e);
    for (int k = 1; rc == 0 && k < m->n_lengths; k++) {
        snprintf(key, sizeof key, "%lld", (long long)m->lengths[k]);
        rc = json_get(&lengths, key, &one, e);
        rc = rc < 0 ? rc : length_profile_read(&one, m, &m->profiles[k], e);
        if (rc < 0)
            break;
        profile_intersect(longest, &m->profiles[k]);
        int block = profile_layer_untimed(longest);
        if (block >= 0)
            rc = json_fail(&one, e,
                           "on no kind of device block %d has a time here for a batch and part of "
                           "a device for which longer ones have one",
                           block);
    }
    return rc < 0 ? err_hint(e, "`hpctl profile model` with --lengths measures all of them in the "
                                "same blocks, batches and parts of devices")
                  : 0;
}
