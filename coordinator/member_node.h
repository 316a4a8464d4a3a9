/* The node of an agent: as the agent told it, and read. Never changes once it is made. */
#ifndef HP_COORDINATOR_MEMBER_NODE_H
#define HP_COORDINATOR_MEMBER_NODE_H

#include <jansson.h>

#include "common/cluster.h"

/* A hop of the device that a paced agent stands for. */
struct paced_link {
    const char *to; /* a device's id, of the cluster that is paced */
    struct cluster_wire wire;
};

/* What a device says that it can do; 0: not told. */
struct node_speed {
    double flops_per_s, memory_bytes_per_s;
};

struct member_node {
    json_t *told;              /* of hp-cluster/1, for people, files and the store */
    struct cluster cluster;    /* the same: one node, and at least one device; stages run on each */
    struct node_speed *speeds; /* [cluster.n_devices] */
    double
        nic_bytes_per_s; /* of its first network card, as the card says; 0: not told, or assumed */
    uint64_t pool_bytes; /* that received frames may hold beside its devices' memory; UINT64_MAX:
                            not told */
    /* Of a paced agent; "" and NULL for all others. */
    const char *paced_as;      /* the device that it stands for */
    const char *paced_profile; /* SHA-256 of the profile that it runs by */
    struct paced_link *paced_links;
    int n_paced_links;
};

/* Takes `told`, whether it can be read or not. HP_EPARSE, HP_ELIMIT, HP_ENOMEM. */
int member_node_read(json_t *told, struct member_node **out, struct err *e);
void member_node_free(struct member_node **n);

/* What the agent told of a device beside what every cluster file says of one; NULL: nothing. */
const json_t *member_node_told(const struct member_node *n, int device);
/* The hop to another paced agent's device; NULL: none is told. */
const struct cluster_wire *member_node_paced_link(const struct member_node *n, const char *to);
/* Its first network card, and those after it; of a node that told of none one that is assumed. */
const struct cluster_nic *member_node_card(const struct member_node *n);
/* The first of these names (of operators and number formats; ends with NULL, or is NULL) that the
 * node's devices do not say they run; NULL: none, or the node says nothing of it. */
const char *member_node_lacks(const struct member_node *n, const char *const *names);

#endif
