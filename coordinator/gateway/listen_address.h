/* Where a gateway is told to listen. */
#ifndef HP_COORDINATOR_GATEWAY_LISTEN_ADDRESS_H
#define HP_COORDINATOR_GATEWAY_LISTEN_ADDRESS_H

#include "common/host_address.h"
#include "common/status.h"

/* Reads "HOST:PORT" or "[V6]:PORT"; port 0 is any free one. HP_EUSAGE. */
int listen_address_read(const char *listen, char host[HOST_BYTES], int *port, struct err *e);
/* A socket that listens there, which does not block; its port comes in *port_out. `what` is spoken
 * at it ("HTTP"). HP_EINVAL: no address; HP_EIO. */
int listen_socket_open(const char *what, const char *host, int port, int *port_out, struct err *e);

#endif
