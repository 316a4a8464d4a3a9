#include "transport/tcp_loss.h"

/* The C library's description of it ends before the half of it. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

bool tcp_loss_read(int fd, struct tcp_loss *sum, struct tcp_loss *more)
{
    struct tcp_info i = {0};
    socklen_t size = sizeof i;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &size) < 0)
        return false;
    /* What the peer had already was not lost, it says so when it acknowledges it. */
    uint64_t segments = i.tcpi_data_segs_out, again = i.tcpi_total_retrans,
             other = (uint64_t)i.tcpi_retrans + i.tcpi_dsack_dups,
             lost = again > other ? again - other : 0;
    lost = lost < sum->lost ? sum->lost : lost;
    bool some = segments > sum->segments;
    *more = (struct tcp_loss){some ? segments - sum->segments : 0, lost - sum->lost};
    if (some)
        *sum = (struct tcp_loss){segments, lost};
    return some;
}
