/* Deployments that rebalance by themselves: away from devices and links that have become far worse
 * (degraded.h), which is what they do unless they were put somewhere by name; with `deploy
 * --rebalance auto` also when agents come, one turns out to be far slower or faster than its kind
 * (paces.h), or than it was when that was looked at last, or a link to be late or lossy, wherever
 * that is. */
#ifndef HP_COORDINATOR_REBALANCE_WATCH_H
#define HP_COORDINATOR_REBALANCE_WATCH_H

#include "coordinator/deployment.h"

/* By itself a deployment asks for more, of two plans one after the other: a link that was measured
 * while it was busy looks slow. Nobody asked for this one to look for anything better: that has to
 * be half as fast again. */
#define REBALANCE_MARGIN_ITSELF 0.25
#define REBALANCE_MARGIN_DEGRADED 0.5

enum {
    /* How long the agents there are have to stay before a deployment moves by itself, and between
     * its two plans; doubled, up to so often, with each change soon after another. */
    REBALANCE_SETTLE_MS = 10000,
    REBALANCE_DEGRADED_MS = 5000, /* the same while its own place is degraded */
    /* After a plan that found nothing better than such a place; twice as long after each more that
     * did not, whatever others found in between. */
    REBALANCE_AGAIN_MS = 60000,
    REBALANCE_MOST_DOUBLINGS = 7,
    REBALANCE_CALM_MS = 1800000, /* without a change: what was before is forgotten */
};

/* Begins with those of them that serve, once what they look at has changed and all has been still.
 */
void rebalances_tick(struct coord *c);

#endif
