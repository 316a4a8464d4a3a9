#include "agent/engine/network/network_profile_layers.h"

#include <stdlib.h>

#include "agent/engine/network/network_layers.h"

static uint64_t weight_bytes(const struct ndarray *a)
{
    const struct onnx_rows *rows = onnx_rows_of(a);
    return rows ? onnx_rows_bytes(rows) : ndarray_bytes(a);
}

/* Of weights that the layer has not had before: seen[value] is the last layer that had it, counted
 * from 1. What two layers read each of them holds, wherever it may run. */
static uint64_t node_weights(const struct onnx_network *n, int node, int layer, int *seen)
{
    const struct onnx *o = network_onnx(n);
    uint64_t bytes = 0;
    for (int i = 0; i < o->nodes[node].n_inputs; i++) {
        int value = o->nodes[node].inputs[i];
        const struct ndarray *a = value >= 0 ? network_constant(n, value) : NULL;
        if (!a || seen[value] == layer + 1)
            continue;
        seen[value] = layer + 1;
        bytes += weight_bytes(a);
    }
    return bytes;
}

/* The first node that is done from a layer's first step on: that step may only move what it needs.
 */
static int layer_node(const struct network_plan *p, int step)
{
    int n_steps = network_plan_describe(p).steps;
    while (step + 1 < n_steps && network_plan_node(p, step) < 0)
        step++;
    int node = network_plan_node(p, step);
    return node < 0 ? 0 : node;
}

static void layer_describe(const struct onnx *o, const struct network_plan *p, int step, int end,
                           struct network_profile_layer *out)
{
    const struct onnx_node *node = &o->nodes[layer_node(p, step)];
    *out = (struct network_profile_layer){
        .name = node->name, .op = node->op, .activation_bytes = network_plan_peak(p, step, end)};
}

static void weights_count(const struct onnx_network *n, const int *first, int n_layers,
                          struct network_profile_layer *layers, int *seen)
{
    for (int node = 0, layer = 0; node < network_onnx(n)->n_nodes; node++) {
        while (layer + 1 < n_layers && first[layer + 1] <= node)
            layer++;
        if (!network_node_is_folded(n, node))
            layers[layer].param_bytes += node_weights(n, node, layer, seen);
    }
}

int network_profile_layers_make(const struct onnx_network *n, const struct network_plan *p,
                                int *first, struct network_profile_layer *layers, struct err *e)
{
    const struct onnx *o = network_onnx(n);
    int *seen = calloc((size_t)o->n_values + 1, sizeof *seen);
    int n_layers = seen ? network_layers_find(p, first, e) : err_no_memory(e, "a profile");
    for (int i = 0; i < n_layers; i++) {
        int step = network_layers_step(p, first, n_layers, i);
        layer_describe(o, p, step, network_layers_step(p, first, n_layers, i + 1), &layers[i]);
        if (i > 0)
            layers[i - 1].output_bytes = network_plan_crossing(p, step);
    }
    if (n_layers > 0)
        weights_count(n, first, n_layers, layers, seen);
    free(seen);
    return n_layers;
}

void network_profile_steps_assign(const struct network_plan *p, const int *first, int n_layers,
                                  int *layers)
{
    for (int layer = 0; layer < n_layers; layer++) {
        int end = network_layers_step(p, first, n_layers, layer + 1);
        for (int i = network_layers_step(p, first, n_layers, layer); i < end; i++)
            layers[i] = layer;
    }
}
