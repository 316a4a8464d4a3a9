/* The exact flow: the judge of every pipeline plan.
 *
 * A slice's compute on a stage starts when the stage is free and the slice has arrived; each hop is
 * a queue of its own that overlaps with compute, is busy for `wire_s` per slice, and delivers
 * `latency_s` later. Slices keep their order. Micro-batches flow the same way. */
#ifndef HP_PLANNERS_PIPELINE_FLOW_H
#define HP_PLANNERS_PIPELINE_FLOW_H

#include "planners/pipeline/pipeline.h"

/* One stage: arrivals[k] of its slices become arrivals at the next stage, in place. wire_s NULL:
 * the last stage, and what stands in arrivals afterwards is when each slice is done. Returns the
 * end of the last compute. */
double flow_stage(int n_slices, const double *compute_s, const double *wire_s, double latency_s,
                  double *arrivals);

/* The whole pipeline: compute_s and wire_s are [stage * n_slices + slice], latency_s [stage]; the
 * last stage's wire is not looked at. Every start and end is written down, in the arena. HP_ENOMEM.
 */
int flow_schedule(int n_stages, int n_slices, const double *compute_s, const double *wire_s,
                  const double *latency_s, struct arena *arena, struct pipeline_schedule *out,
                  struct err *e);

#endif
