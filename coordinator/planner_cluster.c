#include "coordinator/planner_cluster.h"

#include <math.h>
#include <string.h>

#include "common/vector.h"
#include "coordinator/links.h"
#include "coordinator/model_slots.h"
#include "coordinator/paces.h"
#include "coordinator/planner_profile.h"
#include "transport/stage_bytes.h"

/* ---- bytes ---- */

/* Whether another deployment's stages are to be counted beside those of `d` (NULL: beside what
 * pools are given). */
static bool deployment_holds(const struct deployment *other, const struct deployment *d)
{
    if (other->state == DEPLOYMENT_PLANNED || other->state == DEPLOYMENT_STOPPED)
        return false;
    if (other->spec.copy_of[0] && !(d && d->spec.copy_of[0])) /* it gives way */
        return false;
    /* A plan that reads for one that chooses such a plan anew gives its room back. */
    return !d || ((other != d || d->beside) && !(deployment_reads_auto(&d->spec) && !d->beside &&
                                                 strcmp(other->spec.prefill_of, d->name) == 0));
}

static double stages_bytes(const struct coord *c, const struct deployment *d,
                           const struct member *m, int device)
{
    double bytes = 0;
    for (size_t i = 0; i < c->n_deployments; i++) {
        const struct deployment *other = c->deployments[i];
        if (!deployment_holds(other, d))
            continue;
        for (int k = 0; k < other->n_stages; k++)
            if (other->stages[k].agent == m && other->stages[k].device == device)
                bytes += other->stages[k].memory_bytes;
    }
    return bytes;
}

static double device_bytes(const struct member *m, int device)
{
    const struct cluster_device *own = member_device(m, device);
    return own && !member_device_lost(m, device) ? own->memory_bytes : 0;
}

double planner_free_bytes(const struct coord *c, const struct deployment *d, const struct member *m,
                          int device)
{
    double bytes = device_bytes(m, device) - stages_bytes(c, d, m, device);
    if (device >= 0 && device < MESSAGE_MAX_DEVICES)
        bytes -= m->pooled_bytes[device] + m->short_bytes[device];
    return bytes > 0 ? bytes : 0;
}

struct frame_row planner_border_row(const struct model_facts *f)
{
    struct frame_row most = {.width = f->borders ? 0 : f->width};
    for (int i = 0; f->borders && i < f->n_layers; i++) {
        const struct message_value *values = f->borders[i].items;
        struct frame_row row = {0};
        for (size_t k = 0; k < f->borders[i].count; k++) {
            row.width += values[k].width;
            row.exact += values[k].exact ? values[k].width : 0;
        }
        most = row.width > most.width ? row : most;
    }
    return most;
}

uint64_t planner_border_elements(const struct model_facts *f)
{
    uint64_t all = f->borders ? 0 : f->width;
    for (int i = 0; f->borders && i < f->n_layers; i++) {
        const struct message_value *values = f->borders[i].items;
        for (size_t k = 0; k < f->borders[i].count; k++)
            for (uint64_t a = values[k].exact ? 0 : values[k].width, rest; a;
                 a = rest) { /* Euclid's way */
                rest = all % a;
                all = a;
            }
    }
    return all;
}

/* Whether the member could be given a stage of the deployment's model. */
static bool takes_part(const struct deployment *d, const struct member *m)
{
    return m->node && member_available(m) && !member_lacks(m, d->model->facts.needs);
}

/* What frames on their way to a stage of the member take of its memory, were there as many stages
 * as there may be. Its devices share the pool. */
static uint64_t receiving_bytes(const struct coord *c, const struct deployment *d,
                                const struct member *m)
{
    uint64_t n_stages = 0, layers = (uint64_t)d->model->facts.n_layers;
    if (m->node->pool_bytes == UINT64_MAX)
        return 0;
    for (size_t i = 0; i < c->n_members; i++)
        n_stages += takes_part(d, c->members[i]) ? (uint64_t)member_device_count(c->members[i]) : 0;
    n_stages = n_stages < layers ? n_stages : layers;
    uint64_t inputs =
        stage_inputs_bytes(n_stages, deployment_spec_batch_tokens(&d->spec, &d->model->facts),
                           planner_border_row(&d->model->facts), deployment_wire(d));
    return stage_receiving_bytes(inputs, m->node->pool_bytes / (uint64_t)member_device_count(m));
}

