#include "coordinator/costs.h"

#include <math.h>
#include <string.h>

#include "coordinator/core_int.h"

/* Between two agents of one box, and for a node that told of no network. Measured links replace
 * both where there are any. */
#define LOOPBACK_BYTES_PER_S 2e9
#define LOOPBACK_LATENCY_S 3e-5
#define UNKNOWN_BYTES_PER_S 1.25e8
#define UNKNOWN_LATENCY_S 1e-4
/* What an unmeasured device is taken for; a device may say better in its node ("flops_per_s",
 * "memory_bytes_per_s"). */
#define GUESSED_FLOPS_PER_S 2e10
#define GUESSED_MEMORY_BYTES_PER_S 1e10
#define GUESSED_LAUNCH_S 2e-5

/* ---- the cluster
 * -------------------------------------------------------------------------------------------------
 */

double costs_free_bytes(const struct core *c, const struct deployment *d, const struct member *m)
{
    double bytes = m->memory_bytes;
    for (size_t i = 0; i < c->n_deployments; i++) {
        const struct deployment *other = c->deployments[i];
        if (other == d || other->state == DEPLOYMENT_PLANNED || other->state == DEPLOYMENT_STOPPED)
            continue;
        for (int k = 0; k < other->n_stages; k++)
            if (other->stages[k].agent == m)
                bytes -= other->stages[k].memory_bytes;
    }
    return bytes > 0 ? bytes : 0;
}

const char *costs_paced_as(const struct member *m)
{
    const char *as = json_string_value(json_object_get(json_object_get(m->node, "paced"), "as"));
    return as ? as : "";
}

double costs_workspace_bytes(const struct deployment *d, const struct member *m)
{
    /* A paced agent's memory is that of the device it stands for, counted by the profile's bytes.
     */
    if (costs_paced_as(m)[0])
        return 0;
    return ceil(d->model->facts.workspace_bytes_per_token *
                (double)deployment_batch_tokens(&d->spec));
}

static json_t *node_document(const struct core *c, const struct deployment *d,
                             const struct member *m)
{
    json_t *node = json_deep_copy(m->node);
    json_t *devices = json_object_get(node, "devices");
    if (d) {
        while (json_array_size(devices) > 1)
            json_array_remove(devices, json_array_size(devices) - 1);
        json_object_del(node, "peer_links");
        json_object_set_new(
            json_array_get(devices, 0), "memory_bytes",
            json_real(fmax(0, floor(costs_free_bytes(c, d, m) - costs_workspace_bytes(d, m)))));
    }
    if (json_array_size(json_object_get(node, "nics")) == 0)
        json_object_set_new(node, "nics",
                            json_pack("[{s:s, s:f, s:f}]", "name", "unknown",
                                      "bandwidth_bytes_per_s", UNKNOWN_BYTES_PER_S, "latency_s",
                                      UNKNOWN_LATENCY_S));
    return node;
}

static json_t *device_id(const struct member *m)
{
    return json_sprintf("%s/%s", m->name,
                        json_string_value(json_object_get(
                            json_array_get(json_object_get(m->node, "devices"), 0), "name")));
}

/* The hop from a paced member to another, as its node tells it; NULL where it does not. */
static const json_t *paced_link(const struct member *from, const struct member *to)
{
    const json_t *links = json_object_get(json_object_get(from->node, "paced"), "links"), *l;
    size_t i;
    json_array_foreach(links, i, l)
    {
        const char *id = json_string_value(json_object_get(l, "to"));
        if (id && strcmp(id, costs_paced_as(to)) == 0)
            return l;
    }
    return NULL;
}

static bool link_measured_add(json_t *links, const struct member *from, const struct member *to)
{
    const struct member_link *l = links_find(from, to);
    if (l)
        json_array_append_new(links, json_pack("{s:o, s:o, s:f, s:f, s:I}", "from", device_id(from),
                                               "to", device_id(to), "bandwidth_bytes_per_s",
                                               l->bandwidth_bytes_per_s, "latency_s", l->latency_s,
                                               "measured_s", (json_int_t)l->measured_s));
    return l != NULL;
}

