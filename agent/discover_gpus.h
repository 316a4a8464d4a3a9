/* The GPUs of this box and where they sit: what the driver's library says of each, and from hwloc's
 * tree which of them share a PCIe root port or switch with each other and with network cards. */
#ifndef HP_AGENT_DISCOVER_GPUS_H
#define HP_AGENT_DISCOVER_GPUS_H

#include <hwloc.h>
#include <jansson.h>

#include "agent/nvml.h"

enum { DISCOVER_MAX_GPUS = 64 };

/* Adds to a node of hp-cluster/1: GPUs to its "devices" ("usable": false with "why", since nothing
 * computes on them yet), their PCIe roots to "buses", and as "near" the pairs of GPU and NIC, or of
 * two GPUs, with what is the closest that they share: "switch", "root port" or "host bridge". NICs
 * get "numa_node" and "pci". `nvml` NULL: there is no such library, and only what PCI shows is
 * told. Read-only; any thread. */
void discover_gpus_add(json_t *node, hwloc_topology_t tree, const struct nvml *nvml);

#endif