double planner_workspace_bytes(const struct coord *c, const struct deployment *d,
                               const struct member *m, int device)
{
    double tokens = (double)deployment_spec_batch_tokens(&d->spec, &d->model->facts);
    /* A paced agent's memory is that of the device it stands for, counted by the profile's bytes.
     */
    if (member_paced_as(m)[0])
        return 0;
    /* Rows that cross as less than float32 are kept as float32 once before they go and once after
     * they came. */
    double wide = deployment_wire(d) == FRAME_F32 ? 0 : 2.0 * sizeof(float) * d->model->facts.width;
    return ceil((d->model->facts.workspace_bytes_per_token + wide) * tokens) +
           planner_scratch_bytes(c, d, m, device, tokens) + (double)receiving_bytes(c, d, m);
}

/* ---- nodes ---- */

/* Members in the order in which they are the cluster's nodes. */
struct drawing {
    const struct coord *c;
    const struct deployment *d; /* NULL: for `wish` */
    const struct planner_wish *wish;
    struct cluster cluster;
    const struct member **members;
    struct cluster_link *links;
    int n_links, room_links;
};

static int no_memory(struct err *e)
{
    return err_set(e, HP_ENOMEM, "no memory for planning");
}

static int buses_copy(struct arena *arena, const struct cluster_node *from,
                      struct cluster_node *out)
{
    out->n_buses = from->n_buses;
    out->buses = arena_memdup(arena, from->buses, (size_t)from->n_buses * sizeof *from->buses);
    for (int i = 0; out->buses && i < out->n_buses; i++)
        out->buses[i].name = arena_strdup(arena, from->buses[i].name);
    return out->n_buses && !out->buses ? HP_ENOMEM : 0;
}

static int nics_copy(struct arena *arena, const struct member_node *from, struct cluster_node *out)
{
    const struct cluster_nic *nics = member_node_card(from);
    out->n_nics = from->cluster.nodes[0].n_nics > 0 ? from->cluster.nodes[0].n_nics : 1;
    out->nics = arena_memdup(arena, nics, (size_t)out->n_nics * sizeof *nics);
    for (int i = 0; out->nics && i < out->n_nics; i++)
        out->nics[i].name = arena_strdup(arena, nics[i].name);
    return out->nics ? 0 : HP_ENOMEM;
}

/* Texts that there is no memory for are seen by the arena. */
static void device_add(struct drawing *w, const struct member *m, int i)
{
    struct cluster *to = &w->cluster;
    const struct cluster_device *device = member_device(m, i);
    char kind[PACE_KIND];
    struct cluster_device *out = &to->devices[to->n_devices++];
    *out = *device;
    out->id = arena_strdup(&to->arena, device->id);
    out->name = arena_strdup(&to->arena, device->name);
    out->kind = arena_strdup(&to->arena, w->d ? pace_kind(w->d, m, i, kind) : device->kind);
    out->node = to->n_nodes;
    if (!w->d) {
        out->memory_bytes = fmax(0, device_bytes(m, i) - stages_bytes(w->c, NULL, m, i));
        return;
    }
    out->memory_bytes = fmax(
        0, floor(planner_free_bytes(w->c, w->d, m, i) - planner_workspace_bytes(w->c, w->d, m, i)));
}

static int node_add(struct drawing *w, const struct member *m, struct err *e)
{
    struct cluster *to = &w->cluster;
    const struct cluster_node *from = &m->node->cluster.nodes[0];
    struct cluster_node *node = &to->nodes[to->n_nodes];
    *node = (struct cluster_node){.name = arena_strdup(&to->arena, m->name),
                                  .first_device = to->n_devices,
                                  .n_devices = member_device_count(m),
                                  .has_device_link = from->has_device_link,
                                  .device_link = from->device_link};
    for (int i = 0; i < node->n_devices; i++)
        device_add(w, m, i);
    if (buses_copy(&to->arena, from, node) < 0 || nics_copy(&to->arena, m->node, node) < 0 ||
        to->arena.out_of_memory)
        return no_memory(e);
    w->members[to->n_nodes++] = m;
    return 0;
}

