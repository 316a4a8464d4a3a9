/* What no plan can beat: a pipeline without bubbles but for filling and draining it, with layers
 * divisible at will. */
#ifndef HP_PLANNERS_PIPELINE_BOUND_H
#define HP_PLANNERS_PIPELINE_BOUND_H

#include "planners/pipeline/exact.h"

/* A lower bound on the objective of every plan of the cost's devices, 0 where none could be
 * computed.
 *
 * For each number of slices m (many slices are taken together): let w(q, l) be the least total time
 * of layer l on kind q over all slicings into m, u(q, l) the least time of any one slice. A stage
 * cannot begin before the first slice passed the stages before it, and the last slice still has to
 * pass those behind it, so for every stage makespan >= w(stage) + sum of u over the other stages;
 * and a slice is in one place at a time, so m * makespan >= the sum of w over all stages. Sharing
 * layers out in fractions, with memory per kind, makes that a small linear programme; the bound is
 * the least over m. For throughput u is left out; energy is that of the busy time alone. */
double bound_of(struct pipeline_cost *c, const struct exact_options *options);

#endif
