#include "common/cluster.h"

#include <stdlib.h>
#include <string.h>

static int read_wire(const struct json_at *at, struct cluster_wire *out, struct err *e)
{
    int rc = json_get_number_min(at, "bandwidth_bytes_per_s", 0, &out->bandwidth_bytes_per_s, e);
    return rc < 0 ? rc : json_opt_number_min(at, "latency_s", 0, 0, &out->latency_s, e);
}

static int no_memory(const struct json_at *at, struct err *e)
{
    return err_set(e, HP_ENOMEM, "%s: out of memory while reading", at->file);
}

/* How many members an optional array has; the place of the array in *list. */
static int optional_array(const struct json_at *at, const char *key, struct json_at *list,
                          size_t *count, struct err *e)
{
    *count = 0;
    return json_find(at, key, list) ? json_as_array(list, count, e) : 0;
}

static int find_in_node(const struct cluster *c, const struct cluster_node *node, const char *name)
{
    for (int i = node->first_device; i < node->first_device + node->n_devices; i++)
        if (strcmp(c->devices[i].name, name) == 0)
            return i;
    return -1;
}

static int read_buses(struct cluster *c, struct cluster_node *node, const struct json_at *at,
                      struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = optional_array(at, "buses", &list, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    node->buses = arena_alloc(&c->arena, n, sizeof *node->buses);
    if (!node->buses)
        return no_memory(at, e);
    for (; rc == 0 && (size_t)node->n_buses < n; node->n_buses++) {
        struct json_at item = json_item(&list, (size_t)node->n_buses);
        struct cluster_bus *bus = &node->buses[node->n_buses];
        const char *name;
        if ((rc = json_get_string(&item, "name", &name, e)) < 0)
            return rc;
        bus->name = arena_strdup(&c->arena, name);
        rc = json_get_number_min(&item, "bandwidth_bytes_per_s", 0, &bus->bandwidth_bytes_per_s, e);
    }
    return rc;
}

static int read_nics(struct cluster *c, struct cluster_node *node, const struct json_at *at,
                     struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = optional_array(at, "nics", &list, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    node->nics = arena_alloc(&c->arena, n, sizeof *node->nics);
    if (!node->nics)
        return no_memory(at, e);
    for (; rc == 0 && (size_t)node->n_nics < n; node->n_nics++) {
        struct json_at item = json_item(&list, (size_t)node->n_nics);
        const char *name;
        if ((rc = json_opt_string(&item, "name", "", &name, e)) < 0)
            return rc;
        node->nics[node->n_nics].name = arena_strdup(&c->arena, name);
        rc = read_wire(&item, &node->nics[node->n_nics].wire, e);
    }
    return rc;
}

static int read_device(struct cluster *c, struct cluster_node *node, int node_index,
                       const struct json_at *at, struct err *e)
{
    struct cluster_device *d = &c->devices[c->n_devices];
    const char *name, *kind, *bus;
    int rc;
    if (json_is_false(json_object_get(at->value, "usable")))
        return 0; /* told for people: nothing computes on it */
    if ((rc = json_get_string(at, "name", &name, e)) < 0 ||
        (rc = json_get_string(at, "kind", &kind, e)) < 0 ||
        (rc = json_get_number_min(at, "memory_bytes", 0, &d->memory_bytes, e)) < 0 ||
        (rc = json_opt_number_min(at, "idle_w", 0, 0, &d->idle_w, e)) < 0 ||
        (rc = json_opt_number_min(at, "busy_w", 0, 0, &d->busy_w, e)) < 0 ||
        (rc = json_opt_string(at, "bus", NULL, &bus, e)) < 0)
        return rc;
    d->node = node_index;
    d->bus = -1;
    for (int i = 0; bus && i < node->n_buses; i++)
        if (strcmp(node->buses[i].name, bus) == 0)
            d->bus = i;
    if (bus && d->bus < 0)
        return json_fail(at, e, "bus \"%s\" is not among the node's buses", bus);
    if (find_in_node(c, node, name) >= 0)
        return json_fail(at, e, "the node has two devices named \"%s\"", name);
    d->name = arena_strdup(&c->arena, name);
    d->kind = arena_strdup(&c->arena, kind);
    d->id = arena_printf(&c->arena, "%s/%s", node->name, name);
    if (!d->name || !d->kind || !d->id)
        return no_memory(at, e);
    node->n_devices++;
    c->n_devices++;
    return 0;
}

static int read_peer_links(struct cluster *c, struct cluster_node *node, const struct json_at *at,
                           struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = optional_array(at, "peer_links", &list, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    node->peer_links = arena_alloc(&c->arena, n, sizeof *node->peer_links);
    if (!node->peer_links)
        return no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i), between;
        struct cluster_peer_link *link = &node->peer_links[i];
        int *ends[2] = {&link->a, &link->b};
        size_t two;
        if ((rc = json_get(&item, "between", &between, e)) < 0 ||
            (rc = json_as_array(&between, &two, e)) < 0)
            return rc;
        if (two != 2)
            return json_fail(&between, e, "names %zu devices, not 2", two);
        for (size_t k = 0; k < 2; k++) {
            struct json_at end = json_item(&between, k);
            const char *name;
            if ((rc = json_as_string(&end, &name, e)) < 0)
                return rc;
            if ((*ends[k] = find_in_node(c, node, name)) < 0)
                return json_fail(&end, e, "no device \"%s\" on node \"%s\"", name, node->name);
        }
        if ((rc = read_wire(&item, &link->wire, e)) < 0)
            return rc;
    }
    node->n_peer_links = (int)n;
    return 0;
}

static int read_node(struct cluster *c, const char *name, const struct json_at *at, struct err *e)
{
    struct cluster_node *node = &c->nodes[c->n_nodes];
    struct json_at list, link;
    size_t n;
    int rc;
    if (cluster_find_node(c, name) >= 0)
        return json_fail(at, e, "two nodes are named \"%s\"", name);
    node->name = name;
    node->first_device = c->n_devices;
    if ((rc = read_buses(c, node, at, e)) < 0 || (rc = read_nics(c, node, at, e)) < 0 ||
        (rc = json_get(at, "devices", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_device(c, node, c->n_nodes, &item, e)) < 0)
            return rc;
    }
    if (json_find(at, "device_link", &link)) {
        if ((rc = read_wire(&link, &node->device_link, e)) < 0)
            return rc;
        node->has_device_link = true;
    }
    c->n_nodes++;
    return read_peer_links(c, node, at, e);
}

static int read_node_count(const struct json_at *item, uint64_t *count, size_t *devices,
                           struct err *e)
{
    struct json_at list;
    int rc;
    if ((rc = json_opt_u64(item, "count", 1, count, e)) < 0 ||
        (rc = json_get(item, "devices", &list, e)) < 0 ||
        (rc = json_as_array(&list, devices, e)) < 0)
        return rc;
    if (*count == 0 || *count > CLUSTER_MAX_DEVICES)
        return json_fail(item, e, "\"count\" %llu is not between 1 and %d",
                         (unsigned long long)*count, CLUSTER_MAX_DEVICES);
    return 0;
}

static int read_nodes(struct cluster *c, const struct json_at *list, struct err *e)
{
    size_t n, total_nodes = 0, total_devices = 0;
    int rc = json_as_array(list, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(list, i);
        uint64_t count;
        size_t devices;
        if ((rc = read_node_count(&item, &count, &devices, e)) < 0)
            return rc;
        total_nodes += count;
        if (devices > CLUSTER_MAX_DEVICES ||
            (total_devices += count * devices) > CLUSTER_MAX_DEVICES ||
            total_nodes > CLUSTER_MAX_DEVICES)
            return json_fail(list, e, "more than %d nodes or devices", CLUSTER_MAX_DEVICES);
    }
    if (rc < 0)
        return rc;
    c->nodes = arena_alloc(&c->arena, total_nodes + 1, sizeof *c->nodes);
    c->devices = arena_alloc(&c->arena, total_devices + 1, sizeof *c->devices);
    if (!c->nodes || !c->devices)
        return no_memory(list, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(list, i);
        uint64_t count;
        size_t devices;
        const char *name;
        if ((rc = json_get_string(&item, "name", &name, e)) < 0 ||
            (rc = read_node_count(&item, &count, &devices, e)) < 0)
            return rc;
        for (uint64_t k = 0; k < count; k++) {
            const char *own = count == 1
                                  ? arena_strdup(&c->arena, name)
                                  : arena_printf(&c->arena, "%s-%llu", name, (unsigned long long)k);
            if (!own)
                return no_memory(list, e);
            if ((rc = read_node(c, own, &item, e)) < 0)
                return rc;
        }
    }
    return 0;
}

static int read_link_end(struct cluster *c, const struct json_at *item, const char *key, int *out,
                         struct err *e)
{
    struct json_at end;
    const char *id;
    int rc;
    if ((rc = json_get(item, key, &end, e)) < 0 || (rc = json_as_string(&end, &id, e)) < 0)
        return rc;
    *out = cluster_find_device(c, id);
    return *out < 0 ? json_fail(&end, e, "no device \"%s\"", id) : 0;
}

static int by_ends(const void *a, const void *b)
{
    const struct cluster_link *x = *(struct cluster_link *const *)a,
                              *y = *(struct cluster_link *const *)b;
    return x->from != y->from ? (x->from < y->from ? -1 : 1)
           : x->to != y->to   ? (x->to < y->to ? -1 : 1)
                              : 0;
}

/* Links whose way back was measured too serve their own direction only. A measured matrix of a few
 * hundred devices has tens of thousands of links, so they are looked up in order. */
static int mark_both_ways(struct cluster *c, const struct json_at *at, struct err *e)
{
    size_t n = (size_t)c->n_links;
    struct cluster_link **sorted = arena_alloc(&c->arena, n + 1, sizeof *sorted);
    if (!sorted)
        return no_memory(at, e);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &c->links[i];
    qsort(sorted, n, sizeof *sorted, by_ends);
    for (size_t i = 0; i < n; i++) {
        struct cluster_link back = {.from = c->links[i].to, .to = c->links[i].from}, *key = &back;
        c->links[i].reverse_only_implied =
            bsearch(&key, sorted, n, sizeof *sorted, by_ends) == NULL;
    }
    return 0;
}

static int read_links(struct cluster *c, const struct json_at *at, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = optional_array(at, "links", &list, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    c->links = arena_alloc(&c->arena, n, sizeof *c->links);
    if (!c->links)
        return no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        struct cluster_link *link = &c->links[i];
        if ((rc = read_link_end(c, &item, "from", &link->from, e)) < 0 ||
            (rc = read_link_end(c, &item, "to", &link->to, e)) < 0 ||
            (rc = read_wire(&item, &link->wire, e)) < 0)
            return rc;
    }
    c->n_links = (int)n;
    return mark_both_ways(c, at, e);
}

static int read_pools(struct cluster *c, const struct json_at *at, const struct json_at *list,
                      struct err *e)
{
    size_t n;
    struct json_at nic;
    int rc = json_as_array(list, &n, e);
    if (rc < 0)
        return rc;
    c->hypothetical = true;
    c->pools = arena_alloc(&c->arena, n + 1, sizeof *c->pools);
    if (!c->pools)
        return no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(list, i);
        struct cluster_pool *pool = &c->pools[c->n_pools];
        const char *kind;
        uint64_t count, per_node;
        if ((rc = json_get_string(&item, "kind", &kind, e)) < 0 ||
            (rc = json_get_u64(&item, "count", &count, e)) < 0 ||
            (rc = json_opt_u64(&item, "devices_per_node", 1, &per_node, e)) < 0)
            return rc;
        if (count > CLUSTER_MAX_DEVICES || per_node == 0 || per_node > 1024)
            return json_fail(&item, e, "count %llu or devices_per_node %llu is out of range",
                             (unsigned long long)count, (unsigned long long)per_node);
        for (int k = 0; k < c->n_pools; k++)
            if (strcmp(c->pools[k].kind, kind) == 0)
                return json_fail(&item, e, "two pools are of kind \"%s\"", kind);
        pool->kind = arena_strdup(&c->arena, kind);
        pool->count = (int)count;
        pool->devices_per_node = (int)per_node;
        c->n_pools++;
    }
    return json_find(at, "nic", &nic) ? read_wire(&nic, &c->pool_nic, e) : 0;
}

