/* A cluster (hp-cluster/1) as tables. */
#ifndef HP_HPCTL_TOPO_VIEW_H
#define HP_HPCTL_TOPO_VIEW_H

#include <jansson.h>

#include "common/status.h"

/* Devices and NICs, the links between agents, and the pairs that cannot talk. */
int topo_view_print(const json_t *cluster, struct err *e);

#endif
