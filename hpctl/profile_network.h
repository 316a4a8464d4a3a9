/* `hpctl profile model MODEL.onnx`: what a network's blocks cost on the cluster's devices, measured
 * by its agents. */
#ifndef HP_HPCTL_PROFILE_NETWORK_H
#define HP_HPCTL_PROFILE_NETWORK_H

#include "hpctl/command.h"

/* Asks the cluster, sends the network where nobody has it, shows how it goes, prints or writes
 * hp-profile/1. The verb has the options of profile_onnx.h, and nodes, agents, upload, context. */
int profile_network(struct invocation *in, struct err *e);

#endif
