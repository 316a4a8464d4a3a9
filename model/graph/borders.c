/* Which values cross the border after each layer: those that are there by then, or enter there, and
 * are read later. Values that follow from the batch alone cross none. */
#include <stdlib.h>

#include "model/graph/builder_int.h"

/* Layers between which a value is there. */
struct span {
    int made, last_read; /* -1: never, or by the prelude */
    bool everywhere;     /* given with the batch, or the prelude's */
};

static void reads_take(struct span *spans, const struct graph_op *op, int layer)
{
    for (int i = 0; i < op->n_inputs; i++)
        spans[op->inputs[i]].last_read = layer;
    for (int i = 0; i < op->n_outputs; i++)
        spans[op->outputs[i]].made = layer;
}

static void spans_find(const struct graph *g, struct span *spans)
{
    for (int v = 0; v < g->n_values; v++)
        spans[v] = (struct span){-1, -1, g->values[v].origin == VALUE_BATCH};
    for (int i = 0; i < g->n_prelude_ops; i++)
        for (int k = 0; k < g->ops[i].n_outputs; k++)
            spans[g->ops[i].outputs[k]].everywhere = true;
    for (int l = 0; l < g->n_layers; l++)
        for (int i = 0; i < g->layers[l].n_ops; i++)
            reads_take(spans, &g->ops[g->layers[l].first_op + i], l);
}

/* First border that the value crosses: an input enters with the first layer. */
static int first_border(const struct span *s)
{
    return s->made < 0 ? 0 : s->made;
}

static int lists_alloc(const struct graph *g, struct graph_layer *layers, const struct span *spans,
                       struct arena *arena)
{
    for (int v = 0; v < g->n_values; v++)
        for (int l = first_border(&spans[v]); !spans[v].everywhere && l < spans[v].last_read; l++)
            layers[l].n_outputs++;
    for (int l = 0; l + 1 < g->n_layers; l++) {
        layers[l].outputs = arena_alloc(arena, (size_t)layers[l].n_outputs + 1, sizeof(int));
        if (!layers[l].outputs)
            return HP_ENOMEM;
        layers[l].n_outputs = 0;
    }
    return 0;
}

int graph_borders_find(const struct graph *g, struct graph_layer *layers, struct arena *arena)
{
    static const uint64_t one_token[GRAPH_SEQUENCE_SYMBOLS] = {1, 1};
    struct span *spans = calloc((size_t)g->n_values + 1, sizeof *spans);
    if (!spans)
        return HP_ENOMEM;
    spans_find(g, spans);
    int rc = lists_alloc(g, layers, spans, arena);
    for (int v = 0; v < g->n_values && rc == 0; v++)
        for (int l = first_border(&spans[v]); !spans[v].everywhere && l < spans[v].last_read; l++) {
            ((int *)(uintptr_t)layers[l].outputs)[layers[l].n_outputs++] = v;
            layers[l].output_bytes_per_token += graph_value_bytes(&g->values[v], one_token);
        }
    free(spans);
    return rc;
}
