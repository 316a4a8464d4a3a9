#include "coordinator/topology.h"

#include "coordinator/links.h"
#include "coordinator/member_node.h"

static json_t *node_document(const struct member *m)
{
    json_t *node = json_deep_copy(m->node->told);
    const struct cluster_nic *card = member_node_card(m->node);
    if (m->node->cluster.nodes[0].n_nics == 0)
        json_object_set_new(node, "nics",
                            json_pack("[{s:s, s:f, s:f}]", "name", card->name,
                                      "bandwidth_bytes_per_s", card->wire.bandwidth_bytes_per_s,
                                      "latency_s", card->wire.latency_s));
    return node;
}

static void link_add(json_t *links, const struct links_path *p, const char *from, const char *to)
{
    json_t *l = json_pack("{s:s, s:s, s:f, s:f}", "from", from, "to", to, "bandwidth_bytes_per_s",
                          p->wire.bandwidth_bytes_per_s, "latency_s", p->wire.latency_s);
    if (p->measured_s)
        json_object_set_new(l, "measured_s", json_integer((json_int_t)p->measured_s));
    if (p->late_s > 0)
        json_object_set_new(l, "late_s", json_real(p->late_s));
    if (p->loss > 0)
        json_object_set_new(l, "loss", json_real(p->loss));
    if (p->assumed)
        json_object_set_new(l, "assumed", json_true());
    json_array_append_new(links, l);
}

/* A path between two agents is one between all their devices. */
static void path_add(json_t *links, const struct links_path *p)
{
    for (int i = 0; i < member_device_count(p->from); i++)
        for (int k = 0; k < member_device_count(p->to); k++)
            link_add(links, p, member_device(p->from, i)->id, member_device(p->to, k)->id);
}

static json_t *cluster_document(const struct coord *c)
{
    json_t *nodes = json_array(), *links = json_array();
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (!m->node)
            continue;
        json_array_append_new(nodes, node_document(m));
        for (size_t k = 0; k < i; k++) {
            struct links_path paths[2];
            int n = c->members[k]->node ? links_paths(c->members[k], m, paths) : 0;
            for (int p = 0; p < n; p++)
                path_add(links, &paths[p]);
        }
    }
    return json_pack("{s:s, s:o, s:o}", "format", "hp-cluster/1", "nodes", nodes, "links", links);
}

static json_t *unreachable_document(const struct coord *c)
{
    json_t *unreachable = json_array();
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_links; k++) {
            const struct member *from = c->members[i];
            const struct member_link *l = &from->links[k];
            char address[160];
            if (!l->failure[0] || !member_present(from) || !member_present(l->to))
                continue;
            links_address_text(l->to, address, sizeof address);
            json_array_append_new(unreachable,
                                  json_pack("{s:s, s:s, s:s, s:s}", "from", from->name, "to",
                                            l->to->name, "address", address, "why", l->failure));
        }
    return unreachable;
}

static json_t *doubted_document(const struct coord *c)
{
    json_t *doubted = json_array();
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_links; k++) {
            const struct member_link *l = &c->members[i]->links[k];
            if (links_is_doubted(c->members[i], l))
                json_array_append_new(
                    doubted, json_pack("{s:s, s:s, s:f, s:f}", "from", c->members[i]->name, "to",
                                       l->to->name, "measured_bytes_per_s", l->doubted_bytes_per_s,
                                       "bandwidth_bytes_per_s", l->bandwidth_bytes_per_s));
        }
    return doubted;
}

/* A list that says nothing is left out. */
static void list_add(json_t *document, const char *name, json_t *list)
{
    if (json_array_size(list))
        json_object_set(document, name, list);
    json_decref(list);
}

json_t *topology_document(const struct coord *c)
{
    json_t *cluster = cluster_document(c);
    list_add(cluster, "unreachable", unreachable_document(c));
    list_add(cluster, "doubted", doubted_document(c));
    return cluster;
}
