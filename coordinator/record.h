/* A deployment in the store, and back. */
#ifndef HP_COORDINATOR_RECORD_H
#define HP_COORDINATOR_RECORD_H

#include "coordinator/deployment.h"

void record_keep(struct coord *c, const struct deployment *d);
int record_restore(struct coord *c, const char *name, json_t *record, struct err *e);

#endif
