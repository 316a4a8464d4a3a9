/* The cluster as people and planners' files have it (hp-cluster/1). */
#ifndef HP_COORDINATOR_TOPOLOGY_H
#define HP_COORDINATOR_TOPOLOGY_H

#include <jansson.h>

struct coord;

/* Every member that has told its node, and beside them `unreachable`: [{"from", "to", "address",
 * "why"}], pairs whose data path did not work when it was last tried. */
json_t *topology_document(const struct coord *c);

#endif
