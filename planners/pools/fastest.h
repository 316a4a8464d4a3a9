/* What a deadline may be at best: the pipeline of a model whose batch takes least time, by a
 * dynamic programme over layers and kinds. */
#ifndef HP_PLANNERS_POOLS_FASTEST_H
#define HP_PLANNERS_POOLS_FASTEST_H

#include "planners/pools/problem.h"

/* The pipeline that takes a batch least time with nothing in its way. */
struct pools_fastest {
    double seconds; /* computing, transfers, and filling the batch; INFINITY: there is none */
    int kinds[POOLS_MAX_STAGES], n_stages;
};
/* Of at most so many stages. */
struct pools_fastest pools_fastest_find(const struct pools_problem *p, int model, int max_stages);

#endif
