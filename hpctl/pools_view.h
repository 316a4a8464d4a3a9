/* What pools serve, as people see it. */
#ifndef HP_HPCTL_POOLS_VIEW_H
#define HP_HPCTL_POOLS_VIEW_H

#include <jansson.h>

#include "common/status.h"

/* What `pools` answered: models, and the plan that serves (and the next) share by share. */
int pools_print(const json_t *pools, struct err *e);
/* The same of one model alone; NULL: it has no such model. The caller's. */
json_t *pools_of_model(const json_t *pools, const char *model);

#endif
