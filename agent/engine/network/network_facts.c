/* Who reads which value of a network. */
#include <stdlib.h>

#include "agent/engine/network/network_plan.h"

void network_facts_free(struct network_facts *f)
{
    free(f->first);
    free(f->nodes);
    free(f->is_output);
    network_rows_destroy(&f->rows);
    *f = (struct network_facts){0};
}

/* Calls for every value that a node reads, each once. */
static void each_read(const struct onnx *o, int node, int *count, int *list)
{
    const struct onnx_node *k = &o->nodes[node];
    for (int i = 0; i < k->n_inputs; i++) {
        bool again = k->inputs[i] < 0;
        for (int j = 0; j < i; j++)
            again |= k->inputs[j] == k->inputs[i];
        if (again)
            continue;
        if (list)
            list[count[k->inputs[i]]] = node;
        count[k->inputs[i]]++;
    }
}

static bool has_rows(const struct onnx *o)
{
    for (int i = 0; i < o->n_values; i++)
        if (onnx_rows_of(o->values[i].weight))
            return true;
    return false;
}

int network_facts_make(const struct onnx_network *n, struct network_device *device,
                       const struct network_account *account, struct network_facts *out,
                       struct err *e)
{
    const struct onnx *o = network_onnx(n);
    size_t reads = 1;
    for (int i = 0; i < o->n_nodes; i++)
        reads += (size_t)o->nodes[i].n_inputs;
    *out = (struct network_facts){.network = n,
                                  .device = device,
                                  .first = calloc((size_t)o->n_values + 2, sizeof *out->first),
                                  .nodes = calloc(reads, sizeof *out->nodes),
                                  .is_output =
                                      calloc((size_t)o->n_values + 1, sizeof *out->is_output)};
    int *at = calloc((size_t)o->n_values + 1, sizeof *at);
    if (!out->first || !out->nodes || !out->is_output || !at) {
        free(at);
        network_facts_free(out);
        return err_no_memory(e, "a network's values");
    }
    for (int i = 0; i < o->n_nodes; i++)
        each_read(o, i, at, NULL);
    for (int v = 0; v < o->n_values; v++) {
        out->first[v + 1] = out->first[v] + at[v];
        at[v] = out->first[v];
    }
    for (int i = 0; i < o->n_nodes; i++)
        each_read(o, i, at, out->nodes);
    for (int i = 0; i < o->n_outputs; i++)
        out->is_output[o->outputs[i]] = true;
    free(at);
    int rc =
        has_rows(o) ? network_rows_create(network_limit(n), device, account, &out->rows, e) : 0;
    if (rc < 0)
        network_facts_free(out);
    return rc;
}
