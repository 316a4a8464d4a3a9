/* A deployment as people see it. */
#ifndef HP_HPCTL_DEPLOYMENT_VIEW_H
#define HP_HPCTL_DEPLOYMENT_VIEW_H

#include <jansson.h>

#include "common/status.h"

/* The stages of what `deployment.describe` answered, as a table. */
int deployment_print_stages(const json_t *deployment, struct err *e);

#endif
