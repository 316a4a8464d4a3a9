/* KServe's requests to the models that pools serve: read, handed to the pools, answered. On the
 * loop's thread; large bodies and answers are read and written in the gateway's lanes. */
#ifndef HP_COORDINATOR_GATEWAY_POOL_INFER_H
#define HP_COORDINATOR_GATEWAY_POOL_INFER_H

#include "coordinator/gateway/kserve.h"
#include "coordinator/gateway/lanes.h"
#include "coordinator/pools/pool_requests.h"

enum {
    POOL_INFER_MOST = 8192,    /* requests at once */
    POOL_INFER_BYTES = 1 << 30 /* of their bodies; a single one passes whatever its size */
};

struct pool_infer_desk {
    const struct pool_requests *pools;
    struct lanes *lanes;
    int open;       /* requests under way */
    uint64_t bytes; /* of their bodies */
};

/* The table that kserve.h takes; `desk` outlives it. */
struct kserve_backend pool_infer_backend(struct pool_infer_desk *desk);

#endif
