/* The cluster as people and planners' files have it (hp-cluster/1). */
#ifndef HP_COORDINATOR_TOPOLOGY_H
#define HP_COORDINATOR_TOPOLOGY_H

#include <jansson.h>

struct coord;

/* Every member that has told its node, and beside them `unreachable`: [{"from", "to", "address",
 * "why"}], pairs whose data path did not work when it was last tried, and `doubted`: [{"from",
 * "to", "measured_bytes_per_s", "bandwidth_bytes_per_s"}], pairs whose last result is not believed
 * before it comes again, and what goes on to count. */
json_t *topology_document(const struct coord *c);

#endif
