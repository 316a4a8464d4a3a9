/* What gateways ask: the table of requests.h over this core. */
#ifndef HP_COORDINATOR_SERVING_H
#define HP_COORDINATOR_SERVING_H

#include "coordinator/requests.h"

struct coord;

/* The face of the core for the gateway; valid as long as the core is. */
void serving_requests(struct coord *c, struct requests *out);

#endif
