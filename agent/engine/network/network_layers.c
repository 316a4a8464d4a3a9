#include "agent/engine/network/network_layers.h"

int network_layers_find(const struct network_plan *p, int *first, struct err *e)
{
    int latest = -1, n = 0, n_steps = network_plan_describe(p).steps;
    for (int step = 0; step < n_steps; step++) {
        int node = network_plan_node(p, step);
        if (node <= latest)
            continue;
        latest = node;
        first[n] = n ? node : 0;
        n++;
    }
    return n ? n
             : err_set(e, HP_EUNSUPPORTED,
                       "nothing is left to run: all that the model makes follows from constants");
}

int network_layers_step(const struct network_plan *p, const int *first, int n_layers, int layer)
{
    int n_steps = network_plan_describe(p).steps;
    for (int step = 0; layer > 0 && layer < n_layers && step < n_steps; step++)
        if (network_plan_node(p, step) >= first[layer])
            return step;
    return layer <= 0 ? 0 : n_steps;
}
