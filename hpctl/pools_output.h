/* Plans of pools and simulations as a person sees them: tables and pictures. */
#ifndef HP_HPCTL_POOLS_OUTPUT_H
#define HP_HPCTL_POOLS_OUTPUT_H

#include "common/bytes.h"
#include "planners/pools/pools.h"

/* The pools as tables on standard output. */
void pools_answer_print(const struct pools_answer *a, const struct cluster *c,
                        const struct workload *w);
/* Every pool as a bar of devices by kind, and what its parts are, appended as SVG. */
void pools_picture_write(const struct plan_pools *plan, const struct cluster *c,
                         struct buffer *out);

#endif
