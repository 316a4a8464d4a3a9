/* A model as DeepPlan sees it: operators in one order on one device, each a layer that is either
 * loaded or run from host memory (DeepPlan, EuroSys 2023, sections 3.3 and 4.3).
 *
 * A parameter that several operators read belongs to the first of them. Times are of one device and
 * its bus. */
#ifndef HP_PLANNERS_COLDSTART_LAYERS_H
#define HP_PLANNERS_COLDSTART_LAYERS_H

#include "planners/coldstart/problem.h"

struct layer {
    int node;
    double load_s; /* its parameters, one after the other */
    double exec_s, host_s;
    double read_s;   /* what running in place puts on the bus; 0 with contention off */
    double bytes;    /* of the parameters that belong to it */
    bool has_params; /* has something to load: the choice is real */
};

struct layers {
    struct layer *layer;
    int n;
    bool chain; /* the order is the only one and no parameter has several readers: what is best for
                   the layers is for the graph */
};

/* All operators in topological order, with times of `device`. HP_ENOMEM. */
int layers_init(const struct coldstart_problem *p, int device, struct arena *arena,
                struct layers *out);

/* The greedy of DeepPlan's Algorithm 1 as its authors implement it. Fills host[n]; layers without
 * parameters count as run from host memory. `scratch` gives memory. HP_ENOMEM. */
int layers_greedy(const struct layers *l, struct arena *scratch, bool *host);

/* The best choice of loaded or in place for every layer when one device and one bus take them in
 * order: with the bus time of reads where `contention` is on. A dynamic programme over the Pareto
 * frontier of (end of execution, end of loading); exact unless the frontier outgrew its limit,
 * which `*exact` says. Fills host[n] and the finish. HP_ENOMEM. */
int layers_optimal(const struct layers *l, bool contention, bool *host, double *finish_s,
                   bool *exact);

#endif
