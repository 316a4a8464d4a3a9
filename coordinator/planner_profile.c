#include "coordinator/planner_profile.h"

#include <math.h>
#include <string.h>

#include "common/experts.h"
#include "coordinator/model_slots.h"
#include "coordinator/paces.h"
#include "coordinator/profile_check.h"
#include "coordinator/profiles.h"

/* What an unmeasured device is taken for; a device may say better in its node ("flops_per_s",
 * "memory_bytes_per_s"). */
#define GUESSED_FLOPS_PER_S 2e10
#define GUESSED_MEMORY_BYTES_PER_S 1e10
#define GUESSED_LAUNCH_S 2e-5

enum { GUESSED_SLICES = 6, GUESSED_PREFIXES = 2 };

static const struct measured_profile *measured_of(const struct coord *c, const struct deployment *d,
                                                  const struct member *m, int device)
{
    const struct kept_profile *p =
        profiles_find(c, d->model->id, member_kind(m, device), deployment_spec_compute(&d->spec));
    return p ? &p->measured : NULL;
}

/* ---- bytes ---- */

static int whole_layers(const struct model_facts *f)
{
    return f->parts && f->n_layers ? f->parts[f->n_layers - 1].layer + 1 : f->n_layers;
}

/* The profile that paced members run by: its tables say a batch, and its layers stand where those
 * of the whole model do. NULL without one. */
static const struct measured_profile *paced_profile(const struct coord *c,
                                                    const struct deployment *d)
{
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        const struct measured_profile *p =
            member_present(m) && member_paced_as(m)[0] ? measured_of(c, d, m, 0) : NULL;
        if (p && p->paced && p->layers.n_layers == whole_layers(&d->model->facts))
            return p;
    }
    return NULL;
}

static struct profile_layer paced_layer(const struct deployment *d,
                                        const struct measured_profile *paced, int layer)
{
    const struct profile_part *part = d->model->facts.parts ? &d->model->facts.parts[layer] : NULL;
    return part ? profile_part_layer(&paced->layers.layers[part->layer], part)
                : paced->layers.layers[layer];
}

double planner_stands_for(const struct coord *c, const struct deployment *d)
{
    const struct measured_profile *p = paced_profile(c, d);
    double batch = p ? p->layers.batch : 0;
    return batch <= 0 ? 1 : d->spec.micro_batches > 0 ? batch / d->spec.micro_batches : batch;
}

double planner_resident_bytes(const struct coord *c, const struct deployment *d, int layer)
{
    const struct layer_facts *l = &d->model->facts.layers[layer];
    double most = 0;
    /* What agents measured that are not here binds nobody. */
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        for (int k = 0; member_present(m) && k < member_device_count(m); k++) {
            const struct measured_profile *p = measured_of(c, d, m, k);
            if (p)
                most = fmax(most, profile_resident_bytes(&d->model->facts, layer, d->spec.f32, p));
        }
    }
    return most > 0 ? most : profile_guessed_bytes(l, d->spec.f32);
}

double planner_scratch_bytes(const struct coord *c, const struct deployment *d,
                             const struct member *m, int device, double tokens)
{
    const struct measured_profile *p = measured_of(c, d, m, device);
    double told = p ? measured_profile_scratch(p, tokens) : 0;
    return fmax(0, told - d->model->facts.expert_rows_bytes_per_token * tokens);
}

double planner_state_bytes_per_token(const struct coord *c, const struct deployment *d, int layer)
{
    const struct measured_profile *p = paced_profile(c, d);
    double of_f16 = (double)kv_format_bytes(d->spec.kv, KV_Q8_ELEMENTS) /
                    (double)kv_format_bytes(KV_F16, KV_Q8_ELEMENTS);
    if (p)
        return paced_layer(d, p, layer).state_bytes_per_token * planner_stands_for(c, d);
    return (double)d->model->facts.layers[layer].state_bytes_per_token * of_f16;
}

/* ---- guesses ---- */

