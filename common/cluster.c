#include "common/cluster.h"

#include <string.h>

int cluster_load(const char *file, struct cluster *out, struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_load_at(file, &root, &at, e);
    if (rc < 0)
        return rc;
    rc = cluster_from_json(&at, out, e);
    json_decref(root);
    return rc;
}

void cluster_free(struct cluster *c)
{
    arena_free(&c->arena);
    *c = (struct cluster){0};
}

int cluster_find_device(const struct cluster *c, const char *id)
{
    for (int i = 0; i < c->n_devices; i++)
        if (strcmp(c->devices[i].id, id) == 0)
            return i;
    return -1;
}

int cluster_find_node(const struct cluster *c, const char *name)
{
    for (int i = 0; i < c->n_nodes; i++)
        if (strcmp(c->nodes[i].name, name) == 0)
            return i;
    return -1;
}

struct cluster_wire cluster_cards_wire(const struct cluster_nic *a, const struct cluster_nic *b)
{
    const struct cluster_wire *x = &a->wire, *y = &b->wire;
    return (struct cluster_wire){
        x->bandwidth_bytes_per_s < y->bandwidth_bytes_per_s ? x->bandwidth_bytes_per_s
                                                            : y->bandwidth_bytes_per_s,
        x->latency_s + y->latency_s,
    };
}

/* The hop without the measured links. */
static struct cluster_wire unmeasured_hop(const struct cluster *c, int from, int to)
{
    const struct cluster_node *a = &c->nodes[c->devices[from].node],
                              *b = &c->nodes[c->devices[to].node];
    if (a == b) {
        for (int i = 0; i < a->n_peer_links; i++)
            if ((a->peer_links[i].a == from && a->peer_links[i].b == to) ||
                (a->peer_links[i].a == to && a->peer_links[i].b == from))
                return a->peer_links[i].wire;
        return a->has_device_link ? a->device_link : (struct cluster_wire){0, 0};
    }
    if (a->n_nics == 0 || b->n_nics == 0)
        return (struct cluster_wire){0, 0};
    return cluster_cards_wire(&a->nics[0], &b->nics[0]);
}

struct cluster_wire cluster_hop(const struct cluster *c, int from, int to)
{
    for (int i = 0; i < c->n_links; i++) {
        const struct cluster_link *link = &c->links[i];
        if ((link->from == from && link->to == to) ||
            (link->reverse_only_implied && link->from == to && link->to == from))
            return link->wire;
    }
    return unmeasured_hop(c, from, to);
}

/* Where a device stands in the list; -1 when it does not. */
static int place_in(const int *devices, int n, int device)
{
    for (int i = 0; i < n; i++)
        if (devices[i] == device)
            return i;
    return -1;
}

void cluster_hops(const struct cluster *c, const int *devices, int n, struct cluster_wire *out)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            out[i * n + k] = unmeasured_hop(c, devices[i], devices[k]);
    /* Backwards, so that of two measurements of one link the first stands, as in cluster_hop. */
    for (int l = c->n_links - 1; l >= 0; l--) {
        const struct cluster_link *link = &c->links[l];
        int from = place_in(devices, n, link->from), to = place_in(devices, n, link->to);
        if (from < 0 || to < 0)
            continue;
        out[from * n + to] = link->wire;
        if (link->reverse_only_implied)
            out[to * n + from] = link->wire;
    }
}
