/* What TCP says of the connections, for who counts by peers. */
#include "transport/data_tcp_int.h"

void tcp_conn_count(struct tcp_conn *c)
{
    struct tcp_loss more;
    c->counted_ms = c->endpoint->clock_ms;
    if (tcp_loss_read(c->fd, &c->sent, &more))
        data_loss_add(&c->endpoint->base, c->peer->key, more.segments, more.lost);
}
