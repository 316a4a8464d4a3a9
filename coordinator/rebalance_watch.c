#include "coordinator/rebalance_watch.h"

#include <string.h>

#include "coordinator/late_links.h"
#include "coordinator/lossy_links.h"
#include "coordinator/member.h"
#include "coordinator/paces.h"
#include "coordinator/rebalance.h"

/* Who may be given stages, and since which join. */
static uint64_t agents_hash(const struct coord *c)
{
    uint64_t hash = 1;
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        uint64_t own = member_available(m) ? m->joins + 1 : 0;
        hash = (hash ^ own) * UINT64_C(0x100000001b3) + 1;
    }
    return hash;
}

static uint64_t settle_ns(const struct deployment *d)
{
    unsigned doublings = d->watch.changes > 1 ? d->watch.changes - 1 : 0;
    doublings = doublings < REBALANCE_MOST_DOUBLINGS ? doublings : REBALANCE_MOST_DOUBLINGS;
    return coord_ms(REBALANCE_SETTLE_MS) << doublings;
}

/* An agent that comes and goes puts the next plan off, each time for longer. */
static void change_note(struct coord *c, struct deployment *d, uint64_t hash)
{
    uint64_t now = coord_now(c);
    bool first = d->watch.seen == 0,
         calm = now - d->watch.changed_ns >= coord_ms(REBALANCE_CALM_MS);
    d->watch.seen = hash;
    d->watch.confirmed = false;
    if (first)
        return;
    d->watch.changes = calm ? 1 : d->watch.changes + 1;
    d->watch.changed_ns = now;
    d->watch.due_ns = now + settle_ns(d);
}

/* The plan that it asked for is there: where it pays, another one has to say so, too. */
static void answer_note(struct coord *c, struct deployment *d)
{
    const char *verdict = json_string_value(json_object_get(d->rebalanced, "verdict"));
    d->watch.asked = false;
    d->watch.confirmed = verdict && strcmp(verdict, "would_move") == 0;
    bool failed = verdict && strcmp(verdict, "failed") == 0;
    d->watch.changes += failed;
    if (d->watch.confirmed || (failed && d->watch.changes <= REBALANCE_MOST_DOUBLINGS))
        d->watch.due_ns = coord_now(c) + settle_ns(d);
}

/* `told`: what changes without a change of `hash`: who was slow already is slower still. */
static void watch_step(struct coord *c, struct deployment *d, uint64_t hash, uint64_t told)
{
    struct err e = {0};
    if (d->watch.seen != hash)
        change_note(c, d, hash);
    if (d->rebalance)
        return;
    if (d->watch.asked)
        answer_note(c, d);
    if (!d->watch.due_ns && d->watch.told != told) /* a plan that is due will know of it */
        d->watch.due_ns = coord_now(c) + settle_ns(d);
    if (!d->watch.due_ns || coord_now(c) < d->watch.due_ns)
        return;
    struct rebalance_wish w = {.dry = !d->watch.confirmed, .margin = REBALANCE_MARGIN_ITSELF};
    d->watch.due_ns = 0;
    d->watch.told = told;
    d->watch.confirmed = false;
    int rc = rebalance_start(c, d, &w, &e);
    d->watch.asked = rc == 0;
    if (rc == HP_EBUSY)
        d->watch.due_ns = coord_now(c) + settle_ns(d);
}

void rebalances_tick(struct coord *c)
{
    const struct late_hashes late = late_links_hash(c);
    uint64_t hash = agents_hash(c) ^ late.which ^ lossy_links_hash(c);
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        if (!d->spec.rebalances || d->state != DEPLOYMENT_SERVING || !deployment_has_face(d))
            continue;
        const struct pace_hashes paces = paces_hash(c, d);
        watch_step(c, d, hash ^ paces.which, late.told ^ paces.told);
    }
}
