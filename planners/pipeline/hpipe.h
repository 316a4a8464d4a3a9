/* The two programmes of HPipe as published (NAACL 2024): Algorithm 1 (equation 4) shares out layers
 * over a given order of devices, Algorithm 2 (equation 5) cuts the prompt. In Algorithm 2 the
 * printed test compares the position s_cur with t_max; what must not exceed t_max is the slice's
 * time, and so it is here. */
#ifndef HP_PLANNERS_PIPELINE_HPIPE_H
#define HP_PLANNERS_PIPELINE_HPIPE_H

#include "planners/pipeline/cost.h"

/* Algorithm 1. Gives each of the n devices (indices of c->devices, in this order) at least one
 * layer so that the slowest stage is as fast as can be; a stage costs the compute of the whole
 * prompt as one slice plus its outgoing hop, and must fit its device's memory. ends[j] is where
 * stage j's layers end. HP_EINFEASIBLE, HP_ENOMEM. */
int hpipe_partition(struct pipeline_cost *c, const int *devices, int n, int *ends, struct err *e);

/* Algorithm 2 over any table of slice times: `seconds` at [row[i] + j] for units [i, j) of n_units.
 * Minimises the sum of the slices' times + (n_stages - 1) * t_max over all slicings and all t_max
 * that no slice exceeds. cuts gets n_slices + 1 positions, from 0 to n_units, and needs room for
 * n_units + 1. The arena holds scratch. HP_ENOMEM. */
int hpipe_slices(int n_units, const ptrdiff_t *row, const double *seconds, int n_stages,
                 struct arena *arena, int *cuts, int *n_slices, struct err *e);

/* The table that HPipe gives to Algorithm 2: of every slice, the time on its slowest stage with the
 * outgoing hop (equation 1); with hops false, compute alone. In the cost's arena; NULL and
 * HP_ENOMEM in *e when there is no room. Tables of the kinds must be ready. */
double *hpipe_slice_seconds(struct pipeline_cost *c, const int *devices, const int *ends, int n,
                            bool hops, struct err *e);

#endif
