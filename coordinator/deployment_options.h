/* Reads the options that a deployment was asked for with. */
#ifndef HP_COORDINATOR_DEPLOYMENT_OPTIONS_H
#define HP_COORDINATOR_DEPLOYMENT_OPTIONS_H

#include "coordinator/deployment_spec.h"

/* Holds a reference of options. HP_EINVAL, HP_ELIMIT, HP_ENOMEM: the text names the option. */
int deployment_options_read(json_t *options, struct deployment_spec *out, struct err *e);
const char *rebalancing_word(enum rebalancing r);
/* Reads the plan among a spec's options into it (deployment_options_plan.c). */
int deployment_options_plan_read(struct deployment_spec *s, struct err *e);

#endif