static void links_add(json_t *links, const struct member *a, const struct member *b)
{
    const struct member *ways[2][2] = {{a, b}, {b, a}};
    bool paced = false;
    for (int w = 0; w < 2; w++) {
        const json_t *l = paced_link(ways[w][0], ways[w][1]);
        paced = paced || l;
        if (l)
            json_array_append_new(links,
                                  json_pack("{s:o, s:o, s:O, s:O}", "from", device_id(ways[w][0]),
                                            "to", device_id(ways[w][1]), "bandwidth_bytes_per_s",
                                            json_object_get(l, "bandwidth_bytes_per_s"),
                                            "latency_s", json_object_get(l, "latency_s")));
    }
    if (paced)
        return;
    bool measured = link_measured_add(links, a, b);
    measured = link_measured_add(links, b, a) || measured;
    if (!measured && a->machine[0] && strcmp(a->machine, b->machine) == 0)
        json_array_append_new(links,
                              json_pack("{s:o, s:o, s:f, s:f, s:b}", "from", device_id(a), "to",
                                        device_id(b), "bandwidth_bytes_per_s", LOOPBACK_BYTES_PER_S,
                                        "latency_s", LOOPBACK_LATENCY_S, "assumed", 1));
}

static json_t *cluster_document(const struct core *c, const struct deployment *d)
{
    json_t *nodes = json_array(), *links = json_array();
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (!m->node || (d && !member_available(m)))
            continue;
        json_array_append_new(nodes, node_document(c, d, m));
        for (size_t k = 0; k < i; k++) {
            const struct member *o = c->members[k];
            if (o->node && (!d || member_available(o)))
                links_add(links, o, m);
        }
    }
    return json_pack("{s:s, s:o, s:o}", "format", "hp-cluster/1", "nodes", nodes, "links", links);
}

json_t *costs_cluster(const struct core *c)
{
    return cluster_document(c, NULL);
}
json_t *costs_cluster_for(const struct core *c, const struct deployment *d)
{
    return cluster_document(c, d);
}

/* ---- bytes
 * ----------------------------------------------------------------------------------------------------------
 */

static const char *compute_of(const struct deployment *d)
{
    return d->spec.f32 ? "f32" : "auto";
}

/* The profile that paced members run by: its tables say a batch, and its layers stand where the
 * model's do. NULL without one. */
static const json_t *paced_tables(const struct core *c, const struct deployment *d)
{
    for (size_t i = 0; i < c->n_members; i++) {
        const json_t *t =
            member_present(c->members[i]) && costs_paced_as(c->members[i])[0]
                ? core_profile_find(c, d->model->id, c->members[i]->kind, compute_of(d))
                : NULL;
        if (json_object_get(t, "batch") &&
            json_array_size(json_object_get(t, "layers")) == (size_t)d->model->facts.n_layers)
            return t;
    }
    return NULL;
}

static const json_t *paced_layer(const struct core *c, const struct deployment *d, int layer)
{
    return json_array_get(json_object_get(paced_tables(c, d), "layers"), (size_t)layer);
}

double costs_stands_for(const struct core *c, const struct deployment *d)
{
    double batch = json_number_value(json_object_get(paced_tables(c, d), "batch"));
    return batch <= 0 ? 1 : d->spec.micro_batches > 0 ? batch / d->spec.micro_batches : batch;
}

double costs_resident_bytes(const struct core *c, const struct deployment *d, int layer)
{
    const struct core_layer *l = &d->model->facts.layers[layer];
    double most = 0;
    /* What agents measured that are not here binds nobody. */
    for (size_t i = 0; i < c->n_members; i++)
        if (member_present(c->members[i]))
            most = fmax(most,
                        profile_resident_bytes(
                            l, d->spec.f32,
                            core_profile_find(c, d->model->id, c->members[i]->kind, compute_of(d)),
                            layer));
    return most > 0 ? most : profile_guessed_bytes(l, d->spec.f32);
}

double costs_state_bytes_per_token(const struct core *c, const struct deployment *d, int layer)
{
    const json_t *paced = paced_layer(c, d, layer);
    if (paced)
        return json_number_value(json_object_get(paced, "state_bytes_per_token")) *
               costs_stands_for(c, d);
    return (double)d->model->facts.layers[layer].state_bytes_per_token * (d->spec.f32 ? 2 : 1);
}

/* ---- seconds
 * --------------------------------------------------------------------------------------------------------
 */

/* The roofline of a device that nobody has measured: launch, then the slower of arithmetic and
 * reading the weights, and attention's growth. */
