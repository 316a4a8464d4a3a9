/* What a move to another place gains and costs, in numbers: of a deployment, and of a placement
 * that was planned beside it (placement.h). */
#ifndef HP_COORDINATOR_REBALANCE_REPORT_H
#define HP_COORDINATOR_REBALANCE_REPORT_H

#include <jansson.h>
#include <stdbool.h>

#include "common/status.h"

struct coord;
struct deployment;
struct placement;
struct stage_layout;

/* The same layers on the same devices in the same order. */
bool rebalance_same_place(const struct deployment *d, const struct stage_layout *l);
/* By how much a request of the plan's prompt and a usual answer is done sooner: 1 is twice as fast.
 */
double rebalance_gain(const struct placement *p);
/* {"deployment", "prompt_tokens", "answer_tokens", "gain", "before", "after": {"ttft_s", "tpot_s",
 * "request_s", "tokens_per_s", "requests_per_s", "stages"}, "move": {"agents": [{"on",
 * "weights_bytes", "stays_bytes", "fetch_bytes"}], "fetch_bytes", "kv_bytes", "sequences",
 * "seconds", "pause_s"}}. Bytes to fetch are at most these: what a store has of other layers is not
 * known here. HP_ENOMEM; HP_ELINK: an agent has gone meanwhile. */
int rebalance_report(struct coord *c, struct deployment *d, const struct placement *p, json_t **out,
                     struct err *e);

#endif
