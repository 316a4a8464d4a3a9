/* Frames that leave an endpoint later than they were posted, for a while: a network that has become
 * slow, one that loses packets, or one that brings nothing and says nothing, for whoever tries what
 * a cluster does then (`hpctl chaos`). A frame that is lost is one that comes DATA_LATE_AGAIN_MS
 * later, and what is behind it on its link waits for it: as where TCP sends the last packet of
 * something again; and it is counted as TCP's own are (data_losses). The order of a link's frames
 * stays, all of them come, and once the while is over what was held leaves at once. Frames to the
 * endpoint itself are never late.
 *
 * What is held keeps its buffer, and its `done` is called when it has left. Any thread. */
#ifndef HP_TRANSPORT_DATA_LATE_H
#define HP_TRANSPORT_DATA_LATE_H

#include "transport/data.h"

enum {
    DATA_LATE_FRAMES = 4096,  /* held at once; what is posted beyond them fails with HP_EBUSY */
    DATA_LATE_AGAIN_MS = 200, /* the least that Linux waits before it sends something again */
};

struct data_lateness {
    uint64_t delay_ns; /* what is posted leaves so much later, at the latest when it is over */
    double lost;       /* so many of the frames besides, a share */
    uint64_t for_ns;   /* from now on; 0: it is over now */
};

/* Makes the endpoint one whose frames can be late: right after it was opened, before anybody else
 * uses it. As long as none is late a post looks at one flag more. HP_ENOMEM. */
int data_late_open(struct data_endpoint *d, struct err *e);
/* Takes the place of what was said before. HP_EINVAL: not an endpoint of data_late_open; HP_ENOMEM.
 */
int data_late_set(struct data_endpoint *d, const struct data_lateness *how, struct err *e);

#endif
