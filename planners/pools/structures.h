/* Candidate pipelines of one model: a batch size and, for each stage, its layers, kind and share,
 * all within the model's budget.
 *
 * With whole devices a structure is, for planning, no more than the rate of one device of each
 * stage: throughput x takes ceil(x / device_rate) devices of every stage. So one whose rates are
 * nowhere higher than another's on the same kinds is left out; what remains is a few dozen of many
 * thousands. */
#ifndef HP_PLANNERS_POOLS_STRUCTURES_H
#define HP_PLANNERS_POOLS_STRUCTURES_H

#include "planners/pools/problem.h"

struct pools_stage {
    int kind, share; /* share: index into the kind's list */
    int first, end;  /* layers */
    double compute_s;
    double share_rate;  /* X: requests per second of one share */
    double device_rate; /* X * v */
};

struct pools_structure {
    int batch; /* index into the model's list */
    int n_stages;
    struct pools_stage stages[POOLS_MAX_STAGES];
    double latency_s; /* computing and transfers of one batch, without waiting */
};

struct pools_structures {
    struct pools_structure *items;
    int count, room;
    long considered; /* structures within the budget, before pruning */
};

enum pools_rule {
    POOLS_ANY,    /* every structure */
    POOLS_WHOLE,  /* the whole model on one kind, share 1 */
    POOLS_CHAINS, /* whole models, and two stages of different kinds, share 1 */
};

/* `keep_fine`: keep structures that are worse only by a little or whose shares are finer, which
 * matter where fractions of a device are shared across pipelines. Zero-initialise before;
 * pools_structures_free after. An empty result is not an error. HP_ENOMEM. */
int pools_structures_make(const struct pools_problem *p, int model, enum pools_rule rule,
                          bool keep_fine, struct pools_structures *out, struct err *e);
void pools_structures_free(struct pools_structures *s);

/* Least seconds of a batch of the model whole on one device. INFINITY: no kind has all its times.
 */
double pools_whole_s(const struct pools_problem *p, int model);

#endif