/* Devices by kind of a cluster that was given as nodes. */
static int count_pools(struct cluster *c, const struct json_at *at, struct err *e)
{
    c->pools = arena_alloc(&c->arena, (size_t)c->n_devices + 1, sizeof *c->pools);
    if (!c->pools)
        return no_memory(at, e);
    for (int i = 0; i < c->n_devices; i++) {
        int k = 0, same = 0;
        while (k < c->n_pools && strcmp(c->pools[k].kind, c->devices[i].kind) != 0)
            k++;
        if (k == c->n_pools)
            c->pools[c->n_pools++].kind = c->devices[i].kind;
        c->pools[k].count++;
        for (int j = i; j >= 0 && c->devices[j].node == c->devices[i].node; j--)
            same += strcmp(c->devices[j].kind, c->devices[i].kind) == 0;
        if (same > c->pools[k].devices_per_node)
            c->pools[k].devices_per_node = same;
    }
    return 0;
}

int cluster_from_json(const struct json_at *at, struct cluster *out, struct err *e)
{
    struct json_at list;
    struct cluster c = {0};
    int rc = json_expect_format(at, "hp-cluster/1", e);
    if (rc == 0 && json_find(at, "pools", &list))
        rc = read_pools(&c, at, &list, e);
    else if (rc == 0 && (rc = json_get(at, "nodes", &list, e)) == 0 &&
             (rc = read_nodes(&c, &list, e)) == 0 && (rc = read_links(&c, at, e)) == 0)
        rc = count_pools(&c, at, e);
    if (rc < 0)
        arena_free(&c.arena);
    else
        *out = c;
    return rc;
}

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
    const struct cluster_wire *x = &a->nics[0].wire, *y = &b->nics[0].wire;
    return (struct cluster_wire){
        x->bandwidth_bytes_per_s < y->bandwidth_bytes_per_s ? x->bandwidth_bytes_per_s
                                                            : y->bandwidth_bytes_per_s,
        x->latency_s + y->latency_s,
    };
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