static bool member_is_drawn(const struct drawing *w, const struct member *m)
{
    return w->d ? takes_part(w->d, m) : w->wish->wants(w->wish->ctx, m);
}

static int nodes_add(struct drawing *w, struct err *e)
{
    size_t room = w->c->n_members + 1, devices = 1;
    struct cluster *to = &w->cluster;
    for (size_t i = 0; i < w->c->n_members; i++)
        devices += (size_t)member_device_count(w->c->members[i]);
    to->nodes = arena_alloc(&to->arena, room, sizeof *to->nodes);
    to->devices = arena_alloc(&to->arena, devices, sizeof *to->devices);
    w->members = arena_alloc(&to->arena, room, sizeof *w->members);
    if (!to->nodes || !to->devices || !w->members)
        return no_memory(e);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < w->c->n_members; i++)
        if (member_is_drawn(w, w->c->members[i]))
            rc = node_add(w, w->c->members[i], e);
    return rc;
}

/* Devices by kind. */
static int pools_count(struct cluster *to, struct err *e)
{
    to->pools = arena_alloc(&to->arena, (size_t)to->n_devices + 1, sizeof *to->pools);
    if (!to->pools)
        return no_memory(e);
    for (int i = 0; i < to->n_devices; i++) {
        int k = 0;
        while (k < to->n_pools && strcmp(to->pools[k].kind, to->devices[i].kind) != 0)
            k++;
        if (k == to->n_pools)
            to->pools[to->n_pools++] = (struct cluster_pool){to->devices[i].kind, 0, 1};
        to->pools[k].count++;
    }
    return 0;
}

/* ---- links ---- */

/* A path between two agents is one between all their devices. */
static bool path_add(struct drawing *w, const struct links_path *p, int from, int to)
{
    const struct cluster_node *a = &w->cluster.nodes[from], *b = &w->cluster.nodes[to];
    bool good = true;
    for (int i = 0; good && i < a->n_devices * b->n_devices; i++) {
        struct cluster_link l = {.from = a->first_device + i / b->n_devices,
                                 .to = b->first_device + i % b->n_devices,
                                 .wire = p->wire,
                                 .reverse_only_implied = p->serves_back};
        good = vector_push(w->links, w->n_links, w->room_links, l);
    }
    return good;
}

static int links_add(struct drawing *w, int a, int b, struct err *e)
{
    struct links_path paths[2];
    int n = links_paths(w->members[a], w->members[b], paths);
    for (int p = 0; p < n; p++) {
        bool forth = paths[p].from == w->members[a];
        if (!path_add(w, &paths[p], forth ? a : b, forth ? b : a))
            return no_memory(e);
    }
    return 0;
}

static int links_draw(struct drawing *w, struct err *e)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < w->cluster.n_nodes; i++)
        for (int k = 0; rc == 0 && k < i; k++)
            rc = links_add(w, k, i, e);
    w->cluster.links =
        rc == 0 ? arena_memdup(&w->cluster.arena, w->links, (size_t)w->n_links * sizeof *w->links)
                : NULL;
    w->cluster.n_links = w->n_links;
    free(w->links);
    return rc == 0 && w->n_links && !w->cluster.links ? no_memory(e) : rc;
}

static int cluster_draw(struct drawing *w, struct cluster *out, struct err *e)
{
    int rc = nodes_add(w, e);
    if (rc == 0)
        rc = pools_count(&w->cluster, e);
    if (rc == 0)
        rc = links_draw(w, e);
    if (rc < 0)
        cluster_free(&w->cluster);
    else
        *out = w->cluster;
    return rc;
}

int planner_cluster_make(const struct coord *c, const struct deployment *d, struct cluster *out,
                         struct err *e)
{
    struct drawing w = {.c = c, .d = d};
    return cluster_draw(&w, out, e);
}

int planner_cluster_of(const struct coord *c, const struct planner_wish *wish, struct cluster *out,
                       struct err *e)
{
    struct drawing w = {.c = c, .wish = wish};
    return cluster_draw(&w, out, e);
}
