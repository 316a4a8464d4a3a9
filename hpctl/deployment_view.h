/* A deployment as people see it. */
#ifndef HP_HPCTL_DEPLOYMENT_VIEW_H
#define HP_HPCTL_DEPLOYMENT_VIEW_H

#include <jansson.h>

#include "common/status.h"

/* The stages of what `deployment.describe` answered, as a table. */
int deployment_print_stages(const json_t *deployment, struct err *e);

/* Whether prompts are read by agents of their own, and why, where the planner was asked. */
void deployment_print_apart(const json_t *deployment);

#endif
