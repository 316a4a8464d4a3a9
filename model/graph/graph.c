/* Which weights layers have, each once. */
#include "model/graph/graph.h"

void graph_weights_index(const struct graph *g, const struct weight *all, size_t n_all,
                         int *scratch, int *previous_use)
{
    for (size_t i = 0; i < n_all; i++)
        scratch[i] = -1;
    for (int i = 0; i < g->n_weight_uses; i++) {
        const struct weight *w = g->weight_uses[i];
        previous_use[i] = -1;
        if (!w || (w->parts && !w->data))
            continue; /* nobody else uses parts that are tensors of their own */
        int *last = &scratch[w - all];
        previous_use[i] = *last;
        *last = i;
    }
}

void graph_layers_weights(const struct graph *g, const int *previous_use, int first, int end,
                          void (*each)(void *ctx, const struct weight *w), void *ctx)
{
    if (first < 0 || end > g->n_layers || first >= end)
        return;
    const struct graph_op *op = &g->ops[g->layers[first].first_op],
                          *last = &g->ops[g->layers[end - 1].first_op + g->layers[end - 1].n_ops];
    int first_use = (int)(op->weights - g->weight_uses);
    for (; op < last; op++)
        for (int i = 0; i < op->n_weights; i++) {
            int use = (int)(op->weights + i - g->weight_uses);
            const struct weight *w = g->weight_uses[use];
            if (!w || previous_use[use] >= first_use)
                continue;
            for (int part = 0; part < w->n_parts && !w->data; part++)
                each(ctx, w->parts[part]);
            if (w->data || !w->parts)
                each(ctx, w);
        }
}