static double guess_seconds(const struct core_model *f, const struct core_layer *l, double slice,
                            double prefix, double flops, double bytes)
{
    double seconds = fmax(l->flops_per_token * slice / flops, (double)l->param_bytes / bytes);
    if (l->state_bytes_per_token > 0)
        seconds += 4.0 * (double)f->width * slice * (prefix + slice / 2) / flops;
    return GUESSED_LAUNCH_S + seconds;
}

static json_t *guess_table(const struct core_model *f, const struct core_layer *l, double flops,
                           double bytes)
{
    static const int slices[] = {1, 64, 512}, prefixes[] = {0, 1024};
    json_t *x = json_array(), *y = json_array(), *rows = json_array();
    for (int k = 0; k < 2; k++)
        json_array_append_new(y, json_integer(prefixes[k]));
    for (int i = 0; i < 3; i++) {
        json_array_append_new(x, json_integer(slices[i]));
        json_t *row = json_array();
        for (int k = 0; k < 2; k++)
            json_array_append_new(
                row, json_real(guess_seconds(f, l, slices[i], prefixes[k], flops, bytes)));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:o, s:o, s:o}", "slice", x, "prefix", y, "seconds", rows);
}

static double device_figure(const struct member *m, const char *key, double fallback)
{
    double v = json_number_value(
        json_object_get(json_array_get(json_object_get(m->node, "devices"), 0), key));
    return v > 0 ? v : fallback;
}

/* Tables of every class that the model has, for the kind of device of `m`: measured where a class
 * was, else guessed. */
static json_t *kind_tables(const struct core *c, const struct deployment *d, const struct member *m)
{
    const struct core_model *f = &d->model->facts;
    const json_t *measured = core_profile_find(c, d->model->id, m->kind, compute_of(d));
    double flops = device_figure(m, "flops_per_s", GUESSED_FLOPS_PER_S),
           bytes = device_figure(m, "memory_bytes_per_s", GUESSED_MEMORY_BYTES_PER_S);
    json_t *tables = json_object();
    for (int i = 0; i < f->n_layers; i++) {
        const char *name = json_string_value(json_object_get(paced_layer(c, d, i), "class"));
        name = name ? name : f->layers[i].class_name;
        if (json_object_get(tables, name))
            continue;
        json_t *table = json_object_get(measured, name);
        json_object_set_new(tables, name,
                            json_is_object(table) ? json_incref(table)
                                                  : guess_table(f, &f->layers[i], flops, bytes));
    }
    return tables;
}

static json_t *layer_document(const struct core *c, const struct deployment *d, int i)
{
    const struct core_layer *l = &d->model->facts.layers[i];
    const json_t *paced = paced_layer(c, d, i);
    if (paced)
        return json_deep_copy(paced);
    return json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", l->name, "class", l->class_name,
                     "param_bytes", costs_resident_bytes(c, d, i), "state_bytes_per_token",
                     costs_state_bytes_per_token(c, d, i), "output_bytes_per_token",
                     (double)l->output_bytes_per_token);
}

static json_t *useful_slices(const struct core *c, const struct deployment *d)
{
    json_t *useful = json_object();
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        json_t *own = json_object_get(core_profile_find(c, d->model->id, m->kind, compute_of(d)),
                                      "useful_slice");
        if (own)
            json_object_set(useful, m->kind, own);
    }
    return useful;
}

json_t *costs_profile(const struct core *c, const struct deployment *d)
{
    const struct core_model *f = &d->model->facts;
    json_t *layers = json_array(), *latency = json_object();
    for (int i = 0; i < f->n_layers; i++)
        json_array_append_new(layers, layer_document(c, d, i));
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (m->kind[0] && member_present(m) && !json_object_get(latency, m->kind))
            json_object_set_new(latency, m->kind, kind_tables(c, d, m));
    }
    json_t *profile = json_pack("{s:s, s:s, s:o, s:o}", "format", "hp-profile/1", "model",
                                d->model->name, "layers", layers, "latency", latency);
    json_object_set_new(profile, "useful_slice", useful_slices(c, d));
    const json_t *paced = paced_tables(c, d);
    if (paced)
        json_object_set(profile, "batch", json_object_get(paced, "batch"));
    return profile;
}

json_t *costs_tables(const struct core *c, const struct deployment *d, const struct member *m)
{
    json_t *stored = core_profile_find(c, d->model->id, m->kind, compute_of(d)),
           *tables = stored ? json_deep_copy(stored) : json_object();
    json_t *own = kind_tables(c, d, m);
    json_object_update_missing(tables, own);
    json_decref(own);
    return tables;
}
