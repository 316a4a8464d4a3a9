#include "common/profile.h"

#include <math.h>
#include <string.h>

static int find_word(const char *const *words, int n, const char *word)
{
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

static int class_of(struct profile *p, const char *name)
{
    int i = find_word(p->classes, p->n_classes, name);
    if (i >= 0)
        return i;
    p->classes[p->n_classes] = arena_strdup(&p->arena, name);
    return p->n_classes++;
}

/* Optional, as the agents' profiler writes it: {"count": 8, "used": 2, "bytes": 1e9}. */
static int read_experts(const struct json_at *at, struct profile_layer *l, struct err *e)
{
    struct json_at x;
    int rc;
    if (!json_find(at, "experts", &x))
        return 0;
    if ((rc = json_as_object(&x, e)) < 0 ||
        (rc = json_get_number_min(&x, "count", 1, &l->experts, e)) < 0 ||
        (rc = json_get_number_min(&x, "used", 1, &l->experts_used, e)) < 0 ||
        (rc = json_get_number_min(&x, "bytes", 0, &l->expert_bytes, e)) < 0)
        return rc;
    if (l->experts > PROFILE_EXPERTS_MAX || l->experts != floor(l->experts))
        return json_fail(&x, e, "has %g experts, expected 1 to %d", l->experts,
                         PROFILE_EXPERTS_MAX);
    if (l->experts_used > l->experts)
        return json_fail(&x, e, "has %g experts, of which a token takes %g", l->experts,
                         l->experts_used);
    if (l->expert_bytes > l->param_bytes)
        return json_fail(&x, e, "has %.0f bytes, more than the layer's %.0f", l->expert_bytes,
                         l->param_bytes);
    return 0;
}

static int read_layer(struct profile *p, const struct json_at *at, struct profile_layer *l,
                      struct err *e)
{
    const char *name, *class_name;
    struct json_at m;
    int rc;
    if ((rc = json_opt_string(at, "name", "", &name, e)) < 0 ||
        (rc = json_get_string(at, "class", &class_name, e)) < 0 ||
        (rc = json_opt_number_min(at, "param_bytes", 0, 0, &l->param_bytes, e)) < 0 ||
        (rc = json_opt_number_min(at, "state_bytes_per_token", 0, 0, &l->state_bytes_per_token,
                                  e)) < 0 ||
        (rc = json_opt_number_min(at, "activation_bytes_per_token", 0, 0,
                                  &l->activation_bytes_per_token, e)) < 0 ||
        (rc = read_experts(at, l, e)) < 0)
        return rc;
    if (json_find(at, "output_bytes", &m)) {
        p->shape = PROFILE_FIXED;
        rc = json_as_number_min(&m, 0, &l->output_bytes, e);
        rc = rc < 0 ? rc
                    : json_opt_number_min(at, "activation_bytes", 0, 0, &l->activation_bytes, e);
    } else {
        rc = json_get_number_min(at, "output_bytes_per_token", 0, &l->output_bytes_per_token, e);
    }
    l->name = arena_strdup(&p->arena, name);
    l->class_index = class_of(p, class_name);
    return rc == 0 && p->arena.out_of_memory ? json_no_memory(at, e) : rc;
}

static int read_layers(struct profile *p, const struct json_at *at, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc;
    if ((rc = json_get(at, "layers", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    if (n == 0)
        return json_fail(&list, e, "is empty: a model has at least one layer");
    p->layers = arena_alloc(&p->arena, n, sizeof *p->layers);
    p->classes = arena_alloc(&p->arena, n, sizeof *p->classes);
    if (!p->layers || !p->classes)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_layer(p, &item, &p->layers[i], e)) < 0)
            return rc;
        p->n_layers++;
    }
    return 0;
}

static int read_axis(struct profile *p, const struct json_at *at, const char *key, double **out,
                     int *n_out, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc;
    if ((rc = json_get(at, key, &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    if (n == 0 || n > 1 << 16)
        return json_fail(&list, e, "has %zu points, expected 1 to 65536", n);
    double *axis = arena_alloc(&p->arena, n, sizeof *axis);
    if (!axis)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = json_as_number_min(&item, 0, &axis[i], e)) < 0)
            return rc;
        if (i > 0 && axis[i] <= axis[i - 1])
            return json_fail(&item, e,
                             "%g does not rise above %g: an axis is sorted, without repeats",
                             axis[i], axis[i - 1]);
    }
    *out = axis;
    *n_out = (int)n;
    return 0;
}

static int read_seconds(struct profile *p, const struct json_at *at, struct profile_table *t,
                        struct err *e)
{
    struct json_at list;
    size_t rows, columns;
    int rc;
    if ((rc = json_get(at, "seconds", &list, e)) < 0 || (rc = json_as_array(&list, &rows, e)) < 0)
        return rc;
    if (rows != (size_t)t->n_x)
        return json_fail(&list, e, "has %zu rows, its axis has %d points", rows, t->n_x);
    t->seconds = arena_alloc(&p->arena, (size_t)t->n_x * (size_t)t->n_y, sizeof *t->seconds);
    if (!t->seconds)
        return json_no_memory(at, e);
    for (size_t i = 0; i < rows; i++) {
        struct json_at row = json_item(&list, i);
        if ((rc = json_as_array(&row, &columns, e)) < 0)
            return rc;
        if (columns != (size_t)t->n_y)
            return json_fail(&row, e, "has %zu values, its axis has %d points", columns, t->n_y);
        for (size_t j = 0; j < columns; j++) {
            struct json_at item = json_item(&row, j);
            double *v = &t->seconds[i * columns + j];
            if (json_is_null(item.value)) {
                if (p->shape == PROFILE_SEQUENCE)
                    return json_fail(
                        &item, e,
                        "is a hole: every point of a sequence model's table needs a time");
                *v = NAN;
                continue;
            }
            if ((rc = json_as_number(&item, v, e)) < 0)
                return rc;
            if (*v <= 0)
                return json_fail(&item, e, "%g is not a time: it must be above 0", *v);
        }
    }
    return 0;
}

/* Optional, as the agents' profiler writes it. */
static int read_step(const struct json_at *at, struct profile_table *t, struct err *e)
{
    double step;
    int rc = json_opt_number_min(at, "step", 0, 0, &step, e);
    if (rc == 0 && step > PROFILE_STEP_MOST)
        return json_fail(at, e, "steps of %g tokens are too long: at most %d", step,
                         PROFILE_STEP_MOST);
    t->step = rc == 0 ? (int)step : 0;
    return rc;
}

static int read_table(struct profile *p, const struct json_at *at, struct profile_table *t,
                      struct err *e)
{
    bool fixed = p->shape == PROFILE_FIXED;
    int rc;
    if ((rc = read_axis(p, at, fixed ? "share" : "slice", &t->x, &t->n_x, e)) < 0 ||
        (rc = read_axis(p, at, fixed ? "batch" : "prefix", &t->y, &t->n_y, e)) < 0 ||
        (rc = read_step(at, t, e)) < 0)
        return rc;
    return read_seconds(p, at, t, e);
}

static int read_latency(struct profile *p, const struct json_at *at, struct err *e)
{
    struct json_at latency;
    int rc;
    if ((rc = json_get(at, "latency", &latency, e)) < 0 || (rc = json_as_object(&latency, e)) < 0)
        return rc;
    size_t n = json_object_size(latency.value);
    p->kinds = arena_alloc(&p->arena, n + 1, sizeof *p->kinds);
    p->tables = arena_alloc(&p->arena, (n + 1) * (size_t)p->n_classes, sizeof *p->tables);
    if (!p->kinds || !p->tables)
        return json_no_memory(at, e);
    const char *kind;
    json_t *value;
    json_object_foreach(latency.value, kind, value)
    {
        struct json_at by_class = {at->file, value, &latency, kind, 0};
        if ((rc = json_as_object(&by_class, e)) < 0)
            return rc;
        if (!(p->kinds[p->n_kinds] = arena_strdup(&p->arena, kind)))
            return json_no_memory(at, e);
        for (int c = 0; c < p->n_classes; c++) {
            struct json_at table;
            if (!json_find(&by_class, p->classes[c], &table))
                return json_fail(&by_class, e, "has no \"%s\", which layers of the model are",
                                 p->classes[c]);
            if ((rc = read_table(p, &table, &p->tables[p->n_kinds * p->n_classes + c], e)) < 0)
                return rc;
        }
        p->n_kinds++;
    }
    return 0;
}

/* Optional, as the agents' profiler writes it: {"useful_slice": {"KIND": {"tokens": 64,
 * "within": 1.25}}}. */
static int read_useful_slice(struct profile *p, const struct json_at *at, struct err *e)
{
    struct json_at useful;
    const char *kind;
    json_t *value;
    if (!json_find(at, "useful_slice", &useful))
        return 0;
    int rc = json_as_object(&useful, e);
    if (rc < 0)
        return rc;
    json_object_foreach(useful.value, kind, value)
    {
        struct json_at own = {at->file, value, &useful, kind, 0};
        double tokens;
        if ((rc = json_as_object(&own, e)) < 0 ||
            (rc = json_get_number_min(&own, "tokens", 1, &tokens, e)) < 0)
            return rc;
        if (p->useful_slice_tokens <= 0 || tokens < p->useful_slice_tokens)
            p->useful_slice_tokens = tokens;
    }
    return 0;
}

int profile_from_json(const struct json_at *at, struct profile *out, struct err *e)
{
    struct profile p = {0};
    const char *model;
    int rc = json_expect_format(at, "hp-profile/1", e);
    if (rc == 0 && (rc = json_opt_string(at, "model", "", &model, e)) == 0 &&
        (rc = json_opt_number_min(at, "batch", 1e-9, 1, &p.batch, e)) == 0) {
        p.model = arena_strdup(&p.arena, model);
        if ((rc = read_layers(&p, at, e)) == 0 && (rc = read_latency(&p, at, e)) == 0)
            rc = read_useful_slice(&p, at, e);
    }
    if (rc < 0)
        arena_free(&p.arena);
    else
        *out = p;
    return rc;
}

int profile_load(const char *file, struct profile *out, struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_load_at(file, &root, &at, e);
    if (rc < 0)
        return rc;
    rc = profile_from_json(&at, out, e);
    json_decref(root);
    return rc;
}

void profile_free(struct profile *p)
{
    arena_free(&p->arena);
    *p = (struct profile){0};
}

int profile_find_kind(const struct profile *p, const char *kind)
{
    return find_word(p->kinds, p->n_kinds, kind);
}

/* The grid interval that serves v (the outermost ones serve what lies beyond), and the weight of
 * its right end. */
static int axis_interval(const double *axis, int n, double v, double *weight)
{
    if (n == 1) {
        *weight = 0;
        return 0;
    }
    int lo = 0, hi = n - 2;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (axis[mid] <= v)
            lo = mid;
        else
            hi = mid - 1;
    }
    *weight = (v - axis[lo]) / (axis[lo + 1] - axis[lo]);
    return lo;
}

