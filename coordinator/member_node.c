#include "coordinator/member_node.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/state.h"
#include "transport/message.h"

static double number_of(const json_t *object, const char *key)
{
    double v = json_number_value(json_object_get(object, key));
    return v > 0 ? v : 0;
}

static int cluster_read(struct member_node *n, struct err *e)
{
    json_t *document = json_pack("{s:s, s:[O]}", "format", "hp-cluster/1", "nodes", n->told);
    struct json_at at = {.file = "node in \"join\"", .value = document};
    int rc = document ? cluster_from_json(&at, &n->cluster, e)
                      : err_set(e, HP_ENOMEM, "no memory for a node");
    json_decref(document);
    if (rc == 0 && n->cluster.n_devices == 0)
        rc = err_set(e, HP_EPARSE, "the node in \"join\" has no device");
    if (rc == 0 && n->cluster.n_devices > MESSAGE_MAX_DEVICES)
        rc = err_set(e, HP_ELIMIT, "the node in \"join\" has %d devices; %d are the limit",
                     n->cluster.n_devices, MESSAGE_MAX_DEVICES);
    for (int i = 0; rc == 0 && i < n->cluster.n_devices; i++)
        if (strlen(n->cluster.devices[i].kind) >= DEVICE_KIND)
            rc = err_set(e, HP_EPARSE, "the kind of %.80s has more than %d bytes",
                         n->cluster.devices[i].id, DEVICE_KIND - 1);
    return rc;
}

const json_t *member_node_told(const struct member_node *n, int device)
{
    const json_t *devices = json_object_get(n->told, "devices"), *row;
    size_t i;
    json_array_foreach(devices, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        if (name && strcmp(name, n->cluster.devices[device].name) == 0)
            return row;
    }
    return NULL;
}

static int speeds_read(struct member_node *n, struct err *e)
{
    size_t count = (size_t)n->cluster.n_devices;
    n->speeds = arena_alloc(&n->cluster.arena, count, sizeof *n->speeds);
    if (!n->speeds)
        return err_set(e, HP_ENOMEM, "no memory for a node");
    for (size_t i = 0; i < count; i++) {
        const json_t *device = member_node_told(n, (int)i);
        n->speeds[i] = (struct node_speed){number_of(device, "flops_per_s"),
                                           number_of(device, "memory_bytes_per_s")};
    }
    return 0;
}

static int paced_links_read(struct member_node *n, const json_t *links, struct err *e)
{
    size_t count = json_array_size(links);
    n->paced_links = arena_alloc(&n->cluster.arena, count + 1, sizeof *n->paced_links);
    if (!n->paced_links)
        return err_set(e, HP_ENOMEM, "no memory for a node");
    for (size_t i = 0; i < count; i++) {
        const json_t *l = json_array_get(links, i);
        const char *to = json_string_value(json_object_get(l, "to"));
        if (to)
            n->paced_links[n->n_paced_links++] = (struct paced_link){
                to, {number_of(l, "bandwidth_bytes_per_s"), number_of(l, "latency_s")}};
    }
    return 0;
}

int member_node_read(json_t *told, struct member_node **out, struct err *e)
{
    struct member_node *n = calloc(1, sizeof *n);
    if (!n) {
        json_decref(told);
        return err_set(e, HP_ENOMEM, "no memory for a node");
    }
    n->told = told;
    int rc = cluster_read(n, e);
    const json_t *nic = json_array_get(json_object_get(told, "nics"), 0),
                 *paced = json_object_get(told, "paced");
    const char *as = json_string_value(json_object_get(paced, "as"));
    n->nic_bytes_per_s =
        json_is_true(json_object_get(nic, "assumed")) ? 0 : number_of(nic, "bandwidth_bytes_per_s");
    double pool = number_of(told, "pool_bytes");
    n->pool_bytes = pool > 0 && pool < 1e18 ? (uint64_t)pool : UINT64_MAX;
    n->paced_as = as ? as : "";
    n->paced_profile = json_string_value(json_object_get(paced, "profile"));
    if (rc == 0)
        rc = speeds_read(n, e);
    if (rc == 0)
        rc = paced_links_read(n, json_object_get(paced, "links"), e);
    if (rc < 0)
        member_node_free(&n);
    else
        *out = n;
    return rc;
}

void member_node_free(struct member_node **node)
{
    struct member_node *n = *node;
    *node = NULL;
    if (!n)
        return;
    cluster_free(&n->cluster);
    json_decref(n->told);
    free(n);
}

const struct cluster_wire *member_node_paced_link(const struct member_node *n, const char *to)
{
    for (int i = 0; i < n->n_paced_links; i++)
        if (strcmp(n->paced_links[i].to, to) == 0)
            return &n->paced_links[i].wire;
    return NULL;
}

const struct cluster_nic *member_node_card(const struct member_node *n)
{
    static const struct cluster_nic unknown = {"unknown", {1.25e8, 1e-4}}; /* 1 Gbit/s */
    return n->cluster.nodes[0].n_nics > 0 ? n->cluster.nodes[0].nics : &unknown;
}

static bool list_has(const json_t *list, const char *name)
{
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        if (json_is_string(item) && strcmp(json_string_value(item), name) == 0)
            return true;
    }
    return false;
}

const char *member_node_lacks(const struct member_node *n, const char *const *names)
{
    const json_t *runs = json_object_get(n->told, "runs");
    if (!json_is_array(runs))
        return NULL;
    for (; names && *names; names++)
        if (!list_has(runs, *names))
            return *names;
    return NULL;
}
