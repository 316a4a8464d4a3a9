/* A deployment in the store, and back. */
#ifndef HP_COORDINATOR_RECORD_H
#define HP_COORDINATOR_RECORD_H

#include "coordinator/deployment.h"

/* Stores what of a deployment outlives a restart. */
void record_keep(struct coord *c, const struct deployment *d);
/* A new deployment, and its record; takes the spec. HP_ELIMIT, HP_ENOMEM. */
int record_begin(struct coord *c, const char *name, struct model_slot *model,
                 const struct deployment_spec *spec, struct deployment **out, struct err *e);
/* The deployment of a stored record; models and members are there already. HP_EPARSE, HP_ENOMEM. */
int record_restore(struct coord *c, const char *name, json_t *record, struct err *e);

#endif
