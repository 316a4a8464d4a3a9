/* The times of a request to pools, as a member of the answer to a client that asked for them
 * (docs/api.md, KServe v2). Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_INFER_TIMES_H
#define HP_COORDINATOR_GATEWAY_INFER_TIMES_H

#include "common/bytes.h"
#include "coordinator/infer_times.h"

/* "timings":{...}: seconds since the request came, and at_s, when that was by the coordinator's
 * clock. */
void infer_times_write(const struct infer_times *t, struct buffer *out);

#endif
