/* What there is: nodes, devices, buses and links (file format hp-cluster/1).
 *
 * A node with `count` n > 1 is read as n nodes `name-0` … `name-(n-1)`. A hypothetical cluster
 * gives `pools` of equal devices instead of nodes; then `devices` is empty and only the pools and
 * the one NIC that all nodes have are known. */
#ifndef HP_COMMON_CLUSTER_H
#define HP_COMMON_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/json.h"
#include "common/status.h"

enum { CLUSTER_MAX_DEVICES = 200000 };

/* Between two processes of one box, where nothing was measured: what agents say of their loopback,
 * and what plans count for two agents of one box. */
#define CLUSTER_LOOPBACK_BYTES_PER_S 2e9
#define CLUSTER_LOOPBACK_LATENCY_S 3e-5

struct cluster_wire {
    double bandwidth_bytes_per_s; /* 0: no path */
    double latency_s;
};

struct cluster_device {
    const char *id;   /* "node/device" */
    const char *name; /* "gpu0" */
    const char *kind; /* "P100" */
    int node;
    int bus; /* index into its node's buses; -1: none */
    double memory_bytes, idle_w, busy_w;
};

struct cluster_bus {
    const char *name;
    double bandwidth_bytes_per_s;
};

struct cluster_nic {
    const char *name;
    struct cluster_wire wire;
};

struct cluster_peer_link {
    int a, b; /* devices of the cluster, of one node */
    struct cluster_wire wire;
};

struct cluster_node {
    const char *name;
    int first_device, n_devices; /* its run in cluster.devices */
    struct cluster_bus *buses;
    int n_buses;
    struct cluster_nic *nics;
    int n_nics;
    bool has_device_link;
    struct cluster_wire device_link;
    struct cluster_peer_link *peer_links;
    int n_peer_links;
};

struct cluster_link {
    int from, to; /* devices */
    struct cluster_wire wire;
    bool reverse_only_implied; /* the file gives no measurement of the way back, so this one serves
                                  it */
};

struct cluster_pool {
    const char *kind;
    int count;
    int devices_per_node;
};

struct cluster {
    struct arena arena; /* owns all below */
    struct cluster_node *nodes;
    int n_nodes;
    struct cluster_device *devices; /* in file order, node by node */
    int n_devices;
    struct cluster_link *links;
    int n_links;
    bool hypothetical; /* given as pools */
    struct cluster_wire pool_nic;
    struct cluster_pool
        *pools; /* devices by kind, in order of first appearance, in both forms of the file */
    int n_pools;
};

/* Reads a file or a document. On failure nothing is left to free. Zero-initialise before. */
int cluster_load(const char *file, struct cluster *out, struct err *e);
int cluster_from_json(const struct json_at *at, struct cluster *out, struct err *e);
void cluster_free(struct cluster *c);

/* Index of a device by id or of a node by name; -1 when there is none. */
int cluster_find_device(const struct cluster *c, const char *id);
int cluster_find_node(const struct cluster *c, const char *name);

/* Between two network cards, where nobody measured: the slower one's bytes, both latencies. */
struct cluster_wire cluster_cards_wire(const struct cluster_nic *a, const struct cluster_nic *b);
/* The hop from one device to another: measured link, else peer link, else device link within a
 * node, else the two nodes' first NICs. A bandwidth of 0 says that there is no path. */
struct cluster_wire cluster_hop(const struct cluster *c, int from, int to);
/* The same for every ordered pair of n devices at once: out[i * n + k] is the hop from devices[i]
 * to devices[k]. Takes time for n * n pairs plus the links once, where n * n calls of cluster_hop
 * would look through the links each. */
void cluster_hops(const struct cluster *c, const int *devices, int n, struct cluster_wire *out);

#endif
