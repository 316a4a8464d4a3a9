/* What a cluster does at this moment: rates between two looks at it, and how full it is. */
#ifndef HP_HPCTL_TOP_FIGURES_H
#define HP_HPCTL_TOP_FIGURES_H

#include <jansson.h>

#include "common/bytes.h"
#include "common/status.h"

/* Two looks, `seconds` apart; each is {"deployments": what `deployment.ls` answered, "agents": what
 * `node.ls` did, "topology": what `topo` did}. What was not there before, or began anew, has rates
 * of 0. The caller's:
 * {"seconds", "deployments": [{"name", "state", "tokens_per_s", "prompt_tokens_per_s", "active",
 * "waiting", "kv_share", "cached_share", "stages"}], "stages": [{"deployment", "stage", "on",
 * "layers", "busy_share", "sequences", "to" (whose link is measured so: "bandwidth_bytes_per_s",
 * "latency_s", "loss", "late_s")}], "agents": [{"name", "state", "busy_share" (of
 * its devices' time), "memory_bytes", "memory_used_bytes", "sent_bytes_per_s",
 * "received_bytes_per_s", "stages": "m 0-5"}]}. NULL: no memory. */
json_t *top_figures(const json_t *before, const json_t *now, double seconds);

/* The same as three tables with a line above them. HP_ENOMEM. */
int top_figures_write(const json_t *figures, struct buffer *out, struct err *e);

#endif