/* Of a layer's weights, those that a slice reads: all, but for experts that it leaves asleep. */
static double bytes_read(const struct layer_facts *l, double slice)
{
    double asleep =
        l->experts > 0 ? 1 - experts_awake(l->experts, l->experts_used, slice) / l->experts : 0;
    return (double)l->param_bytes - asleep * (double)l->expert_bytes;
}

/* The roofline of a device that nobody has measured: launch, then the slower of arithmetic and
 * reading the weights, and attention's growth. */
static double guess_seconds(const struct model_facts *f, const struct layer_facts *l, double slice,
                            double prefix, double flops, double bytes)
{
    double seconds = fmax(l->flops_per_token * slice / flops, bytes_read(l, slice) / bytes);
    if (l->state_bytes_per_token > 0)
        seconds += 4.0 * (double)f->width * slice * (prefix + slice / 2) / flops;
    return GUESSED_LAUNCH_S + seconds;
}

static bool guess_table(struct arena *arena, const struct model_facts *f,
                        const struct layer_facts *l, const struct node_speed *told,
                        struct profile_table *out)
{
    static const double slices[GUESSED_SLICES] = {1, 4, 16, 64, 256, 512},
                        prefixes[GUESSED_PREFIXES] = {0, 1024};
    double flops = told->flops_per_s > 0 ? told->flops_per_s : GUESSED_FLOPS_PER_S,
           bytes =
               told->memory_bytes_per_s > 0 ? told->memory_bytes_per_s : GUESSED_MEMORY_BYTES_PER_S;
    *out = (struct profile_table){
        .x = arena_memdup(arena, slices, sizeof slices),
        .y = arena_memdup(arena, prefixes, sizeof prefixes),
        .seconds = arena_alloc(arena, GUESSED_SLICES * GUESSED_PREFIXES, sizeof(double)),
        .n_x = GUESSED_SLICES,
        .n_y = GUESSED_PREFIXES};
    if (!out->x || !out->y || !out->seconds)
        return false;
    for (int i = 0; i < GUESSED_SLICES; i++)
        for (int k = 0; k < GUESSED_PREFIXES; k++)
            out->seconds[i * GUESSED_PREFIXES + k] =
                guess_seconds(f, l, slices[i], prefixes[k], flops, bytes);
    return true;
}

static bool table_copy(struct arena *arena, const struct profile_table *t,
                       struct profile_table *out)
{
    size_t nx = (size_t)t->n_x, ny = (size_t)t->n_y;
    *out = (struct profile_table){.x = arena_memdup(arena, t->x, nx * sizeof *t->x),
                                  .y = arena_memdup(arena, t->y, ny * sizeof *t->y),
                                  .seconds =
                                      arena_memdup(arena, t->seconds, nx * ny * sizeof *t->seconds),
                                  .n_x = t->n_x,
                                  .n_y = t->n_y,
                                  .step = t->step};
    return out->x && out->y && out->seconds;
}

/* ---- the profile ---- */

/* Of the layer that it is, or is a part of: the paced profile's, whose layers stand where the
 * model's do. */
static const char *whole_class_of(const struct deployment *d, const struct measured_profile *paced,
                                  int layer)
{
    const struct model_facts *f = &d->model->facts;
    const struct profile_part *part = f->parts ? &f->parts[layer] : NULL;
    if (paced)
        return paced->layers.classes[paced->layers.layers[part ? part->layer : layer].class_index];
    return part ? part->class_name : f->layers[layer].class_name;
}

/* Parts of one paced class have a class for each share. NULL: there is no memory. */
static const char *class_of(struct arena *arena, const struct deployment *d,
                            const struct measured_profile *paced, int layer)
{
    const struct model_facts *f = &d->model->facts;
    if (!paced)
        return f->layers[layer].class_name;
    const char *whole = whole_class_of(d, paced, layer);
    return f->parts ? profile_part_class(arena, whole, f->parts[layer].share) : whole;
}

static int class_index(struct profile *p, const char *name)
{
    for (int i = 0; name && i < p->n_classes; i++)
        if (strcmp(p->classes[i], name) == 0)
            return i;
    p->classes[p->n_classes] = name ? arena_strdup(&p->arena, name) : NULL;
    return p->classes[p->n_classes] ? p->n_classes++ : -1;
}

