/* What a document says that is to be applied, beside its networks and their profiles. */
#ifndef HP_COORDINATOR_POOLS_POOL_WORKLOAD_H
#define HP_COORDINATOR_POOLS_POOL_WORKLOAD_H

#include "common/json.h"
#include "common/workload.h"

enum { POOL_NAME_BYTES = 63 }; /* of a model, as of a deployment */

/* Its "workload": models without profiles, as many as are served, with names that can stand in the
 * path of an address, in a metric's label and in `hpctl load NAME`. The caller frees it. HP_EPARSE.
 */
int pool_workload_read(const struct json_at *document, struct workload *out, struct err *e);

#endif
