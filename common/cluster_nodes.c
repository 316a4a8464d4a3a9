/* Reading the nodes of hp-cluster/1: devices, buses, NICs and peer links. */
#include <string.h>

#include "common/cluster_int.h"

/* The device of this name on a node; -1 when there is none, HP_ENOMEM. */
static int device_find(struct cluster_reader *r, const struct cluster_node *node, const char *name)
{
    const char *id = arena_printf(&r->arena, "%s/%s", node->name, name);
    return id ? cluster_name_find(r->devices, id) : HP_ENOMEM;
}

static int read_buses(struct cluster *c, struct cluster_node *node, const struct json_at *at,
                      struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = cluster_optional_array(at, "buses", &list, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    node->buses = arena_alloc(&c->arena, n, sizeof *node->buses);
    if (!node->buses)
        return json_no_memory(at, e);
    for (; rc == 0 && (size_t)node->n_buses < n; node->n_buses++) {
        struct json_at item = json_item(&list, (size_t)node->n_buses);
        struct cluster_bus *bus = &node->buses[node->n_buses];
        const char *name;
        if ((rc = json_get_string(&item, "name", &name, e)) < 0)
            return rc;
        if (!(bus->name = arena_strdup(&c->arena, name)))
            return json_no_memory(at, e);
        rc = json_get_number_min(&item, "bandwidth_bytes_per_s", 0, &bus->bandwidth_bytes_per_s, e);
    }
    return rc;
}

static int read_nics(struct cluster *c, struct cluster_node *node, const struct json_at *at,
                     struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = cluster_optional_array(at, "nics", &list, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    node->nics = arena_alloc(&c->arena, n, sizeof *node->nics);
    if (!node->nics)
        return json_no_memory(at, e);
    for (; rc == 0 && (size_t)node->n_nics < n; node->n_nics++) {
        struct json_at item = json_item(&list, (size_t)node->n_nics);
        const char *name;
        if ((rc = json_opt_string(&item, "name", "", &name, e)) < 0)
            return rc;
        if (!(node->nics[node->n_nics].name = arena_strdup(&c->arena, name)))
            return json_no_memory(at, e);
        rc = cluster_read_wire(&item, &node->nics[node->n_nics].wire, e);
    }
    return rc;
}

static int read_device(struct cluster_reader *r, struct cluster_node *node,
                       const struct json_at *at, struct err *e)
{
    struct cluster *c = &r->c;
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
    d->node = (int)(node - c->nodes);
    d->bus = -1;
    for (int i = 0; bus && i < node->n_buses; i++)
        if (strcmp(node->buses[i].name, bus) == 0)
            d->bus = i;
    if (bus && d->bus < 0)
        return json_fail(at, e, "bus \"%s\" is not among the node's buses", bus);
    d->name = arena_strdup(&c->arena, name);
    d->kind = arena_strdup(&c->arena, kind);
    d->id = arena_printf(&c->arena, "%s/%s", node->name, name);
    if (!d->name || !d->kind || !d->id)
        return json_no_memory(at, e);
    if (cluster_name_find(r->devices, d->id) >= 0)
        return json_fail(at, e, "the node has two devices named \"%s\"", name);
    if (cluster_name_add(r, &r->devices, d->id, c->n_devices) < 0)
        return json_no_memory(at, e);
    node->n_devices++;
    c->n_devices++;
    return 0;
}

static int read_peer_links(struct cluster_reader *r, struct cluster_node *node,
                           const struct json_at *at, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = cluster_optional_array(at, "peer_links", &list, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    node->peer_links = arena_alloc(&r->c.arena, n, sizeof *node->peer_links);
    if (!node->peer_links)
        return json_no_memory(at, e);
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
            if ((*ends[k] = device_find(r, node, name)) == HP_ENOMEM)
                return json_no_memory(at, e);
            if (*ends[k] < 0)
                return json_fail(&end, e, "no device \"%s\" on node \"%s\"", name, node->name);
        }
        if ((rc = cluster_read_wire(&item, &link->wire, e)) < 0)
            return rc;
    }
    node->n_peer_links = (int)n;
    return 0;
}

static int read_node(struct cluster_reader *r, const char *name, const struct json_at *at,
                     struct err *e)
{
    struct cluster *c = &r->c;
    struct cluster_node *node = &c->nodes[c->n_nodes];
    struct json_at list, link;
    size_t n;
    int rc;
    if (cluster_name_find(r->nodes, name) >= 0)
        return json_fail(at, e, "two nodes are named \"%s\"", name);
    if (cluster_name_add(r, &r->nodes, name, c->n_nodes) < 0)
        return json_no_memory(at, e);
    node->name = name;
    node->first_device = c->n_devices;
    if ((rc = read_buses(c, node, at, e)) < 0 || (rc = read_nics(c, node, at, e)) < 0 ||
        (rc = json_get(at, "devices", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_device(r, node, &item, e)) < 0)
            return rc;
    }
    if (json_find(at, "device_link", &link)) {
        if ((rc = cluster_read_wire(&link, &node->device_link, e)) < 0)
            return rc;
        node->has_device_link = true;
    }
    c->n_nodes++;
    return read_peer_links(r, node, at, e);
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

/* Room for all nodes of n items, and their devices. */
static int nodes_reserve(struct cluster_reader *r, const struct json_at *list, size_t n,
                         struct err *e)
{
    struct cluster *c = &r->c;
    size_t total_nodes = 0, total_devices = 0, devices;
    uint64_t count;
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(list, i);
        int rc = read_node_count(&item, &count, &devices, e);
        if (rc < 0)
            return rc;
        total_nodes += count;
        if (devices > CLUSTER_MAX_DEVICES ||
            (total_devices += count * devices) > CLUSTER_MAX_DEVICES ||
            total_nodes > CLUSTER_MAX_DEVICES)
            return json_fail(list, e, "more than %d nodes or devices", CLUSTER_MAX_DEVICES);
    }
    c->nodes = arena_alloc(&c->arena, total_nodes + 1, sizeof *c->nodes);
    c->devices = arena_alloc(&c->arena, total_devices + 1, sizeof *c->devices);
    return c->nodes && c->devices ? 0 : json_no_memory(list, e);
}

/* An item that stands for `count` nodes: NAME, or NAME-0, NAME-1, ... */
static int read_equal_nodes(struct cluster_reader *r, const struct json_at *item, struct err *e)
{
    struct cluster *c = &r->c;
    uint64_t count;
    size_t devices;
    const char *name;
    int rc = json_get_string(item, "name", &name, e);
    rc = rc < 0 ? rc : read_node_count(item, &count, &devices, e);
    for (uint64_t k = 0; rc == 0 && k < count; k++) {
        const char *own = count == 1
                              ? arena_strdup(&c->arena, name)
                              : arena_printf(&c->arena, "%s-%llu", name, (unsigned long long)k);
        rc = own ? read_node(r, own, item, e) : json_no_memory(item, e);
    }
    return rc;
}

int cluster_read_nodes(struct cluster_reader *r, const struct json_at *list, struct err *e)
{
    size_t n;
    int rc = json_as_array(list, &n, e);
    rc = rc < 0 ? rc : nodes_reserve(r, list, n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(list, i);
        rc = read_equal_nodes(r, &item, e);
    }
    return rc;
}
