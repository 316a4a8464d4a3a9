/* A deployment that has to leave an agent or has a better place (rebalance.h), and the one that
 * takes its place beside it: the successor, NAME/next, is planned without the agent and prepared
 * while the other serves on. Once it serves it takes name, queue and record; the one before,
 * NAME/last, keeps what runs, until each of these sequences has gone over with its keys and values
 * (sequence_moves.h) or has ended; what is left at the end of its time begins anew there. Where
 * there is no room for both the deployment moves as a whole, once nothing runs (lifecycle.h). */
#ifndef HP_COORDINATOR_SUCCESSORS_H
#define HP_COORDINATOR_SUCCESSORS_H

#include "coordinator/deployment.h"

/* NULL: none is there. */
struct deployment *successor_of(struct coord *c, const struct deployment *d);
/* Makes one, at most one for each time that the deployment begins to serve. False: it has had one,
 * or none can be made (also while NAME/last is there, and where its name is too long for these).
 * `layout`: where it goes, counted once more; NULL: as the planner says. */
bool successor_begin(struct coord *c, struct deployment *d, struct stage_layout *layout);
/* Whether a successor is needed as yet. */
bool successor_wanted(struct coord *c, const struct deployment *d);
/* The successor serves, and is as good: name, queue and record are its own from now on. */
void successor_take_over(struct coord *c, struct deployment *before, struct deployment *d);
/* Who waits on the one before waits on the successor, before those that wait there: also whoever
 * gave way on the one before after the successor had taken its queue. */
void successor_queue_take(const struct coord *c, struct deployment *before, struct deployment *d);

#endif
