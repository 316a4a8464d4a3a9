/* Plans of pools and simulations as a person sees them: tables and pictures. */
#ifndef HP_HPCTL_POOLS_OUTPUT_H
#define HP_HPCTL_POOLS_OUTPUT_H

#include "planners/pools/pools.h"

/* The pools as tables on standard output. */
void pools_answer_print(const struct pools_answer *a, const struct cluster *c,
                        const struct workload *w);
/* Every pool as a bar of devices by kind. HP_EIO, HP_ENOMEM. */
int pools_picture_save(const struct plan_pools *plan, const struct cluster *c, const char *file,
                       struct err *e);

#endif
