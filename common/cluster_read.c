/* Reading hp-cluster/1: links, pools, the whole. */
#include <stdlib.h>
#include <string.h>

#include "common/cluster_int.h"

static void names_free(struct cluster_reader *r)
{
    HASH_CLEAR(hh, r->nodes);
    HASH_CLEAR(hh, r->devices);
    HASH_CLEAR(hh, r->kinds);
    arena_free(&r->arena);
}

/* ---- links ---- */

static int read_link_end(const struct cluster_reader *r, const struct json_at *item,
                         const char *key, int *out, struct err *e)
{
    struct json_at end;
    const char *id;
    int rc;
    if ((rc = json_get(item, key, &end, e)) < 0 || (rc = json_as_string(&end, &id, e)) < 0)
        return rc;
    *out = cluster_name_find(r->devices, id);
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
        return json_no_memory(at, e);
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

static int read_links(struct cluster_reader *r, const struct json_at *at, struct err *e)
{
    struct cluster *c = &r->c;
    struct json_at list;
    size_t n;
    int rc = cluster_optional_array(at, "links", &list, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    c->links = arena_alloc(&c->arena, n, sizeof *c->links);
    if (!c->links)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        struct cluster_link *link = &c->links[i];
        if ((rc = read_link_end(r, &item, "from", &link->from, e)) < 0 ||
            (rc = read_link_end(r, &item, "to", &link->to, e)) < 0 ||
            (rc = cluster_read_wire(&item, &link->wire, e)) < 0)
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
        return json_no_memory(at, e);
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
        if (!(pool->kind = arena_strdup(&c->arena, kind)))
            return json_no_memory(at, e);
        pool->count = (int)count;
        pool->devices_per_node = (int)per_node;
        c->n_pools++;
    }
    return json_find(at, "nic", &nic) ? cluster_read_wire(&nic, &c->pool_nic, e) : 0;
}

/* The pool of a device's kind; HP_ENOMEM. */
static int pool_of(struct cluster_reader *r, const char *kind)
{
    int k = cluster_name_find(r->kinds, kind);
    if (k >= 0)
        return k;
    k = r->c.n_pools++;
    r->c.pools[k].kind = kind;
    return cluster_name_add(r, &r->kinds, kind, k) < 0 ? HP_ENOMEM : k;
}

/* Devices by kind of a cluster that was given as nodes. */
static int count_pools(struct cluster_reader *r, const struct json_at *at, struct err *e)
{
    struct cluster *c = &r->c;
    struct on_node {
        int node, devices;
    } *last = arena_alloc(&r->arena, (size_t)c->n_devices + 1, sizeof *last); /* of each pool */
    c->pools = arena_alloc(&c->arena, (size_t)c->n_devices + 1, sizeof *c->pools);
    if (!c->pools || !last)
        return json_no_memory(at, e);
    for (int i = 0; i < c->n_devices; i++) {
        int k = pool_of(r, c->devices[i].kind);
        if (k < 0)
            return json_no_memory(at, e);
        if (last[k].node != c->devices[i].node)
            last[k] = (struct on_node){c->devices[i].node, 0};
        last[k].devices++;
        c->pools[k].count++;
        if (last[k].devices > c->pools[k].devices_per_node)
            c->pools[k].devices_per_node = last[k].devices;
    }
    return 0;
}

static int read_cluster(struct cluster_reader *r, const struct json_at *at, struct err *e)
{
    struct json_at list;
    int rc = json_expect_format(at, "hp-cluster/1", e);
    if (rc == 0 && json_find(at, "pools", &list))
        return read_pools(&r->c, at, &list, e);
    if (rc == 0)
        rc = json_get(at, "nodes", &list, e);
    if (rc == 0)
        rc = cluster_read_nodes(r, &list, e);
    if (rc == 0)
        rc = read_links(r, at, e);
    return rc == 0 ? count_pools(r, at, e) : rc;
}

int cluster_from_json(const struct json_at *at, struct cluster *out, struct err *e)
{
    struct cluster_reader r = {0};
    int rc = read_cluster(&r, at, e);
    names_free(&r);
    if (rc < 0)
        arena_free(&r.c.arena);
    else
        *out = r.c;
    return rc;
}
