/* The joint search: which devices, in which order, where the layers are cut and how the prompt is
 * sliced, under the exact flow.
 */
#ifndef HP_PLANNERS_PIPELINE_EXACT_H
#define HP_PLANNERS_PIPELINE_EXACT_H

#include "planners/pipeline/layout.h"

struct exact_options {
    enum pipeline_objective objective;
    bool order_fixed;     /* every device of the cost is a stage, in its order */
    const int *ends;      /* with order_fixed: the layers are given too; NULL: free */
    const bool *must_use; /* [n_devices] devices that every plan has to use; NULL: none */
    uint64_t seed;
    double effort; /* 1: the usual */
};

struct exact_result {
    struct layout layout; /* in the cost's arena */
    double value;         /* of the objective */
    bool proven;          /* every plan was weighed: the value is the optimum */
};

/* HP_EINFEASIBLE when no plan exists, or the search found none; HP_ENOMEM. */
int exact_search(struct pipeline_cost *c, const struct exact_options *options,
                 struct exact_result *out, struct err *e);

#endif
