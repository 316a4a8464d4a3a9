#include "coordinator/pools/pool_memory.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/member.h"
#include "planners/pools/problem.h"

static int device_of(const struct pool_plan *p, int share)
{
    return p->topology.shares[share].cluster_device;
}

/* ---- weights that are there once ---- */

_Static_assert(POOLS_MAX_LAYERS <= 64, "a bit for each block");

/* Blocks of each model whose weights each device of a plan's cluster has. */
struct held_blocks {
    uint64_t *blocks; /* [device * n_models + model]; NULL: each share counts by itself */
    int n_models;
};

static struct held_blocks held_make(const struct pool_plan *p, const struct workload *w)
{
    int devices = 0;
    for (int i = 0; i < p->topology.n_shares; i++)
        devices = device_of(p, i) >= devices ? device_of(p, i) + 1 : devices;
    return (struct held_blocks){calloc((size_t)devices * (size_t)w->n_models + 1, sizeof(uint64_t)),
                                w->n_models};
}

/* What a share adds to what those before it hold on its device: weights that shares of one model
 * have alike are there once. */
static double share_adds(const struct held_blocks *h, const struct pool_plan *p,
                         const struct workload *w, int share)
{
    const struct pool_share *s = &p->shares[share];
    const struct profile *f = &w->models[s->model].profile;
    double bytes = s->memory_bytes;
    if (!h->blocks || device_of(p, share) < 0)
        return bytes;
    uint64_t *held = &h->blocks[device_of(p, share) * h->n_models + s->model];
    for (int l = s->first_block; l < s->end_block; l++) {
        bytes -= *held >> l & 1 ? f->layers[l].param_bytes : 0;
        *held |= UINT64_C(1) << l;
    }
    return bytes;
}

/* ---- before ---- */

/* The first device that cannot hold all shares that it is given, with one of them. */
static int device_find(const struct pool_plan *p, const struct workload *w,
                       const struct held_blocks *h, const struct cluster *c, double *needs,
                       int *share)
{
    for (int i = 0; i < p->topology.n_shares; i++) {
        int device = device_of(p, i);
        if (device < 0)
            continue;
        needs[device] += share_adds(h, p, w, i);
        if (needs[device] > c->devices[device].memory_bytes) {
            *share = i;
            return device;
        }
    }
    return -1;
}

int pool_memory_lacking(const struct pool_plan *p, const struct workload *w,
                        const struct cluster *c, struct err *e)
{
    double *needs = calloc((size_t)c->n_devices + 1, sizeof *needs);
    const struct held_blocks held = held_make(p, w);
    int share = 0, device = needs ? device_find(p, w, &held, c, needs, &share) : -1;
    if (device >= 0) {
        const struct pool_share *s = &p->shares[share];
        double room = c->devices[device].memory_bytes;
        err_set(
            e, HP_EINFEASIBLE,
            "\"%.60s\", blocks %d-%d, on %.80s: shares of pools need %.0f bytes there, and %.0f "
            "are free beside what deployments hold: %.0f bytes are missing",
            w->models[s->model].name, s->first_block, s->end_block - 1,
            c->nodes[c->devices[device].node].name, needs[device], room, needs[device] - room);
        err_hint(e, "undeploy what is there (`hpctl ps`), give the agent more (--memory), or name "
                    "other agents (--agents)");
    }
    free(held.blocks);
    free(needs);
    return device;
}

void pool_memory_leave_out(struct cluster *c, int device)
{
    for (int i = 0; i < c->n_pools; i++)
        if (strcmp(c->pools[i].kind, c->devices[device].kind) == 0)
            c->pools[i].count--;
    c->devices[device].kind = "";
}

/* ---- afterwards ---- */

static void plan_note(const struct pool_plan *p)
{
    if (!p)
        return;
    const struct workload *w = &p->spec->workload;
    const struct held_blocks held = held_make(p, w);
    for (int i = 0; i < p->topology.n_shares; i++) {
        const struct pool_share *s = &p->shares[i];
        double bytes = share_adds(&held, p, w, i);
        if (s->agent && s->device >= 0 && s->device < MESSAGE_MAX_DEVICES)
            s->agent->pooled_bytes[s->device] += bytes;
    }
    free(held.blocks);
}

void pool_memory_note(const struct coord *c)
{
    for (size_t i = 0; i < c->n_members; i++)
        memset(c->members[i]->pooled_bytes, 0, sizeof c->members[i]->pooled_bytes);
    if (!c->pools)
        return;
    plan_note(c->pools->current);
    plan_note(c->pools->next);
    for (const struct pool_plan *p = c->pools->ending; p; p = p->next)
        plan_note(p);
}