static bool layers_fill(const struct coord *c, const struct deployment *d,
                        const struct measured_profile *paced, struct profile *p)
{
    const struct model_facts *f = &d->model->facts;
    p->layers = arena_alloc(&p->arena, (size_t)f->n_layers + 1, sizeof *p->layers);
    p->classes = arena_alloc(&p->arena, (size_t)f->n_layers + 1, sizeof *p->classes);
    for (int i = 0; p->layers && p->classes && i < f->n_layers; i++) {
        const struct layer_facts *l = &f->layers[i];
        struct profile_layer own = {.name = l->name,
                                    .param_bytes = planner_resident_bytes(c, d, i),
                                    .state_bytes_per_token = planner_state_bytes_per_token(c, d, i),
                                    .output_bytes_per_token = (double)l->output_bytes_per_token};
        p->layers[i] = paced ? paced_layer(d, paced, i) : own;
        p->layers[i].name = arena_strdup(&p->arena, p->layers[i].name);
        p->layers[i].class_index = class_index(p, class_of(&p->arena, d, paced, i));
        if (!p->layers[i].name || p->layers[i].class_index < 0)
            return false;
        p->n_layers++;
    }
    return p->n_layers == f->n_layers;
}

/* The times of a layer: measured where its class was, or that of the layer of which it is a part;
 * else guessed. */
struct layer_class {
    int layer;
    const char *name, *whole;
};

static bool table_fill(struct arena *arena, const struct model_facts *f, struct layer_class class,
                       const struct measured_profile *measured, const struct node_speed *told,
                       struct profile_table *out)
{
    const struct profile_table *t = measured ? measured_profile_table(measured, class.name) : NULL;
    double share = 1;
    if (!t && measured && f->parts) {
        t = measured_profile_table(measured, class.whole);
        share = f->parts[class.layer].share;
    }
    if (!t)
        return guess_table(arena, f, &f->layers[class.layer], told, out);
    if (!table_copy(arena, t, out))
        return false;
    for (int i = 0; i < out->n_x * out->n_y; i++)
        out->seconds[i] *= share;
    return true;
}

/* Tables of every class that the model has, for a device's kind at its pace, by the first layer of
 * each. */
static bool kind_fill(const struct coord *c, const struct deployment *d, const struct member *m,
                      int device, const char *kind, struct profile *p)
{
    double pace = pace_of(d, m, device);
    const struct measured_profile *measured = measured_of(c, d, m, device),
                                  *paced = paced_profile(c, d);
    struct profile_table *tables = &p->tables[p->n_kinds * p->n_classes];
    for (int i = 0; i < p->n_layers; i++) {
        int k = p->layers[i].class_index;
        const struct layer_class class = {i, p->classes[k], whole_class_of(d, paced, i)};
        if (tables[k].n_x == 0 && !table_fill(&p->arena, &d->model->facts, class, measured,
                                              &m->node->speeds[device], &tables[k]))
            return false;
    }
    for (int k = 0; k < p->n_classes; k++)
        for (int i = 0; i < tables[k].n_x * tables[k].n_y; i++)
            tables[k].seconds[i] *= pace;
    p->kinds[p->n_kinds] = arena_strdup(&p->arena, kind);
    return p->kinds[p->n_kinds++] != NULL;
}

/* So many at most. */
static size_t kinds_count(const struct coord *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_members; i++)
        n += (size_t)member_device_count(c->members[i]);
    return n;
}

static bool kinds_fill(const struct coord *c, const struct deployment *d, struct profile *p)
{
    size_t kinds = kinds_count(c);
    p->kinds = arena_alloc(&p->arena, kinds + 1, sizeof *p->kinds);
    p->tables = arena_alloc(&p->arena, (kinds + 1) * (size_t)p->n_classes + 1, sizeof *p->tables);
    for (size_t i = 0; p->kinds && p->tables && i < c->n_members; i++) {
        const struct member *m = c->members[i];
        for (int k = 0; member_present(m) && k < member_device_count(m); k++) {
            char kind[PACE_KIND];
            if (profile_find_kind(p, pace_kind(d, m, k, kind)) < 0 &&
                !kind_fill(c, d, m, k, kind, p))
                return false;
        }
    }
    return p->kinds && p->tables;
}

