/* The layers of a network: what stands between two places at which its plan of the smallest batch
 * can be cut. A layer is known by its first node, so plans of other batches have the same layers,
 * whatever steps theirs are. Profiles and plans of pools count layers so. Pure. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_LAYERS_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_LAYERS_H

#include "agent/engine/network/network_plan.h"

/* Layers of a plan: a new one with each step whose node comes after all nodes so far. first[i] is
 * the first node of layer i, with room for as many as the plan has steps. Returns how many;
 * HP_EUNSUPPORTED: none. */
int network_layers_find(const struct network_plan *p, int *first, struct err *e);
/* The step at which a layer begins in any plan of the network, and the one before ends; layer
 * n_layers: behind the last step. */
int network_layers_step(const struct network_plan *p, const int *first, int n_layers, int layer);

#endif
