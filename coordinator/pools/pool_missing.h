/* Profiles that a workload does not name: what agents have measured stands in, and what nobody has
 * is to be measured first. */
#ifndef HP_COORDINATOR_POOLS_POOL_MISSING_H
#define HP_COORDINATOR_POOLS_POOL_MISSING_H

#include "coordinator/pools/pool_state.h"

/* Puts what was measured on the kinds of devices that the document's agents have into its
 * "profiles", with bounds into its networks; models that have lengths in each of them. *measure is
 * what pool_measuring_begin is to measure first (the caller's), which is noted in the document's
 * list "measured" and not measured again; NULL: nothing is missing. HP_EPARSE; HP_EUNSUPPORTED: no
 * kind of device that is here could measure a model; HP_ENOMEM. */
int pool_missing_fill(struct coord *c, json_t *document, json_t **measure, struct err *e);

#endif
