/* One agent as people read it: what it is, then its devices, stages and weights
 * and what computes on its CPU as tables. All that
 * is known of its box stands in `-o json` and `hpctl topo`. */
#ifndef HP_HPCTL_NODE_VIEW_H
#define HP_HPCTL_NODE_VIEW_H

#include <jansson.h>

#include "common/bytes.h"
#include "common/status.h"

/* Appends what `node.describe` answered. HP_ENOMEM. */
int node_view_write(const json_t *node, struct buffer *out, struct err *e);

#endif
