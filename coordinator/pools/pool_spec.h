/* What is applied, read from its document: the workload, each model's profile, network and
 * manifest. The document is what hpctl asks with and what the store keeps:
 *
 *     {"workload": hp-workload/1,
 *      "profiles": {MODEL: hp-profile/1},
 *      "source_machine": "", "agents": [], "upload_only": false,
 *      "applied_s": Unix time at which it came, written by the coordinator,
 *      "networks": [{"name", "manifest" (hex), "source_path", "limit_bytes",
 *                    "inputs": [{"name", "type", "dims"}], "outputs",
 *                    "dims": {SYMBOL: SIZE}, "bounds": [],
 *                    "text": it is a language model}]} */
#ifndef HP_COORDINATOR_POOLS_POOL_SPEC_H
#define HP_COORDINATOR_POOLS_POOL_SPEC_H

#include "coordinator/pools/pool_state.h"

/* Takes `document` (also on failure). HP_EPARSE names the place, HP_EINVAL what does not go
 * together, HP_ELIMIT, HP_ENOMEM. One use is the caller's. */
int pool_spec_read(json_t *document, struct pool_spec **out, struct err *e);
/* The same of a network that is to be measured: {"network": {"name", "manifest", "source_path",
 * "dims"}, "source_machine", "upload_only", ..}. Its one model stands for no workload. */
int pool_spec_network_read(json_t *document, struct pool_spec **out, struct err *e);

#endif
