#include "coordinator/replicas.h"

#include "coordinator/prefixes.h"
#include "coordinator/sequence_orders.h"

uint32_t replica_tokens(const struct sequence *s, const struct deployment *keeper)
{
    bool there = s->keeper == keeper->id && s->keeper_generation == keeper->generation;
    return there ? s->replicated : 0;
}

void replica_set(struct sequence *s, const struct sequence *copy, uint32_t tokens)
{
    s->replica = copy->id;
    s->keeper = copy->deployment->id;
    s->keeper_generation = copy->deployment->generation;
    s->replicated = tokens;
}

void replica_drop(struct coord *c, struct sequence *s)
{
    struct deployment *keeper = s->replica ? deployment_of_id(c, s->keeper) : NULL;
    bool there = keeper && keeper->generation == s->keeper_generation;
    struct prefix *p = there ? prefixes_kept_of(keeper, s->replica) : NULL;
    if (p && p->uses <= 1) /* others have begun with it: it is theirs, too */
        sequence_order_evict(c, keeper, p);
    s->replica = 0;
}

void replicas_count(struct deployment *d, const struct sequence *s)
{
    bool fetched = s->replica && s->handed && !s->spilled;
    d->replicas.used += fetched;
    d->replicas.used_tokens += fetched ? s->handed : 0;
}
