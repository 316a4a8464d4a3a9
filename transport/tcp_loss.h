/* What the kernel's TCP says of one connection: segments that it sent again because they had been
 * lost on their way. */
#ifndef HP_TRANSPORT_TCP_LOSS_H
#define HP_TRANSPORT_TCP_LOSS_H

#include <stdbool.h>
#include <stdint.h>

/* With data, and of these sent for a second time because the network had lost them. */
struct tcp_loss {
    uint64_t segments, lost;
};

/* Sets `sum` to all that a connection has sent so far, and `more` to what that is since `sum` was
 * set last (all, where that is 0). False: nothing more has left, or the socket is none of TCP's. */
bool tcp_loss_read(int fd, struct tcp_loss *sum, struct tcp_loss *more);

#endif
