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

/* Between a stage and the next one; the last one sends to the first. Whichever way it is that is
 * bad, and when the other way follows, that is no change. */
static void path_count(struct degraded_hashes *h, const struct member *a, const struct member *b,
                       int stage)
{
    static const struct member_link none;
    const struct member_link *there = links_cell(a, b), *back = links_cell(b, a);
    there = there ? there : &none;
    back = back ? back : &none;
    if (there->late_s > 0 || back->late_s > 0)
        part_count(h, stage, 2, (uint64_t)there->late_told << 32 | back->late_told);
    if (there->loss > 0 || back->loss > 0)
        part_count(h, stage, 3, (uint64_t)there->lossy_told << 32 | back->lossy_told);
}

struct degraded_hashes degraded_hash(const struct deployment *d)
{
    struct degraded_hashes h = {0};
    for (int i = 0; i < d->n_stages; i++) {
        device_count(&h, d, i);
        path_count(&h, d->stages[i].agent, d->stages[(i + 1) % d->n_stages].agent, i);
    }
    return h;
}
