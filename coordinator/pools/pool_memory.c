#include "coordinator/pools/pool_memory.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/member.h"

/* ---- before ---- */

static int device_of(const struct pool_plan *p, int share)
{
    return p->topology.shares[share].cluster_device;
}

/* The first device that cannot hold all shares that it is given, with one of them. */
static int device_find(const struct pool_plan *p, const struct cluster *c, double *needs,
                       int *share)
{
    for (int i = 0; i < p->topology.n_shares; i++) {
        int device = device_of(p, i);
        if (device < 0)
            continue;
        needs[device] += p->shares[i].memory_bytes;
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
    int share = 0, device = needs ? device_find(p, c, needs, &share) : -1;
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
    for (int i = 0; p && i < p->topology.n_shares; i++) {
        const struct pool_share *s = &p->shares[i];
        if (s->agent && s->device >= 0 && s->device < MESSAGE_MAX_DEVICES)
            s->agent->pooled_bytes[s->device] += s->memory_bytes;
    }
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
