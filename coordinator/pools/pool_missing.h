/* Profiles that a workload does not name: what agents have measured stands in, and what nobody has
 * is to be measured first. */
#ifndef HP_COORDINATOR_POOLS_POOL_MISSING_H
#define HP_COORDINATOR_POOLS_POOL_MISSING_H

#include "coordinator/pools/pool_state.h"

/* Puts what was measured on the kinds of devices that the document's agents have into its
 * "profiles", with bounds into its networks. *measure is what pool_measuring_begin is to measure
 * first (the caller's), with its network's name in *name (the document's); NULL: nothing is
 * missing. Models that stand in the document's list "measured" are not measured again. HP_EPARSE;
 * HP_EUNSUPPORTED: no kind of device that is here could measure a model; HP_ENOMEM. */
int pool_missing_fill(struct coord *c, json_t *document, json_t **measure, const char **name,
                      struct err *e);

#endif
