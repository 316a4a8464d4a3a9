#include "common/profile_parts.h"

#include <string.h>

struct profile_layer profile_part_layer(const struct profile_layer *whole,
                                        const struct profile_part *part)
{
    struct profile_layer l = *whole;
    l.param_bytes *= part->share;
    l.state_bytes_per_token *= part->share;
    l.output_bytes_per_token *= part->crosses;
    return l;
}

const char *profile_part_class(struct arena *arena, const char *whole, double share)
{
    return share < 1 ? arena_printf(arena, "%s*%g", whole, share) : arena_strdup(arena, whole);
}

/* ---- which parts ---- */

int profile_experts(const struct profile *p)
{
    double most = 0;
    for (int i = 0; i < p->n_layers; i++)
        most = p->layers[i].experts > most ? p->layers[i].experts : most;
    return (int)most;
}

static int layer_groups(const struct profile_layer *l, int groups)
{
    int most = (int)l->experts < groups ? (int)l->experts : groups;
    return most < 1 ? 1 : most;
}

/* As the graph cuts them (graph_expert_group_begin). */
static struct profile_part group_part(const struct profile_layer *l, int layer, int group, int n)
{
    long long all = (long long)l->experts, first = all * group / n, end = all * (group + 1) / n;
    double own = l->expert_bytes * (double)(end - first) / l->experts;
    if (group == 0)
        own += l->param_bytes - l->expert_bytes;
    /* A row more than the residual, and of each expert its number and its weight. */
    double rows = l->output_bytes_per_token > 0
                      ? 2 + 2 * sizeof(float) * l->experts_used / l->output_bytes_per_token
                      : 2;
    return (struct profile_part){.layer = layer,
                                 .share = l->param_bytes > 0 ? own / l->param_bytes : 1.0 / n,
                                 .crosses = group + 1 < n ? rows : 1};
}

int profile_parts_list(const struct profile *p, int groups, struct arena *arena,
                       struct profile_part **out)
{
    int n = 0;
    for (int i = 0; i < p->n_layers; i++)
        n += layer_groups(&p->layers[i], groups);
    struct profile_part *parts = arena_alloc(arena, (size_t)n + 1, sizeof *parts);
    if (!parts)
        return HP_ENOMEM;
    *out = parts;
    for (int i = 0; i < p->n_layers; i++) {
        int of_layer = layer_groups(&p->layers[i], groups);
        for (int g = 0; g < of_layer; g++)
            *parts++ = of_layer > 1 ? group_part(&p->layers[i], i, g, of_layer)
                                    : (struct profile_part){i, NULL, 1, 1};
    }
    return n;
}

/* ---- the profile of parts ---- */

/* A class of parts: so much of one of the profile's. */
struct part_class {
    int of;
    double share;
};

/* Which one of `classes`, made where there is none yet; -1: there is no memory. */
static int class_find(struct profile *out, struct part_class *classes, const struct profile *p,
                      int of, double share)
{
    int k = 0;
    while (k < out->n_classes && (classes[k].of != of || classes[k].share != share))
        k++;
    if (k < out->n_classes)
        return k;
    classes[k] = (struct part_class){of, share};
    out->classes[k] = profile_part_class(&out->arena, p->classes[of], share);
    return out->classes[k] ? out->n_classes++ : -1;
}

static bool table_share(struct arena *arena, const struct profile_table *t, double share,
                        struct profile_table *out)
{
    size_t n = (size_t)t->n_x * (size_t)t->n_y;
    if (t->n_x == 0)
        return true;
    *out =
        (struct profile_table){.x = arena_memdup(arena, t->x, (size_t)t->n_x * sizeof *t->x),
                               .y = arena_memdup(arena, t->y, (size_t)t->n_y * sizeof *t->y),
                               .seconds = arena_memdup(arena, t->seconds, n * sizeof *t->seconds),
                               .n_x = t->n_x,
                               .n_y = t->n_y,
                               .step = t->step};
    for (size_t i = 0; out->seconds && i < n; i++)
        out->seconds[i] *= share;
    return out->x && out->y && out->seconds;
}

static bool tables_fill(const struct profile *p, const struct part_class *classes,
                        struct profile *out)
{
    size_t n = (size_t)p->n_kinds * (size_t)out->n_classes;
    out->kinds = arena_alloc(&out->arena, (size_t)p->n_kinds + 1, sizeof *out->kinds);
    out->tables = arena_alloc(&out->arena, n + 1, sizeof *out->tables);
    for (int k = 0; out->kinds && out->tables && k < p->n_kinds; k++) {
        out->kinds[k] = arena_strdup(&out->arena, p->kinds[k]);
        for (int c = 0; c < out->n_classes; c++)
            if (!table_share(&out->arena, profile_table_of(p, k, classes[c].of), classes[c].share,
                             &out->tables[k * out->n_classes + c]))
                return false;
        if (!out->kinds[k])
            return false;
        out->n_kinds++;
    }
    return out->kinds && out->tables;
}

static bool parts_fill(const struct profile *p, const struct profile_part *parts, int n,
                       struct part_class *classes, struct profile *out)
{
    for (int i = 0, group = 0; i < n; i++) {
        struct profile_layer *l = &out->layers[i];
        const struct profile_layer *whole = &p->layers[parts[i].layer];
        bool last = i + 1 == n || parts[i + 1].layer != parts[i].layer;
        group = i > 0 && parts[i - 1].layer == parts[i].layer ? group + 1 : 0;
        *l = profile_part_layer(whole, &parts[i]);
        l->name = last && group == 0 ? arena_strdup(&out->arena, whole->name)
                                     : arena_printf(&out->arena, "%s.%d", whole->name, group);
        l->class_index = class_find(out, classes, p, whole->class_index, parts[i].share);
        if (!l->name || l->class_index < 0)
            return false;
        out->n_layers++;
    }
    return true;
}

int profile_divide(const struct profile *p, const struct profile_part *parts, int n,
                   struct profile *out, struct err *e)
{
    struct profile d = {
        .shape = p->shape, .batch = p->batch, .useful_slice_tokens = p->useful_slice_tokens};
    for (int i = 0; i < n; i++)
        if (parts[i].layer < 0 || parts[i].layer >= p->n_layers)
            return err_set(e, HP_EINVAL, "the model has a layer %d, the profile ends at %d",
                           parts[i].layer, p->n_layers - 1);
    struct part_class *classes = arena_alloc(&d.arena, (size_t)n + 1, sizeof *classes);
    d.model = arena_strdup(&d.arena, p->model);
    d.layers = arena_alloc(&d.arena, (size_t)n + 1, sizeof *d.layers);
    d.classes = arena_alloc(&d.arena, (size_t)n + 1, sizeof *d.classes);
    if (!classes || !d.model || !d.layers || !d.classes || !parts_fill(p, parts, n, classes, &d) ||
        !tables_fill(p, classes, &d)) {
        profile_free(&d);
        return err_set(e, HP_ENOMEM, "no memory for a profile of %d layers", n);
    }
    *out = d;
    return 0;
}
