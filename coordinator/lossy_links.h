/* Data paths that lose packets: agents tell what their TCP had to send again, and a path of which
 * that is more than a burst is named. Plans count what it costs until it is over. */
#ifndef HP_COORDINATOR_LOSSY_LINKS_H
#define HP_COORDINATOR_LOSSY_LINKS_H

#include "coordinator/links.h"
#include "transport/message.h"

enum {
    LOSSY_TIMES = 3,            /* losses were told so often, of */
    LOSSY_SEGMENTS = 1000,      /* so many segments at most */
    LOSSY_SOUND_SEGMENTS = 400, /* without one: nothing is lost there */
    LOSSY_WINDOW_MS = 120000,   /* what took longer says nothing */
};
#define LOSSY_LEAST 0.005
#define LOSSY_SOUND 0.002
#define LOSSY_WORSE 2.0 /* times what was told last: it is told again */

void lossy_links_told(struct coord *c, struct member *from, const struct message_losses *t);
struct lossy_hashes {
    uint64_t which; /* changes when a path begins to lose packets or no longer does, either way */
    uint64_t told;  /* changes when one begins to, or loses far more than it was told to */
};
struct lossy_hashes lossy_links_hash(const struct coord *c);

#endif
