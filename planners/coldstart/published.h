/* The methods of others, as published: load then run, PipeSwitch's pipeline, DeepPlan's direct host
 * access and parallel transmission (EuroSys 2023, sections 3.2, 3.3, 4.3), and our interleaved
 * transmission beside them.
 *
 * Every one runs all operators in topological order on one device, the primary. Each fills a plan
 * made with coldstart_plan_init; HP_ENOMEM, or 0. Whether the plan fits is for the judge to say. */
#ifndef HP_PLANNERS_COLDSTART_PUBLISHED_H
#define HP_PLANNERS_COLDSTART_PUBLISHED_H

#include "planners/coldstart/problem.h"

/* Loads everything, then runs: the first parameter that an operator waits for is copied last. */
int published_serial(const struct coldstart_problem *p, int primary, struct coldstart_plan *out);
/* Loads in the order of use and runs each operator as soon as it is loaded. */
int published_pipeline(const struct coldstart_problem *p, int primary, struct coldstart_plan *out);
/* The same with the operators that DeepPlan's greedy leaves in host memory. */
int published_dha(const struct coldstart_problem *p, int primary, struct coldstart_plan *out);
/* Equal parts by bytes over the buses that reach the primary; the parts after the first are
 * forwarded to it. With `dha`, what the greedy leaves in host memory counts for no part, and
 * operators of later parts are loaded after all. With one bus there is one part. */
int published_parallel(const struct coldstart_problem *p, int primary, bool dha,
                       struct coldstart_plan *out);
/* Each parameter goes, in the order of use, over the bus that frees first. `host[node]`: operators
 * that read in place; NULL: none. */
int published_interleaved(const struct coldstart_problem *p, int primary, const bool *host,
                          struct coldstart_plan *out);

/* In order of use over the primary's own bus, with `host[node]` operators reading in place (NULL:
 * none). */
int published_in_order(const struct coldstart_problem *p, int primary, const bool *host,
                       struct coldstart_plan *out);

#endif
