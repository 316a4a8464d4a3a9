/* Between which stages a batch was lost. Every batch passes every stage, and heartbeats tell how
 * many each has run: where the stages stand still and one has run fewer than the stage before it,
 * what is missing was lost between the two. Nothing is said while anything moves, since the
 * heartbeats of two agents are of two moments. */
#ifndef HP_COORDINATOR_LOST_HOP_H
#define HP_COORDINATOR_LOST_HOP_H

#include <stdbool.h>
#include <stddef.h>

struct coord;
struct deployment;

enum {
    LOST_HOP_QUIET_MS = 1500, /* two heartbeats and some more */
    LOST_HOP_TEXT = 240,
};

/* A heartbeat of one of its stages was taken: a deployment that is idle for long enough counts from
 * here, so that what was lost or cancelled earlier is no evidence. */
void lost_hop_heartbeat(const struct coord *c, struct deployment *d);
/* "lost on the way from ... to ..."; false where nothing can be said. */
bool lost_hop_tell(const struct coord *c, const struct deployment *d, char out[LOST_HOP_TEXT]);

#endif
