/* What the kernel's TCP says of a connection: segments that it sent again because they were lost.
 * A file of its own, since the C library's description of it ends before the half of it. */
#include <linux/tcp.h>
#include <sys/socket.h>

#include "transport/data_tcp_int.h"

void tcp_conn_count(struct tcp_conn *c)
{
    struct tcp_info i = {0};
    socklen_t size = sizeof i;
    c->counted_ms = c->endpoint->clock_ms;
    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &i, &size) < 0)
        return;
    /* What the peer had already was not lost, it says so when it acknowledges it. */
    uint64_t segments = i.tcpi_data_segs_out, again = i.tcpi_total_retrans,
             other = (uint64_t)i.tcpi_retrans + i.tcpi_dsack_dups,
             lost = again > other ? again - other : 0;
    lost = lost < c->lost ? c->lost : lost;
    if (segments > c->segments)
        data_loss_add(&c->endpoint->base, c->peer->key, segments - c->segments, lost - c->lost);
    c->segments = segments;
    c->lost = lost;
}
