#include "coordinator/lost_hop.h"

#include <stdio.h>

#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/state.h"

void lost_hop_heartbeat(const struct coord *c, struct deployment *d)
{
    if (d->active || coord_now(c) - d->busy_ns < coord_ms(LOST_HOP_QUIET_MS))
        return;
    for (int i = 0; i < d->n_stages; i++)
        d->stages[i].batches_before = d->stages[i].batches_done;
}

static uint64_t batches_since(const struct deployment_stage *s)
{
    return s->batches_done < s->batches_before ? s->batches_done /* a process that began anew */
                                               : s->batches_done - s->batches_before;
}

static bool all_stand_still(const struct coord *c, const struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].running ||
            coord_now(c) - d->stages[i].batches_ns < coord_ms(LOST_HOP_QUIET_MS))
            return false;
    return d->n_stages > 1;
}

bool lost_hop_tell(const struct coord *c, const struct deployment *d, char out[LOST_HOP_TEXT])
{
    if (!all_stand_still(c, d))
        return false;
    int to = 1;
    while (to < d->n_stages && batches_since(&d->stages[to]) >= batches_since(&d->stages[to - 1]))
        to++;
    const struct deployment_stage *from = &d->stages[to - 1],
                                  *next = &d->stages[to < d->n_stages ? to : 0];
    snprintf(out, LOST_HOP_TEXT,
             "lost on the way from stage %d of %d (layers %d-%d on agent \"%s\") to stage %d "
             "(layers %d-%d on agent \"%s\"), as their heartbeats tell",
             to, d->n_stages, from->first_layer, from->end_layer - 1, from->agent->name,
             (int)(next - d->stages) + 1, next->first_layer, next->end_layer - 1,
             next->agent->name);
    return true;
}
