#include "agent/engine/network/network_profile_json.h"

#include <stdio.h>

#include "common/json.h"

enum { LAYER_NAME = 200 };

/* Names of nodes need not differ, and may be missing. */
static json_t *layer_name(const struct network_profile_layer *l, int i)
{
    char name[LAYER_NAME];
    snprintf(name, sizeof name, "%d.%.180s", i, l->name[0] ? l->name : l->op);
    return json_text(name);
}

static json_t *layers_json(const struct network_profile_document *d)
{
    json_t *layers = json_array();
    double samples = (double)d->ask->batches[0];
    for (int i = 0; i < d->shares[0].n_layers; i++) {
        const struct network_profile_layer *l = &d->shares[0].layers[i];
        json_t *name = layer_name(l, i);
        json_array_append_new(layers,
                              json_pack("{s:O, s:o, s:f, s:f, s:f}", "name", name, "class", name,
                                        "param_bytes", (double)l->param_bytes, "output_bytes",
                                        (double)l->output_bytes / samples, "activation_bytes",
                                        (double)l->activation_bytes / samples));
    }
    return layers;
}

static json_t *table_json(const struct network_profile_document *d, int layer)
{
    json_t *shares = json_array(), *batches = json_array(), *seconds = json_array();
    for (int b = 0; b < d->ask->n_batches; b++)
        json_array_append_new(batches, json_integer(d->ask->batches[b]));
    for (int s = 0; s < d->n_shares; s++) {
        const struct network_profile *p = &d->shares[s];
        json_t *row = json_array();
        for (int b = 0; b < p->n_batches; b++)
            json_array_append_new(row, json_real(p->seconds[layer * p->n_batches + b]));
        json_array_append_new(shares, json_integer(d->parts[s]));
        json_array_append_new(seconds, row);
    }
    return json_pack("{s:o, s:o, s:o}", "share", shares, "batch", batches, "seconds", seconds);
}

static json_t *runs_json(const struct network_profile_document *d)
{
    json_t *list = json_array();
    for (int s = 0; s < d->n_shares; s++)
        for (int b = 0; b < d->ask->n_batches; b++) {
            const struct network_profile_runs *r = &d->shares[s].runs[b];
            json_array_append_new(
                list, json_pack("{s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:i, s:i}", "kind", d->kind,
                                "share", d->parts[s], "batch", (json_int_t)d->ask->batches[b],
                                "whole_s", r->whole_s, "sum_s", r->sum_s, "sum_error",
                                r->sum_s / r->whole_s - 1, "spread", r->spread, "runs", r->n_runs,
                                "sections", d->shares[s].n_sections));
        }
    return list;
}

json_t *network_profile_json(const struct network_profile_document *d)
{
    json_t *layers = layers_json(d), *classes = json_object();
    for (int i = 0; i < d->shares[0].n_layers; i++) {
        const char *name =
            json_string_value(json_object_get(json_array_get(layers, (size_t)i), "class"));
        if (name)
            json_object_set_new(classes, name, table_json(d, i));
    }
    return json_pack("{s:s, s:s, s:o, s:{s:o}, s:o}", "format", "hp-profile/1", "model", d->model,
                     "layers", layers, "latency", d->kind, classes, "measured", runs_json(d));
}
