/* What a profile says of a network's layers beside their times. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_PROFILE_LAYERS_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_PROFILE_LAYERS_H

#include "agent/engine/network/network_plan.h"
#include "agent/engine/network/network_profile.h"

/* Of the smallest batch's plan: how many there are. first[] and layers[] have room for as many as
 * the plan has steps; first[i] is the first node of layer i. Of the last one the bytes that it
 * hands on are not known. HP_EUNSUPPORTED: nothing is left to run; HP_ENOMEM. */
int network_profile_layers_make(const struct onnx_network *n, const struct network_plan *p,
                                int *first, struct network_profile_layer *layers, struct err *e);
/* layers[step] of any batch's plan. */
void network_profile_steps_assign(const struct network_plan *p, const int *first, int n_layers,
                                  int *layers);

#endif
