#include "coordinator/planner_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/planner_cluster.h"
#include "coordinator/planner_profile.h"

static uint64_t hash_mix(uint64_t hash, uint64_t value)
{
    hash ^= value + UINT64_C(0x9e3779b97f4a7c15) + (hash << 6) + (hash >> 2);
    return hash;
}

uint64_t planner_inputs_version(const struct coord *c, const struct deployment *d)
{
    uint64_t v = hash_mix(hash_mix(c->profiles_version, c->n_profiles), c->links_version);
    v = hash_mix(v, c->paces_version);
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        v = hash_mix(hash_mix(hash_mix(v, member_available(m)), m->joins),
                     (uint64_t)(uintptr_t)m->node);
        for (int k = 0; k < MESSAGE_MAX_DEVICES; k++)
            v = m->short_bytes[k] > 0 ? hash_mix(v, (uint64_t)m->short_bytes[k]) : v;
    }
    for (size_t i = 0; i < c->n_deployments; i++) {
        const struct deployment *o = c->deployments[i];
        bool holds = o != d && o->state != DEPLOYMENT_PLANNED && o->state != DEPLOYMENT_STOPPED;
        v = holds ? hash_mix(hash_mix(hash_mix(v, o->id), o->generation), (uint64_t)o->n_stages)
                  : v;
    }
    v = hash_mix(hash_mix(v, (uint64_t)(uintptr_t)d->spec.options), deployment_wire(d));
    return hash_mix(hash_mix(v, d->model->expert_groups), d->beside);
}

int planner_inputs_device(const struct planner_inputs *p, const char *agent, int device)
{
    int node = cluster_find_node(&p->cluster, agent);
    const struct cluster_node *n = node < 0 ? NULL : &p->cluster.nodes[node];
    return n && device < n->n_devices ? n->first_device + device : -1;
}

static void member_bytes_set(const struct coord *c, const struct deployment *d,
                             struct planner_inputs *p, const struct member *m)
{
    for (int i = 0; i < member_device_count(m); i++) {
        int device = planner_inputs_device(p, m->name, i);
        if (device < 0)
            continue;
        p->free_bytes[device] = planner_free_bytes(c, d, m, i);
        p->workspace_bytes[device] = planner_workspace_bytes(c, d, m, i);
    }
}

static int bytes_set(struct coord *c, struct deployment *d, struct planner_inputs *p, struct err *e)
{
    size_t layers = (size_t)d->model->facts.n_layers, devices = (size_t)p->cluster.n_devices;
    p->n_layers = (int)layers;
    p->resident_bytes = arena_alloc(&p->arena, layers + 1, sizeof(double));
    p->state_bytes_per_token = arena_alloc(&p->arena, layers + 1, sizeof(double));
    p->free_bytes = arena_alloc(&p->arena, devices + 1, sizeof(double));
    p->workspace_bytes = arena_alloc(&p->arena, devices + 1, sizeof(double));
    if (!p->resident_bytes || !p->state_bytes_per_token || !p->free_bytes || !p->workspace_bytes)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    for (size_t l = 0; l < layers; l++) {
        p->resident_bytes[l] = planner_resident_bytes(c, d, (int)l);
        p->state_bytes_per_token[l] = planner_state_bytes_per_token(c, d, (int)l);
    }
    for (size_t i = 0; i < c->n_members; i++)
        member_bytes_set(c, d, p, c->members[i]);
    p->stands_for = planner_stands_for(c, d);
    return 0;
}

int planner_inputs_get(struct coord *c, struct deployment *d, struct planner_inputs **out,
                       struct err *e)
{
    uint64_t version = planner_inputs_version(c, d);
    if (!d->inputs || d->inputs->version != version) {
        struct planner_inputs *p = calloc(1, sizeof *p);
        if (!p)
            return err_set(e, HP_ENOMEM, "no memory for planning");
        p->refs = 1;
        p->version = version;
        int rc = planner_cluster_make(c, d, &p->cluster, e);
        if (rc == 0)
            rc = planner_profile_make(c, d, &p->profile, e);
        p->wire = deployment_wire(d);
        for (int i = 0; rc == 0 && i < p->profile.n_layers; i++) /* profiles count float32 */
            p->profile.layers[i].output_bytes_per_token *= frame_dtype_ratio(p->wire);
        if (rc == 0)
            rc = bytes_set(c, d, p, e);
        if (rc < 0) {
            planner_inputs_release(&p);
            return rc;
        }
        planner_inputs_release(&d->inputs);
        d->inputs = p;
    }
    d->inputs->refs++;
    *out = d->inputs;
    return 0;
}

void planner_inputs_release(struct planner_inputs **out)
{
    struct planner_inputs *p = *out;
    *out = NULL;
    if (!p || --p->refs > 0)
        return;
    cluster_free(&p->cluster);
    profile_free(&p->profile);
    arena_free(&p->arena);
    free(p);
}
