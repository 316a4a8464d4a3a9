#include "coordinator/degraded.h"

#include "coordinator/links.h"
#include "coordinator/member.h"
#include "coordinator/paces.h"

static void part_count(struct degraded_hashes *h, int stage, uint64_t what, uint64_t told)
{
    const uint64_t prime = UINT64_C(0x100000001b3);
    h->which = (h->which ^ ((uint64_t)(stage + 1) << 32 | what)) * prime + 1;
    h->told = (h->told ^ told) * prime + 1;
}

static void device_count(struct degraded_hashes *h, const struct deployment *d, int stage)
{
    const struct deployment_stage *s = &d->stages[stage];
    int told;
    if (pace_is_degraded(d, s->agent, s->device, &told))
        part_count(h, stage, 1, (uint64_t)told);
}

/* One way of the path between a stage and the next one; the last one sends to the first. */
static void link_count(struct degraded_hashes *h, const struct member *from,
                       const struct member *to, int stage)
{
    const struct member_link *l = links_cell(from, to);
    if (l && l->late)
        part_count(h, stage, 2, l->late_told);
    if (l && l->loss > 0)
        part_count(h, stage, 3, l->lossy_told);
}

struct degraded_hashes degraded_hash(const struct deployment *d)
{
    struct degraded_hashes h = {0};
    for (int i = 0; i < d->n_stages; i++) {
        const struct member *own = d->stages[i].agent,
                            *next = d->stages[(i + 1) % d->n_stages].agent;
        device_count(&h, d, i);
        link_count(&h, own, next, i);
        link_count(&h, next, own, i);
    }
    return h;
}
