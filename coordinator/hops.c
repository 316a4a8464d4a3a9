#include "coordinator/hops.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/broken_links.h"
#include "coordinator/links.h"
#include "coordinator/member.h"

void hops_begin(struct coord *c, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        d->stages[i].hop_heard = d->n_stages == 1;
    d->until_ns = coord_now(c) + coord_ms(HOPS_TRY_MS);
}

static const struct member *member_before(const struct deployment *d, int stage)
{
    return d->stages[stage ? stage - 1 : d->n_stages - 1].agent;
}

bool hops_all_heard(const struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (!d->stages[i].hop_heard)
            return false;
    return true;
}

void hops_give_up(struct coord *c, const struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (!d->stages[i].hop_heard)
            broken_links_hop(c, d, i);
}

int hops_why(const struct deployment *d, struct err *e)
{
    char pairs[300] = "";
    for (int i = 0; i < d->n_stages; i++) {
        char address[160];
        size_t n = strlen(pairs);
        if (d->stages[i].hop_heard)
            continue;
        links_address_text(d->stages[i].agent, address, sizeof address);
        snprintf(pairs + n, sizeof pairs - n, "%s\"%s\" cannot reach \"%s\" (%s)", n ? ", " : "",
                 member_before(d, i)->name, d->stages[i].agent->name, address);
    }
    err_set(e, HP_ELINK, "agent %s over the data channel", pairs);
    return err_hint(e, "is that port open between the two boxes? `hp-agent --data-port` fixes it; "
                       "`hpctl topo --measure` tries all pairs");
}

struct verdict hops_told(struct coord *c, struct member *m, const struct message_hop_state *h)
{
    struct deployment *d = deployment_of_id(c, h->deployment);
    struct verdict v = {VERDICT_OK, d, {0}};
    if (!d || h->generation != d->generation || h->stage >= (uint64_t)d->n_stages ||
        d->stages[h->stage].agent != m)
        return v;
    d->stages[h->stage].hop_heard = h->heard;
    /* The stages go on calling each other: once all are heard there is no reason to wait for the
     * next try. */
    if (h->heard && hops_all_heard(d))
        deployment_retry(c, d);
    if (h->heard || !deployment_serves(d))
        return v;
    log_warn("coordinator", "hop_silent", "deployment=%s stage=%llu agent=%s seconds=%.1f", d->name,
             (unsigned long long)h->stage, m->name, h->silent_s);
    broken_links_hop(c, d, (int)h->stage);
    v.kind = VERDICT_CUT;
    hops_why(d, &v.why);
    return v;
}
