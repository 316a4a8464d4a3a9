/* Draws a cluster (hp-cluster/1 as JSON, what people want to see included): nodes as boxes with
 * their devices, buses and network cards, and the measured links between them. */
#ifndef HP_HPCTL_TOPO_SVG_H
#define HP_HPCTL_TOPO_SVG_H

#include <jansson.h>

#include "common/bytes.h"

/* Appends a page of SVG, readable without scripts. 0 or HP_ENOMEM. */
int topo_svg_write(const json_t *cluster, struct buffer *out);

#endif
