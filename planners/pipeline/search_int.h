/* The state of the search where plans are too many to weigh them all. Internal to this folder. */
#ifndef HP_PLANNERS_PIPELINE_SEARCH_INT_H
#define HP_PLANNERS_PIPELINE_SEARCH_INT_H

#include "planners/pipeline/orders.h"

enum { STARTS_KEPT = 128 };

struct pipeline_search {
    struct exact *x;
    struct trial top[STARTS_KEPT]; /* the best starts, best first; after local search one of each
                                      order of devices */
    int top_order[STARTS_KEPT];    /* which of the orders they are of */
    int n_top;
    struct trial now, step, home, *best;
    int order[PIPELINE_MAX_DEVICES];
};

static inline bool same_order(const struct trial *a, const struct trial *b)
{
    if (a->n_stages != b->n_stages)
        return false;
    for (int j = 0; j < a->n_stages; j++)
        if (a->device[j] != b->device[j])
            return false;
    return true;
}

#endif
