/* Frames that leave an endpoint later than they were posted, for a while: a network that has become
 * slow, or one that brings nothing and says nothing, for whoever tries what a cluster does then
 * (`hpctl chaos`). The order of a link's frames stays, nothing is lost, and once the while is over
 * what was held leaves at once. Frames to the endpoint itself are never late.
 *
 * What is held keeps its buffer, and its `done` is called when it has left. Any thread. */
#ifndef HP_TRANSPORT_DATA_LATE_H
#define HP_TRANSPORT_DATA_LATE_H

#include "transport/data.h"

enum { DATA_LATE_FRAMES = 4096 }; /* held at once; what is posted beyond them fails with HP_EBUSY */

/* Makes the endpoint one whose frames can be late: right after it was opened, before anybody else
 * uses it. As long as none is late a post looks at one flag more. HP_ENOMEM. */
int data_late_open(struct data_endpoint *d, struct err *e);
/* From now on for `for_ns`: what is posted leaves `delay_ns` later, at the latest when that time is
 * over. Takes the place of what was said before; 0 and 0: the while is over now. HP_EINVAL: not an
 * endpoint of data_late_open; HP_ENOMEM. */
int data_late_set(struct data_endpoint *d, uint64_t delay_ns, uint64_t for_ns, struct err *e);

#endif
