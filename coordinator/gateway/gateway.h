/* The HTTP gateway of the coordinator: the OpenAI dialect, health and metrics. */
#ifndef HP_COORDINATOR_GATEWAY_GATEWAY_H
#define HP_COORDINATOR_GATEWAY_GATEWAY_H

#include "common/status.h"
#include "coordinator/requests.h"

#include <uv.h>

struct gateway;

/* Listens on "127.0.0.1:8080" (port 0: any free one). `requests` outlives the gateway. HP_EIO when the port is in use; HP_EDENIED beyond loopback while there
 * are no API keys. All on the loop's thread. */
int gateway_start(uv_loop_t *loop, const char *listen, const struct requests *requests, struct gateway **out, struct err *e);
int gateway_port(const struct gateway *g);
/* Ends open streams and closes its handles; the loop then runs until they are closed. */
void gateway_stop(struct gateway **g);

#endif
