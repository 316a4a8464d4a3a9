/* What a request to pools took, stage by stage, beside what its plan had reserved. Times are
 * nanoseconds of the coordinator's clock; what agents say of theirs is told by it. */
#ifndef HP_COORDINATOR_INFER_TIMES_H
#define HP_COORDINATOR_INFER_TIMES_H

#include <stdint.h>

#include "common/plan_pools.h"

/* The transfer leads into the stage, over the uplink of the one before it and the downlink of its
 * own agent; the first has none: from the coordinator nothing is reserved. */
struct infer_stage_times {
    int share; /* of the plan */
    int64_t planned_transfer_start_ns, planned_transfer_end_ns;
    int64_t planned_start_ns, planned_end_ns;
    int64_t arrived_ns, began_ns, ended_ns; /* as it was */
};

struct infer_times {
    uint64_t plan;
    uint32_t batch; /* the last one, of a request whose samples went in several */
    int samples;    /* of that batch, of all requests in it */
    int64_t arrived_ns, sent_ns, answered_ns; /* the request came; its batch left; all was there */
    int64_t deadline_ns;
    int n_stages; /* 0: of shares that did not tell */
    struct infer_stage_times stages[PLAN_POOLS_MAX_STAGES];
};

#endif
