/* The parts of the search where plans are too many to weigh them all. Internal to this folder. */
#ifndef HP_PLANNERS_PIPELINE_SEARCH_INT_H
#define HP_PLANNERS_PIPELINE_SEARCH_INT_H

#include "planners/pipeline/orders.h"

enum { STARTS_KEPT = 128 };

struct search {
    struct exact *x;
    struct trial top[STARTS_KEPT]; /* the best starts, best first; after local search one of each
                                      order of devices */
    int top_order[STARTS_KEPT];    /* which of the orders they are of */
    int n_top;
    struct trial now, step, home, *best;
    int order[PIPELINE_MAX_DEVICES];
};

/* ---- starts.c
 * ------------------------------------------------------------------------------------------------------------------
 */

/* Fills s->top with the best of all orders of devices, numbers of slices and shapes of slicing.
 * HP_ENOMEM. */
int starts_find(struct search *s, const struct orders *orders, struct err *e);
/* Numbers of slices worth trying, and by how much each slice may be longer than the one before. */
enum { SLICE_COUNTS = 13, GROWTHS = 4 };
extern const int starts_slice_counts[SLICE_COUNTS];
extern const double starts_growths[GROWTHS];

/* ---- steps.c: random changes of s->now, in s->step
 * ------------------------------------------------------------------------------- */

/* Uniform in 0 .. n - 1. */
static inline int step_pick(struct exact *x, int n)
{
    return (int)(random_next(&x->random) % (uint64_t)n);
}
/* Another order of devices with balanced layers; one stage more, less or elsewhere. Both set the
 * value. False: nothing changed, impossible, or far worse. */
bool step_order(struct search *s);
bool step_stage(struct search *s);
/* Another slicing for the same stages; some ends and cuts a little elsewhere. They do not set the
 * value. */
void step_slices(struct search *s);
void step_nearby(struct search *s);

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