double profile_table_at(const struct profile_table *t, double x, double y)
{
    if (t->n_x == 0)
        return NAN;
    double wx, wy;
    int i = axis_interval(t->x, t->n_x, x, &wx), j = axis_interval(t->y, t->n_y, y, &wy);
    const double *row = t->seconds + (size_t)i * (size_t)t->n_y + j;
    double v = 0;
    for (int di = 0; di < 2; di++)
        for (int dj = 0; dj < 2; dj++) {
            double w = (di ? wx : 1 - wx) * (dj ? wy : 1 - wy);
            if (w != 0)
                v += w * row[di * t->n_y + dj];
        }
    return v < 0 ? 0 : v;
}

double profile_table_exact(const struct profile_table *t, double x, double y)
{
    for (int i = 0; i < t->n_x; i++)
        for (int j = 0; j < t->n_y; j++)
            if (t->x[i] == x && t->y[j] == y)
                return t->seconds[i * t->n_y + j];
    return NAN;
}

/* ---- profiles of one model ---- */

/* `other` NULL: it has no time at all. */
static void table_intersect(struct profile_table *t, const struct profile_table *other)
{
    for (int i = 0; i < t->n_x; i++)
        for (int j = 0; j < t->n_y; j++)
            if (!other || isnan(profile_table_exact(other, t->x[i], t->y[j])))
                t->seconds[i * t->n_y + j] = NAN;
}

void profile_intersect(struct profile *p, const struct profile *other)
{
    for (int k = 0; k < p->n_kinds; k++) {
        int theirs = profile_find_kind(other, p->kinds[k]);
        for (int l = 0; l < p->n_layers; l++)
            table_intersect(
                &p->tables[k * p->n_classes + p->layers[l].class_index],
                theirs < 0 ? NULL : profile_table_of(other, theirs, other->layers[l].class_index));
    }
}

static bool table_has_times(const struct profile_table *t)
{
    for (int i = 0; i < t->n_x * t->n_y; i++)
        if (!isnan(t->seconds[i]))
            return true;
    return false;
}

int profile_layer_untimed(const struct profile *p)
{
    for (int l = 0; l < p->n_layers; l++) {
        bool timed = false;
        for (int k = 0; k < p->n_kinds && !timed; k++)
            timed = table_has_times(profile_table_of(p, k, p->layers[l].class_index));
        if (!timed)
            return l;
    }
    return -1;
}
