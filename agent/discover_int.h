/* What the files of discovery share: the tree of this box, as hwloc has it. */
#ifndef HP_AGENT_DISCOVER_INT_H
#define HP_AGENT_DISCOVER_INT_H

#include <hwloc.h>

#include "agent/discover.h"

/* Reads the box, or what stands for one; the caller destroys the tree. HP_EDEVICE. */
int discover_tree_open(const struct discover_box *box, hwloc_topology_t *out, struct err *e);

#endif
