#include "coordinator/rebalance_watch.h"

#include <string.h>

#include "common/log.h"
#include "coordinator/degraded.h"
#include "coordinator/late_links.h"
#include "coordinator/lossy_links.h"
#include "coordinator/member.h"
#include "coordinator/paces.h"
#include "coordinator/rebalance.h"

/* Who may be given stages, and since which join. One that is not heard for a moment, as who is slow
 * may be, has not gone. */
static uint64_t agents_hash(const struct coord *c)
{
    uint64_t hash = 1;
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        bool there = member_available(m) || m->state == MEMBER_SUSPECT;
        uint64_t own = there ? m->joins + 1 : 0;
        hash = (hash ^ own) * UINT64_C(0x100000001b3) + 1;
    }
    return hash;
}

/* What a deployment looks at. */
struct sight {
    uint64_t which; /* changes with what is there: all is to be still for a while then */
    uint64_t told;  /* changes without a change of `which`: who was slow already is slower still */
    bool degraded;  /* something under it is */
};

/* Twice as long with each time after the first. */
static uint64_t doubled_ns(uint64_t ms, unsigned times)
{
    unsigned doublings = times > 1 ? times - 1 : 0;
    return coord_ms(ms) << (doublings < REBALANCE_MOST_DOUBLINGS ? doublings
                                                                 : REBALANCE_MOST_DOUBLINGS);
}

static uint64_t settle_ns(const struct deployment *d, const struct sight *now)
{
    return doubled_ns(now->degraded ? REBALANCE_DEGRADED_MS : REBALANCE_SETTLE_MS,
                      d->watch.changes);
}

/* An agent that comes and goes puts the next plan off, each time for longer. */
static void change_note(struct coord *c, struct deployment *d, const struct sight *s)
{
    uint64_t now = coord_now(c);
    bool first = d->watch.seen == 0,
         calm = now - d->watch.changed_ns >= coord_ms(REBALANCE_CALM_MS);
    d->watch.seen = s->which;
    d->watch.confirmed = false;
    d->watch.stays = 0;
    if (first)
        return;
    d->watch.changes = calm ? 1 : d->watch.changes + 1;
    d->watch.changed_ns = now;
    d->watch.due_ns = now + settle_ns(d, s);
}

/* The plan that it asked for is there: where it pays, another one has to say so, too. One that
 * found nothing better than what is bad may have been made while all was so. */
static void answer_note(struct coord *c, struct deployment *d, const struct sight *s)
{
    const char *verdict = json_string_value(json_object_get(d->rebalanced, "verdict"));
    d->watch.asked = false;
    d->watch.confirmed = verdict && strcmp(verdict, "would_move") == 0;
    bool failed = verdict && strcmp(verdict, "failed") == 0,
         stays = verdict && strcmp(verdict, "stays") == 0;
    d->watch.stays += stays;
    d->watch.changes += failed && d->watch.failure != HP_ELINK; /* else somebody is heard late */
    if (d->watch.confirmed || (failed && d->watch.changes <= REBALANCE_MOST_DOUBLINGS))
        d->watch.due_ns = coord_now(c) + settle_ns(d, s);
    else if (stays && s->degraded)
        d->watch.due_ns = coord_now(c) + doubled_ns(REBALANCE_AGAIN_MS, d->watch.stays);
}

static void plan_ask(struct coord *c, struct deployment *d, const struct sight *s)
{
    struct err e = {0};
    bool any = d->spec.rebalances == REBALANCING_AUTO;
    struct rebalance_wish w = {.dry = !d->watch.confirmed,
                               .margin = any ? REBALANCE_MARGIN_ITSELF : REBALANCE_MARGIN_DEGRADED};
    d->watch.due_ns = 0;
    d->watch.told = s->told;
    d->watch.confirmed = false;
    int rc = rebalance_start(c, d, &w, &e);
    d->watch.asked = rc == 0;
    if (rc == HP_EBUSY)
        d->watch.due_ns = coord_now(c) + settle_ns(d, s);
    else if (rc < 0)
        log_info("coordinator", "rebalance_refused", "deployment=%s why=\"%s\"", d->name, e.text);
}

/* A plan that is due sooner will know of it. */
static void plan_hasten(struct coord *c, struct deployment *d, const struct sight *s)
{
    uint64_t due = coord_now(c) + settle_ns(d, s);
    d->watch.due_ns = d->watch.due_ns && d->watch.due_ns < due ? d->watch.due_ns : due;
}

static void watch_step(struct coord *c, struct deployment *d, const struct sight *s)
{
    bool rests = d->spec.rebalances == REBALANCING_DEGRADED && !s->degraded;
    if (d->watch.seen != s->which)
        change_note(c, d, s);
    if (d->rebalance)
        return;
    if (d->watch.asked)
        answer_note(c, d, s);
    if (d->watch.told != s->told)
        plan_hasten(c, d, s);
    if (rests)
        d->watch.due_ns = 0;
    if (d->watch.due_ns && coord_now(c) >= d->watch.due_ns)
        plan_ask(c, d, s);
}

/* Its own place. While that is degraded, what else is so for a moment puts nothing off: what comes
 * and goes beside it may change the next plan, no more. */
static struct sight sight_of_place(const struct deployment *d, uint64_t others)
{
    const struct degraded_hashes h = degraded_hash(d);
    bool degraded = h.which != 0;
    return (struct sight){.which = degraded ? 2 : 1,
                          .told = degraded ? h.which ^ h.told ^ others : 0,
                          .degraded = degraded};
}

/* Whatever there is: agents, links, and devices at the deployment's model. */
static struct sight sight_of_all(const struct coord *c, const struct deployment *d,
                                 const struct sight *shared)
{
    const struct pace_hashes paces = paces_hash(c, d);
    const struct sight place = sight_of_place(d, shared->which ^ shared->told);
    if (place.degraded)
        return place;
    return (struct sight){.which = shared->which ^ paces.which, .told = shared->told ^ paces.told};
}

/* Agents and links, of which all that look at everything see the same. */
static struct sight sight_shared(const struct coord *c)
{
    const struct late_hashes late = late_links_hash(c);
    const struct lossy_hashes lossy = lossy_links_hash(c);
    return (struct sight){.which = agents_hash(c) ^ late.which ^ lossy.which,
                          .told = late.told ^ lossy.told};
}

void rebalances_tick(struct coord *c)
{
    struct sight shared = {0};
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        bool any = d->spec.rebalances == REBALANCING_AUTO;
        if (d->spec.rebalances == REBALANCING_OFF || d->state != DEPLOYMENT_SERVING ||
            !deployment_has_face(d))
            continue;
        if (any && !shared.which)
            shared = sight_shared(c);
        const struct sight s =
            any ? sight_of_all(c, d, &shared) : sight_of_place(d, agents_hash(c));
        watch_step(c, d, &s);
    }
}
