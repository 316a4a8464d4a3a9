/* The value of a plan under the exact flow: one trial, the times of its pieces, and what the
 * searches know of cluster and profile. */
#ifndef HP_PLANNERS_PIPELINE_EVALUATE_H
#define HP_PLANNERS_PIPELINE_EVALUATE_H

#include "planners/pipeline/exact.h"

/* One plan under consideration, by value. */
struct trial {
    double value; /* INFINITY: no plan */
    int n_stages, n_slices;
    int device[PIPELINE_MAX_DEVICES];
    int end[PIPELINE_MAX_DEVICES];
    int cut[PIPELINE_MAX_UNITS + 1];
};

static inline int trial_first(const struct trial *t, int j)
{
    return j ? t->end[j - 1] : 0;
}

/* Times of every layer for one slicing, as sums over the layers before: stage [a, b) of slice k on
 * kind q takes sum[q][b * m + k] - sum[q][a * m + k]. Kinds without a device have NULL. */
struct pieces {
    int m;
    double **sum;   /* [kind] -> [(n_layers + 1) * n_units] */
    double *tokens; /* [m] of each slice, times the batch */
    double *rest;   /* [n_layers + 1] the last slice through layers [l, end) at the best kind for
                       each: no plan is faster */
    double *total;  /* [kind * (n_layers + 1) + l] over all slices: sum of sum[kind][l * m ..] */
};

struct exact {
    struct pipeline_cost *c;
    const struct exact_options *options;
    int *twin_of;  /* [n_devices] the first device that this one could change places with, itself if
                      none */
    bool *must;    /* [n_devices] has to hold a stage */
    int *furthest; /* [n_devices * (n_layers + 1)] the last end that fits, by device and first layer
                    */
    double *bytes; /* [n_layers] bytes per token after the layer */
    struct pieces pieces;
    double *arrivals; /* [(n_devices + 1) * n_units] before each stage of the current plan */
    double *computes; /* [n_units] of one stage */
    double *wires;    /* [n_units] */
    double *stage_compute_s, *stage_wire_s; /* [n_devices] totals */
    double *decode_sum; /* [kind][layer]; NULL unless requests decode and throughput counts */
    int valid; /* leading stages whose arrivals and totals are those of the plan that a move starts
                  from */
    double *flow;          /* [3 * (n_units + 1) * 3 * n_devices] states of slices_polish */
    long work, work_limit; /* pairs of stage and slice that were timed */
    uint64_t random;
};

/* HP_ENOMEM. Prepares the tables of all kinds. */
int exact_init(struct exact *x, struct pipeline_cost *c, const struct exact_options *options,
               struct err *e);

/* Fills the times for a slicing. */
void pieces_set(struct exact *x, const int *cut, int n_slices);
/* Runs stage j of a trial on the arrivals of stage j, into those of j + 1, and notes its totals.
 * False: does not fit, or no link. The end of its last compute in *end_s. */
bool exact_stage(struct exact *x, const struct trial *t, int j, double *end_s);
/* Value of a trial from its stage totals and makespan. */
double exact_value(const struct exact *x, const struct trial *t, int n_stages, double makespan_s);
/* Evaluates a whole trial whose slicing the pieces hold. It differs from the plan that the arrivals
 * are of in stages >= `changed` only. INFINITY: infeasible, or (latency) certainly not below
 * `give_up`. */
double exact_evaluate(struct exact *x, const struct trial *t, int changed, double give_up);

#endif