/* The shortest slice that is worth it, on the kind where it is shortest. */
static double useful_slice_tokens(const struct coord *c, const struct deployment *d)
{
    double least = 0;
    for (size_t i = 0; i < c->n_members; i++) {
        for (int k = 0; k < member_device_count(c->members[i]); k++) {
            const struct measured_profile *p = measured_of(c, d, c->members[i], k);
            double own = p ? p->layers.useful_slice_tokens : 0;
            least = own > 0 && (least <= 0 || own < least) ? own : least;
        }
    }
    return least;
}

int planner_profile_make(const struct coord *c, const struct deployment *d, struct profile *out,
                         struct err *e)
{
    const struct measured_profile *paced = paced_profile(c, d);
    struct profile p = {.shape = PROFILE_SEQUENCE,
                        .batch = paced ? paced->layers.batch : 1,
                        .useful_slice_tokens = useful_slice_tokens(c, d)};
    p.model = arena_strdup(&p.arena, d->model->name);
    if (!p.model || !layers_fill(c, d, paced, &p) || !kinds_fill(c, d, &p)) {
        profile_free(&p);
        return err_set(e, HP_ENOMEM, "no memory for planning");
    }
    *out = p;
    return 0;
}

/* ---- correction ---- */

static json_t *axis_json(const double *axis, int n)
{
    json_t *out = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(out, json_real(axis[i]));
    return out;
}

static json_t *table_json(const struct profile_table *t)
{
    json_t *rows = json_array();
    for (int i = 0; i < t->n_x; i++)
        json_array_append_new(rows, axis_json(t->seconds + i * t->n_y, t->n_y));
    return json_pack("{s:o, s:o, s:o, s:i}", "slice", axis_json(t->x, t->n_x), "prefix",
                     axis_json(t->y, t->n_y), "seconds", rows, "step", t->step);
}

/* Adds the classes that were only guessed so far, or are parts of those that were measured. */
static int guesses_add(const struct coord *c, const struct deployment *d,
                       const struct measured_profile *measured, const struct node_speed *told,
                       json_t *tables, struct err *e)
{
    const struct measured_profile *paced = paced_profile(c, d);
    const struct model_facts *f = &d->model->facts;
    struct arena arena = {0};
    bool good = true;
    for (int i = 0; good && i < f->n_layers; i++) {
        struct profile_table t;
        const struct layer_class class = {i, class_of(&arena, d, paced, i),
                                          whole_class_of(d, paced, i)};
        if (class.name && json_object_get(tables, class.name))
            continue;
        good = class.name && table_fill(&arena, f, class, measured, told, &t) &&
               json_object_set_new(tables, class.name, table_json(&t)) == 0;
    }
    arena_free(&arena);
    return good ? 0 : err_set(e, HP_ENOMEM, "no memory for a profile");
}

int planner_profile_correct(struct coord *c, const struct deployment *d,
                            const struct deployment_stage *s, double factor, struct err *e)
{
    const char *compute = deployment_spec_compute(&d->spec),
               *kind = member_kind(s->agent, s->device);
    struct node_speed told = {0};
    if (member_device(s->agent, s->device))
        told = s->agent->node->speeds[s->device];
    const struct kept_profile *kept = profiles_find(c, d->model->id, kind, compute);
    json_t *tables = kept ? json_deep_copy(kept->record) : json_object();
    int rc = tables ? guesses_add(c, d, kept ? &kept->measured : NULL, &told, tables, e)
                    : err_set(e, HP_ENOMEM, "no memory for a profile");
    if (rc < 0) {
        json_decref(tables);
        return rc;
    }
    profile_scale(tables, factor);
    return profiles_set(c, d->model->id, kind, compute, tables, e);
}
